package loader_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimit-functions/ratelimit/internal/fakeredis"
)

const silence = "\x00" // for startFake: send no reply

// startFake starts a server for which the test chooses the replies. handle gets a command in upper
// case, with its arguments joined by spaces, and returns the reply in RESP2. The reply "" closes
// the connection, and silence sends nothing.
func startFake(t *testing.T, handle func(command string) string) string {
	t.Helper()
	var mu sync.Mutex
	return fakeredis.Run(t, func(words []string) string {
		mu.Lock()
		defer mu.Unlock()
		switch answer := handle(strings.ToUpper(strings.Join(words, " "))); answer {
		case "":
			return fakeredis.HangUp
		case silence:
			return ""
		default:
			return answer
		}
	})
}

var resp = fakeredis.RESP

type list = []any

// hello returns a reply to HELLO.
func hello(server, version, mode, role string) string {
	return resp(list{"server", server, "version", version, "proto", 2, "id", 1, "mode", mode, "role", role, "modules", list{}})
}

// healthy replies like a primary without libraries. FUNCTION DELETE succeeds, but FUNCTION LOAD
// fails.
func healthy(command string) string {
	switch {
	case strings.HasPrefix(command, "HELLO"):
		return hello("redis", "7.0.15", "standalone", "master")
	case command == "FUNCTION STATS":
		return luaEngine
	case strings.HasPrefix(command, "FUNCTION LIST"):
		return resp(list{})
	case command == "TIME":
		return resp(list{"1700000000", "0"})
	case strings.HasPrefix(command, "FUNCTION DELETE"):
		return "+OK\r\n"
	}
	return unknown(command)
}

// unknown returns the error reply of a server that does not have the command.
func unknown(command string) string {
	name, _, _ := strings.Cut(command, " ")
	return resp(errors.New("ERR unknown command `" + name + "`, with args beginning with: "))
}

// but returns a handler that returns reply for commands that begin with prefix, and calls handle
// for other commands.
func but(handle func(string) string, prefix, reply string) func(string) string {
	return func(command string) string {
		if strings.HasPrefix(command, prefix) {
			return reply
		}
		return handle(command)
	}
}

var luaEngine = resp(list{"running_script", nil, "engines", list{"LUA", list{"libraries_count", 0, "functions_count", 0}}})

// library returns a reply to FUNCTION LIST with one library.
func library(name, code string) string {
	return resp(list{list{"library_name", name, "engine", "LUA", "functions", list{}, "library_code", code}})
}
