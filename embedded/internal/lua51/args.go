package lua51

import (
	"fmt"
	"regexp"
	"strconv"

	lua "github.com/yuin/gopher-lua"
)

// Where is the position that luaL_error puts before a message: "chunk:line: "
// of the function at that level, or nothing if it is not a Lua function.
func Where(L *lua.LState, level int) string {
	dbg, ok := L.GetStack(level)
	if !ok {
		return ""
	}
	if _, err := L.GetInfo("Sl", dbg, lua.LNil); err != nil || dbg.Source == "" || dbg.CurrentLine <= 0 {
		return ""
	}
	return fmt.Sprintf("%s:%d: ", dbg.Source, dbg.CurrentLine)
}

// Raise raises msg as it stands, without a position.
func Raise(L *lua.LState, msg string) { RaiseValue(L, lua.LString(msg)) }

// RaiseValue raises any value, and notes where, for Runtime.RaisedAt.
func RaiseValue(L *lua.LState, v lua.LValue) {
	if c, ok := L.Context().(interface{ shared() *budget }); ok {
		b := c.shared()
		b.raised = v
		b.source, b.line = "", 0
		if dbg, ok := L.GetStack(1); ok {
			if _, err := L.GetInfo("Sl", dbg, lua.LNil); err == nil {
				b.source, b.line = dbg.Source, dbg.CurrentLine
			}
		}
	}
	L.Error(v, 0)
}

// RaisedAt is where the error value was raised: chunk name and line, or line 0
// if that is not known.
func (rt *Runtime) RaisedAt(v lua.LValue) (string, int) {
	id, line := rt.raisedAt(v)
	if name, ok := rt.sources[id]; ok {
		return name, line
	}
	return "@" + id, line
}

func (rt *Runtime) raisedAt(v lua.LValue) (string, int) {
	if rt.budget.raised == v {
		return rt.budget.source, rt.budget.line
	}
	// Raised by gopher-lua's machine, which always puts the position first.
	if s, ok := v.(lua.LString); ok {
		if m := position.FindStringSubmatch(string(s)); m != nil {
			line, _ := strconv.Atoi(m[2])
			return m[1], line
		}
	}
	return "", 0
}

var position = regexp.MustCompile(`^([^:\n]+):(\d+): `)

// Errorf raises a message with the caller's position, as luaL_error does.
func Errorf(L *lua.LState, format string, args ...any) {
	Raise(L, Where(L, 1)+fmt.Sprintf(format, args...))
}

// ArgError raises PUC's message about argument n.
func ArgError(L *lua.LState, n int, msg string) {
	name, method := calledName(L)
	if method {
		n--
		if n == 0 {
			Errorf(L, "calling '%s' on bad self (%s)", name, msg)
		}
	}
	Errorf(L, "bad argument #%d to '%s' (%s)", n, name, msg)
}

func typeError(L *lua.LState, n int, want string) {
	ArgError(L, n, fmt.Sprintf("%s expected, got %s", want, argType(L, n)))
}

func argType(L *lua.LState, n int) string {
	if n > L.GetTop() {
		return "no value"
	}
	return L.Get(n).Type().String()
}

// CheckAny demands that argument n is there.
func CheckAny(L *lua.LState, n int) lua.LValue {
	if n > L.GetTop() {
		ArgError(L, n, "value expected")
	}
	return L.Get(n)
}

// CheckTable demands a table.
func CheckTable(L *lua.LState, n int) *lua.LTable {
	t, ok := L.Get(n).(*lua.LTable)
	if !ok {
		typeError(L, n, "table")
	}
	return t
}

// CheckFunction demands a function.
func CheckFunction(L *lua.LState, n int) *lua.LFunction {
	f, ok := L.Get(n).(*lua.LFunction)
	if !ok {
		typeError(L, n, "function")
	}
	return f
}

// CheckNumber demands a number, or a string that reads as one.
func CheckNumber(L *lua.LState, n int) float64 {
	v, ok := ToNumber(L.Get(n))
	if !ok {
		typeError(L, n, "number")
	}
	return v
}

// CheckInt is luaL_checkint: the number truncated to a C int.
func CheckInt(L *lua.LState, n int) int { return toInt32(CheckNumber(L, n)) }

// OptInt is CheckInt with a default for nil and none.
func OptInt(L *lua.LState, n, def int) int {
	if L.Get(n) == lua.LNil {
		return def
	}
	return CheckInt(L, n)
}

func checkInteger(L *lua.LState, n int) int { return int(ToInt64(CheckNumber(L, n))) }

func optInteger(L *lua.LState, n, def int) int {
	if L.Get(n) == lua.LNil {
		return def
	}
	return checkInteger(L, n)
}

// CheckString demands a string or a number, and gives its text.
func CheckString(L *lua.LState, n int) string {
	s, ok := ToString(L.Get(n))
	if !ok {
		typeError(L, n, "string")
	}
	return s
}

// OptString is CheckString with a default for nil and none.
func OptString(L *lua.LState, n int, def string) string {
	if L.Get(n) == lua.LNil {
		return def
	}
	return CheckString(L, n)
}

// ToNumber is lua_tonumber: numbers, and strings that read as numbers.
func ToNumber(v lua.LValue) (float64, bool) {
	switch v := v.(type) {
	case lua.LNumber:
		return float64(v), true
	case lua.LString:
		return ParseNumber(string(v))
	}
	return 0, false
}

// ToString is lua_tostring: strings, and numbers as Lua writes them.
func ToString(v lua.LValue) (string, bool) {
	switch v := v.(type) {
	case lua.LString:
		return string(v), true
	case lua.LNumber:
		return FormatNumber(float64(v)), true
	}
	return "", false
}
