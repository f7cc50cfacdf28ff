package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/lualib"
	lua "github.com/yuin/gopher-lua"
)

// Run is one call to a function.
type Run struct {
	ReadOnly bool // whether the function must not write
	keys     []string
}

// Declared reports whether the key is among the call's keys.
func (r *Run) Declared(key string) bool { return slices.Contains(r.keys, key) }

// Call runs a function, like FCALL. If readOnly is true, it works like FCALL_RO.
func (e *Engine) Call(f *Function, keys, args []string, readOnly bool) Reply {
	writes := !slices.Contains(f.Flags, noWrites)
	if readOnly && writes {
		return Error("ERR Can not execute a script with write flag using *_ro command.")
	}
	e.running = &Run{keys: keys, ReadOnly: !writes}
	defer func() { e.running = nil }()
	reply, failure, stopped := e.run(f.callback, e.CallLimit, stringTable(e.lua.L, keys), stringTable(e.lua.L, args))
	switch {
	case stopped == errTime:
		return Error(fmt.Sprintf("ERR function %s ran for more than %s and was stopped by the embedded server; "+
			"on Redis it would block the server (BUSY) until FUNCTION KILL", f.Name, e.CallLimit.Round(time.Millisecond)))
	case stopped != nil:
		return Error(fmt.Sprintf("ERR function %s made the process use %d MiB more memory and was stopped by the embedded server", f.Name, e.MemoryLimit>>20))
	case failure == nil:
		return reply
	}
	text, ok := errorText(failure)
	if !ok {
		return Error(fmt.Sprintf("ERR function %s raised a %s without a text in its field err; some Redis versions crash on that: "+
			"raise a string, or return redis.error_reply", f.Name, failure.Type()))
	}
	text += " script: " + f.Name
	if t, ok := failure.(*lua.LTable); ok {
		if source, ok := t.RawGetString("source").(lua.LString); ok {
			text += ", on @" + string(source)
		}
	}
	return Error(OneLine(text + "."))
}

// run runs a function and converts its first result to a reply. If an error ends the function, run
// returns the error's value as failure. If the function is stopped, run returns the reason as
// stopped.
func (e *Engine) run(f *lua.LFunction, limit time.Duration, args ...lua.LValue) (reply Reply, failure lua.LValue, stopped error) {
	e.lua.depth = 0
	e.lua.budget.start(limit, e.MemoryLimit)
	failure = e.lua.call(f, func(th *lua.LState) {
		for _, a := range args {
			th.Push(a)
		}
	}, func(th *lua.LState) { reply = e.toReply(th.Get(1), 0) })
	return reply, failure, e.lua.budget.end()
}

// errorText returns the reply for an error value: the err field of a table, or "ERR " and any other
// value as a string. It returns false if v is a table whose err field is not text.
func errorText(v lua.LValue) (string, bool) {
	if t, ok := v.(*lua.LTable); ok {
		return lualib.ToText(t.RawGetString("err"))
	}
	if s, ok := lualib.ToText(v); ok {
		return "ERR " + s, true
	}
	return "ERR " + v.String(), true
}

func stringTable(L *lua.LState, list []string) *lua.LTable {
	t := L.CreateTable(len(list), 0)
	for _, s := range list {
		t.Append(lua.LString(s))
	}
	return t
}
