// Package lualib provides the Lua library that functions see. It is gopher-lua's library, with
// replacements for functions that behave differently from Redis's Lua 5.1.
package lualib

import (
	"math"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"
)

// MaxString is the maximum length of a string in bytes. It protects the memory of the process.
const MaxString = 64 << 20

// maxArray is the largest key for which gopher-lua extends a table's array, element by element.
// Larger keys are hashed, and the # operator does not count them. With gopher-lua's own maximum, a
// library that sets t[30000000] would make the process use 480 MB. gopher-lua has one maximum for the
// whole process, so the first engine sets it, and not the import of this package.
const maxArray = 1 << 22

var limitArrays = sync.OnceFunc(func() { lua.MaxArrayIndex = maxArray })

// Open returns the table of globals for library code, without pcall and redis. The caller must make
// it read-only.
func Open(L *lua.LState) *lua.LTable {
	limitArrays()
	for _, open := range []lua.LGFunction{lua.OpenBase, lua.OpenString, lua.OpenTable, lua.OpenMath} {
		L.Push(L.NewFunction(open))
		L.Call(0, 0)
	}
	g := L.NewTable()
	take(L.G.Global, g, "_VERSION", "assert", "error", "getmetatable", "ipairs", "next", "pairs", "rawequal", "rawget", "select")
	set(L, g, map[string]lua.LGFunction{
		"rawset": baseRawSet, "setmetatable": baseSetMetatable, "tonumber": baseToNumber, "tostring": baseToString,
		"type": baseType, "unpack": baseUnpack,
	})
	g.RawSetString("string", openString(L))
	g.RawSetString("table", openTable(L))
	g.RawSetString("math", openMath(L))
	g.RawSetString("struct", set(L, L.NewTable(), map[string]lua.LGFunction{"pack": structPack, "unpack": structUnpack}))
	return g
}

// take copies functions of gopher-lua's library.
func take(from, to *lua.LTable, names ...string) {
	for _, name := range names {
		to.RawSetString(name, from.RawGetString(name))
	}
}

func set(L *lua.LState, t *lua.LTable, functions map[string]lua.LGFunction) *lua.LTable {
	for name, f := range functions {
		t.RawSetString(name, L.NewFunction(f))
	}
	return t
}

// Text returns an argument that must be a string or a number, as a string.
func Text(L *lua.LState, n int) string {
	s, ok := ToText(L.Get(n))
	if !ok {
		L.TypeError(n, lua.LTString)
	}
	return s
}

// ToText is like lua_tostring: it converts strings and numbers. It formats numbers as Lua does.
func ToText(v lua.LValue) (string, bool) {
	switch v := v.(type) {
	case lua.LString:
		return string(v), true
	case lua.LNumber:
		return FormatNumber(float64(v)), true
	}
	return "", false
}

// ToNumber is like lua_tonumber: it converts numbers and strings that contain a number.
func ToNumber(v lua.LValue) (float64, bool) {
	switch v := v.(type) {
	case lua.LNumber:
		return float64(v), true
	case lua.LString:
		return ParseNumber(string(v))
	}
	return 0, false
}

func number(L *lua.LState, n int) float64 {
	v, ok := ToNumber(L.Get(n))
	if !ok {
		L.TypeError(n, lua.LTNumber)
	}
	return v
}

func integer(L *lua.LState, n int) int { return int(ToInt64(number(L, n))) }

func optInteger(L *lua.LState, n, otherwise int) int {
	if L.Get(n) == lua.LNil {
		return otherwise
	}
	return integer(L, n)
}

// call calls a function, and returns its first result.
func call(L *lua.LState, f lua.LValue, args ...lua.LValue) lua.LValue {
	L.Push(f)
	for _, v := range args {
		L.Push(v)
	}
	L.Call(len(args), 1)
	result := L.Get(-1)
	L.Pop(1)
	return result
}

func checkLength(L *lua.LState, n int) {
	if n > MaxString {
		L.RaiseError("the embedded server makes no string of more than %d MiB", MaxString>>20)
	}
}

// meter counts the steps of a loop in Go, and raises an error in Lua when the call's time is used
// up. A step takes about as long as examining one byte.
type meter struct {
	L *lua.LState
	n int // steps since the last check of the call's time
}

func (m *meter) step() { m.steps(1) }

func (m *meter) steps(n int) {
	if m.n += n; m.n >= 4096 {
		m.n = 0
		if ctx := m.L.Context(); ctx != nil && ctx.Err() != nil {
			m.L.RaiseError("%s", ctx.Err().Error())
		}
	}
}

