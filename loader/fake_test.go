package loader_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// startFake starts a server that gets its replies from the test, in place of a server that the
// tests cannot start. handle gets a command in upper case, with its arguments joined by spaces, and
// returns the reply in RESP2. The reply "" closes the connection, and silence sends nothing.
const silence = "\x00"

func startFake(t *testing.T, handle func(command string) string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			wg.Go(func() {
				defer func() { _ = conn.Close() }()
				r := bufio.NewReader(conn)
				for {
					words, err := readCommand(r)
					if err != nil {
						return
					}
					mu.Lock()
					answer := handle(strings.ToUpper(strings.Join(words, " ")))
					mu.Unlock()
					if answer == silence {
						continue
					}
					if answer == "" {
						return
					}
					if _, err := io.WriteString(conn, answer); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for _, conn := range conns {
			_ = conn.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return ln.Addr().String()
}

func readCommand(r *bufio.Reader) ([]string, error) {
	number := func(kind byte) (int, error) {
		line, err := r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		if line[0] != kind {
			return 0, fmt.Errorf("%q where %q was expected", line, kind)
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := number('*')
	if err != nil {
		return nil, err
	}
	words := make([]string, n)
	for i := range words {
		size, err := number('$')
		if err != nil {
			return nil, err
		}
		buf := make([]byte, size+2)
		if _, err := io.ReadFull(r, buf); err != nil {
			return nil, err
		}
		words[i] = string(buf[:size])
	}
	return words, nil
}

// resp encodes a reply in RESP2. It supports strings (as bulk strings), integers, errors, and lists
// of these.
func resp(v any) string {
	switch v := v.(type) {
	case nil:
		return "$-1\r\n"
	case int:
		return fmt.Sprintf(":%d\r\n", v)
	case string:
		return fmt.Sprintf("$%d\r\n%s\r\n", len(v), v)
	case error:
		return "-" + v.Error() + "\r\n"
	case []any:
		var b strings.Builder
		fmt.Fprintf(&b, "*%d\r\n", len(v))
		for _, x := range v {
			b.WriteString(resp(x))
		}
		return b.String()
	}
	panic(fmt.Sprintf("no reply for %T", v))
}

type list = []any

// hello returns a reply to HELLO.
func hello(server, version, mode, role string) string {
	return resp(list{"server", server, "version", version, "proto", 2, "id", 1, "mode", mode, "role", role, "modules", list{}})
}

var luaEngine = resp(list{"running_script", nil, "engines", list{"LUA", list{"libraries_count", 0, "functions_count", 0}}})

// library returns a reply to FUNCTION LIST with one library.
func library(name, code string) string {
	return resp(list{list{"library_name", name, "engine", "LUA", "functions", list{}, "library_code", code}})
}
