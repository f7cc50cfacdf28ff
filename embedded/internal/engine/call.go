package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/lua51"
	lua "github.com/yuin/gopher-lua"
)

// Run is one call of a function.
type Run struct {
	ReadOnly bool // the function may not write
	keys     []string
}

// Declared tells whether a key was given to the call.
func (r *Run) Declared(key string) bool {
	for _, k := range r.keys {
		if k == key {
			return true
		}
	}
	return false
}

// Call runs a function: FCALL, or FCALL_RO if readOnly.
func (e *Engine) Call(f *Function, keys, args []string, readOnly bool) Reply {
	if readOnly && f.Flags&NoWrites == 0 {
		return Error("ERR Can not execute a script with write flag using *_ro command.")
	}
	e.running = &Run{keys: keys, ReadOnly: readOnly || f.Flags&NoWrites != 0}
	defer func() { e.running = nil }()
	v, err := e.rt.Call(f.callback, e.CallLimit, stringTable(e.rt.L, keys), stringTable(e.rt.L, args))
	if err == nil {
		return e.toReply(v)
	}
	if errors.Is(err, lua51.ErrBudget) {
		return Error(fmt.Sprintf("ERR function %s ran for more than %s and was stopped by the embedded server; "+
			"on Redis it would block the server (BUSY) until FUNCTION KILL", f.Name, e.CallLimit.Round(time.Millisecond)))
	}
	value := e.rt.ErrorValue(err)
	text, ok := e.errorText(value)
	if !ok {
		return Error(fmt.Sprintf("ERR function %s raised a %s without a text in its field err; some Redis versions crash on that: "+
			"raise a string, or return redis.error_reply", f.Name, value.Type()))
	}
	if source, line := e.rt.RaisedAt(value); line != 0 {
		text += fmt.Sprintf(" script: %s, on %s:%d.", f.Name, source, line)
	}
	return Error(oneLine(text))
}

// errorText is the reply for an error value: the err field of a table, or the
// text of anything else after "ERR ".
func (e *Engine) errorText(v lua.LValue) (string, bool) {
	if t, ok := v.(*lua.LTable); ok {
		return lua51.ToString(t.RawGetString("err"))
	}
	if s, ok := lua51.ToString(v); ok {
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