// Concat implements the .. operator for a chain of operands, from the right.
func Concat(L *lua.LState) int {
	var pieces [8]string
	parts, length := pieces[:0], 0
	top := L.GetTop()
	for i := 1; i <= top; i++ {
		s, ok := ToText(L.Get(i))
		if !ok {
			return concatMeta(L, top)
		}
		length += len(s)
		parts = append(parts, s)
	}
	checkLength(L, length)
	L.Push(lua.LString(strings.Join(parts, "")))
	return 1
}

// concatMeta implements Concat for the operands from 1 to top if not all are strings or numbers. It
// joins them pair by pair, with metamethods.
func concatMeta(L *lua.LState, top int) int {
	right := L.Get(top)
	for i := top - 1; i >= 1; i-- {
		left := L.Get(i)
		a, okA := ToText(left)
		b, okB := ToText(right)
		if okA && okB {
			checkLength(L, len(a)+len(b))
			right = lua.LString(a + b)
			continue
		}
		f := L.GetMetaField(left, "__concat")
		if f == lua.LNil {
			f = L.GetMetaField(right, "__concat")
		}
		if f == lua.LNil {
			wrong := left
			if okA {
				wrong = right
			}
			L.RaiseError("attempt to concatenate a %s value", wrong.Type())
		}
		right = call(L, f, left, right)
	}
	L.Push(right)
	return 1
}

// Modulo implements the % operator.
func Modulo(L *lua.LState) int {
	a, okA := L.Get(1).(lua.LNumber)
	b, okB := L.Get(2).(lua.LNumber)
	if !okA || !okB {
		return arithmetic(L, "__mod", modulo)
	}
	L.Push(lua.LNumber(modulo(float64(a), float64(b))))
	return 1
}

func modulo(a, b float64) float64 { return a - math.Floor(a/b)*b }

func baseToNumber(L *lua.LState) int {
	var v float64
	var ok bool
	if base := optInteger(L, 2, 10); base == 10 {
		v, ok = ToNumber(L.CheckAny(1))
	} else {
		s := Text(L, 1)
		if base < 2 || base > 36 {
			L.ArgError(2, "base out of range")
		}
		v, ok = parseBase(s, base)
	}
	if ok {
		L.Push(lua.LNumber(v))
	} else {
		L.Push(lua.LNil)
	}
	return 1
}

func baseToString(L *lua.LState) int {
	v := L.CheckAny(1)
	if n, ok := v.(lua.LNumber); ok {
		v = lua.LString(FormatNumber(float64(n)))
	}
	L.Push(L.ToStringMeta(v))
	return 1
}

// View returns a read-only view of a table. To Lua code, the view is a table that cannot be changed
// or iterated over.
func View(L *lua.LState, t *lua.LTable) *lua.LUserData {
	meta := L.NewTable()
	meta.RawSetString("__index", t)
	meta.RawSetString("__newindex", L.NewFunction(ReadOnly))
	meta.RawSetString("__metatable", lua.LFalse)
	view := L.NewUserData()
	view.Value, view.Metatable = t, meta
	return view
}

// ReadOnly raises the error that Redis raises for a change to a read-only table.
func ReadOnly(L *lua.LState) int {
	L.RaiseError("Attempt to modify a readonly table")
	return 0
}

func baseType(L *lua.LState) int {
	v := L.CheckAny(1)
	kind := v.Type()
	if _, ok := v.(*lua.LUserData); ok {
		kind = lua.LTTable // a View, because there is no other userdata
	}
	L.Push(lua.LString(kind.String()))
	return 1
}

func baseSetMetatable(L *lua.LState) int {
	t := L.CheckTable(1)
	if L.GetTop() < 2 {
		L.TypeError(2, lua.LTTable)
	}
	L.CheckTypes(2, lua.LTNil, lua.LTTable)
	if old, ok := t.Metatable.(*lua.LTable); ok && old.RawGetString("__metatable") != lua.LNil {
		L.RaiseError("cannot change a protected metatable")
	}
	t.Metatable = L.Get(2)
	L.SetTop(1)
	return 1
}

func baseRawSet(L *lua.LState) int {
	L.RawSet(L.CheckTable(1), L.CheckAny(2), L.CheckAny(3))
	L.SetTop(1)
	return 1
}

const maxResults = 8000 // Lua's LUAI_MAXCSTACK

func baseUnpack(L *lua.LState) int {
	t := L.CheckTable(1)
	first, last := optInteger(L, 2, 1), optInteger(L, 3, t.Len())
	if first > last {
		return 0
	}
	if n := last - first; n < 0 || n >= maxResults {
		L.RaiseError("too many results to unpack")
	}
	for i := first; i <= last; i++ {
		L.Push(t.RawGet(lua.LNumber(i)))
	}
	return last - first + 1
}
