package engine

import (
	"crypto/sha1"
	"fmt"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/lualib"
	lua "github.com/yuin/gopher-lua"
)

// Version and VersionNum are the Redis version that functions see. The package follows this version
// where others differ: the time does not change during a call, and numbers are written in their
// shortest form.
const (
	Version    = "7.2.4"
	VersionNum = 0x00070204
)

func raise(L *lua.LState, msg string) { raiseError(L, "ERR "+msg) }

// check raises an error with the given message unless ok is true.
func check(L *lua.LState, ok bool, msg string) {
	if !ok {
		raise(L, msg)
	}
}

// raiseError raises a table with the error and its position, as Redis's own Lua functions do.
func raiseError(L *lua.LState, text string) {
	t := L.CreateTable(0, 2)
	t.RawSetString("err", lua.LString(text))
	t.RawSetString("source", lua.LString(strings.TrimSuffix(L.Where(1), ":")))
	L.Error(t, 0)
}

func (e *Engine) openAPI() {
	L := e.lua.L
	call, load := L.NewTable(), L.NewTable()
	for name, v := range map[string]lua.LValue{
		"LOG_DEBUG": lua.LNumber(0), "LOG_VERBOSE": lua.LNumber(1),
		"LOG_NOTICE": lua.LNumber(2), "LOG_WARNING": lua.LNumber(3),
		"REDIS_VERSION": lua.LString(Version), "REDIS_VERSION_NUM": lua.LNumber(VersionNum),
		"log": L.NewFunction(redisLog),
	} {
		call.RawSetString(name, v)
		load.RawSetString(name, v)
	}
	load.RawSetString("register_function", L.NewFunction(e.registerFunction))
	for name, v := range map[string]lua.LNumber{"REPL_NONE": 0, "REPL_AOF": 1, "REPL_SLAVE": 2, "REPL_REPLICA": 2, "REPL_ALL": 3} {
		call.RawSetString(name, v)
	}
	for name, f := range map[string]lua.LGFunction{
		"call":          func(L *lua.LState) int { return e.redisCall(L, true) },
		"pcall":         func(L *lua.LState) int { return e.redisCall(L, false) },
		"error_reply":   redisErrorReply,
		"status_reply":  func(L *lua.LState) int { return singleField(L, "ok", func(text string) string { return text }) },
		"sha1hex":       redisSHA1Hex,
		"setresp":       redisSetResp,
		"set_repl":      redisSetRepl,
		"acl_check_cmd": redisACLCheck,
	} {
		call.RawSetString(name, L.NewFunction(f))
	}
	g := lualib.Open(L)
	for _, name := range []string{"string", "table", "math", "struct"} {
		g.RawSetString(name, lualib.View(L, g.RawGetString(name).(*lua.LTable)))
	}
	g.RawSetString("pcall", L.NewFunction(e.lua.pcall))
	g.RawSetString("redis", lualib.View(L, call))
	raiseMissing(L, g)
	g.RawSetString("_G", lualib.View(L, g))
	// Reading an absent field of a library's redis table raises an error, like reading an absent
	// global, because Redis protects both in the same way.
	raiseMissing(L, load)
	e.callGlobals, e.loadGlobals = g, L.NewTable()
	e.loadGlobals.RawSetString("redis", lualib.View(L, load))
	raiseMissing(L, e.loadGlobals)
	e.globals, e.showGlobals = environment(L)
	e.showGlobals(e.callGlobals)
}

func (e *Engine) redisCall(L *lua.LState, raises bool) int {
	reply := Reply(Error("ERR Please specify at least one argument for this redis lib call"))
	if L.GetTop() > 0 {
		if args, ok := callArguments(L); ok {
			reply = e.command(e.running, args)
		} else {
			reply = Error("ERR Lua redis lib command arguments must be strings or integers")
		}
	}
	if err, ok := reply.(Error); ok && raises {
		raiseError(L, string(err))
	}
	L.Push(toLua(L, reply))
	return 1
}

func callArguments(L *lua.LState) ([]string, bool) {
	args := make([]string, L.GetTop())
	for i := range args {
		switch v := L.Get(i + 1).(type) {
		case lua.LString:
			args[i] = string(v)
		case lua.LNumber:
			args[i] = FormatDouble(float64(v))
		default:
			return nil, false
		}
	}
	return args, true
}

// redisErrorReply implements redis.error_reply. A message without a space has no error code, so it
// gets the code ERR.
func redisErrorReply(L *lua.LState) int {
	return singleField(L, "err", func(text string) string {
		text = strings.TrimPrefix(text, "-")
		if !strings.Contains(text, " ") {
			return "ERR " + text
		}
		return text
	})
}

func singleField(L *lua.LState, field string, change func(string) string) int {
	s, ok := L.Get(1).(lua.LString)
	if L.GetTop() != 1 || !ok {
		L.Push(toLua(L, Error("ERR wrong number or type of arguments")))
		return 1
	}
	L.Push(fieldTable(L, field, change(string(s))))
	return 1
}

func redisSHA1Hex(L *lua.LState) int {
	check(L, L.GetTop() == 1, "wrong number of arguments")
	s, _ := lualib.ToText(L.Get(1))
	L.Push(lua.LString(fmt.Sprintf("%x", sha1.Sum([]byte(s)))))
	return 1
}

// redisLog checks its arguments as Redis does. It writes nothing, because there is no log.
func redisLog(L *lua.LState) int {
	check(L, L.GetTop() >= 2, "redis.log() requires two arguments or more.")
	level, ok := L.Get(1).(lua.LNumber)
	check(L, ok, "First argument must be a number (log level).")
	check(L, level >= 0 && level <= 3, "Invalid debug level.")
	return 0
}

func redisSetResp(L *lua.LState) int {
	check(L, L.GetTop() == 1, "redis.setresp() requires one argument.")
	v, _ := lualib.ToNumber(L.Get(1))
	check(L, v != 3, "redis.setresp(3) is not supported by the embedded server: replies inside a function are RESP2")
	check(L, v == 2, "RESP version must be 2 or 3.")
	return 0
}

func redisSetRepl(L *lua.LState) int {
	check(L, L.GetTop() == 1, "redis.set_repl() requires two arguments.")
	v, _ := lualib.ToNumber(L.Get(1))
	check(L, v >= 0 && v <= 3, "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.")
	return 0
}

// redisACLCheck returns true, because the embedded server has no users.
func redisACLCheck(L *lua.LState) int {
	check(L, L.GetTop() > 0, "Please specify at least one argument for this redis lib call")
	L.Push(lua.LTrue)
	return 1
}
