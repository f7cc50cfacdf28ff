package engine

import (
	"math"
	"strconv"
	"strings"

	"github.com/alicebob/miniredis/v2/fpconv"
	"github.com/ratelimit-functions/ratelimit/embedded/internal/lualib"
	lua "github.com/yuin/gopher-lua"
)

// FormatDouble formats a number for an argument of redis.call or for a reply. Whole numbers up to
// 2^62 are written as integers, and others in the shortest form that parses to the same value
// (Redis 7.2 and later; 7.0 writes "%.17g").
func FormatDouble(v float64) string {
	if v >= -1<<62 && v <= 1<<62 && v == math.Trunc(v) && (v != 0 || !math.Signbit(v)) {
		return strconv.FormatInt(int64(v), 10)
	}
	return fpconv.Dtoa(v)
}

// maxNested is the maximum depth of nested tables in a reply, as in Redis. A deeper table becomes
// an error.
const maxNested = 7995

// toReply converts a function's result to a reply, as Redis does for RESP2. depth is the number of
// enclosing tables. Once the call is stopped, toReply adds no more elements.
func (e *Engine) toReply(v lua.LValue, depth int) Reply {
	switch v := v.(type) {
	case lua.LString:
		return string(v)
	case lua.LNumber:
		return lualib.ToInt64(float64(v))
	case lua.LBool:
		if v {
			return int64(1)
		}
	case *lua.LTable:
		return e.tableReply(v, depth+1)
	case *lua.LUserData:
		return e.tableReply(v.Value.(*lua.LTable), depth+1) // a lualib.View, because there is no other userdata
	}
	return nil
}

func (e *Engine) tableReply(t *lua.LTable, depth int) Reply {
	if depth > maxNested {
		return Error("ERR reached lua stack limit")
	}
	if s, ok := t.RawGetString("err").(lua.LString); ok {
		return Error(OneLine(string(s)))
	}
	if s, ok := t.RawGetString("ok").(lua.LString); ok {
		return Status(OneLine(string(s)))
	}
	if n, ok := t.RawGetString("double").(lua.LNumber); ok {
		return FormatDouble(float64(n))
	}
	if m, ok := t.RawGetString("map").(*lua.LTable); ok {
		out := Map{}
		for k, v := m.Next(lua.LNil); k != lua.LNil && e.lua.budget.Err() == nil; k, v = m.Next(k) {
			out = append(out, e.toReply(k, depth), e.toReply(v, depth))
		}
		return out
	}
	if m, ok := t.RawGetString("set").(*lua.LTable); ok {
		out := []Reply{}
		for k, _ := m.Next(lua.LNil); k != lua.LNil && e.lua.budget.Err() == nil; k, _ = m.Next(k) {
			out = append(out, e.toReply(k, depth))
		}
		return out
	}
	if s, ok := t.RawGetString("big_number").(lua.LString); ok {
		return OneLine(string(s))
	}
	if v, ok := t.RawGetString("verbatim_string").(*lua.LTable); ok {
		s, isText := v.RawGetString("string").(lua.LString)
		if _, hasFormat := v.RawGetString("format").(lua.LString); isText && hasFormat {
			return string(s)
		}
	}
	out := make([]Reply, 0, t.Len())
	for i := 1; e.lua.budget.Err() == nil; i++ {
		v := t.RawGetInt(i)
		if v == lua.LNil {
			break
		}
		out = append(out, e.toReply(v, depth))
	}
	return out
}

// OneLine replaces line breaks in a status or an error with spaces, because line breaks would break
// the protocol.
var OneLine = strings.NewReplacer("\r", " ", "\n", " ").Replace

// toLua converts a reply to the value that redis.call returns in Lua.
func toLua(L *lua.LState, r Reply) lua.LValue {
	switch r := r.(type) {
	case int64:
		return lua.LNumber(r)
	case string:
		return lua.LString(r)
	case Status:
		return fieldTable(L, "ok", string(r))
	case Error:
		return fieldTable(L, "err", string(r))
	case []Reply:
		t := L.CreateTable(len(r), 0)
		for i, x := range r {
			t.RawSetInt(i+1, toLua(L, x))
		}
		return t
	}
	return lua.LFalse
}

func fieldTable(L *lua.LState, field, text string) *lua.LTable {
	t := L.CreateTable(0, 1)
	t.RawSetString(field, lua.LString(text))
	return t
}
