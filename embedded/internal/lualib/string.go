package lualib

import (
	"math"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

func openString(L *lua.LState) *lua.LTable {
	t := set(L, L.NewTable(), map[string]lua.LGFunction{
		"byte": strByte, "char": strChar, "find": func(L *lua.LState) int { return find(L, true) }, "format": strFormat, "gmatch": strGmatch, "gsub": strGsub,
		"lower": func(L *lua.LState) int { return mapBytes(L, lower) }, "match": func(L *lua.LState) int { return find(L, false) },
		"rep": strRep, "upper": func(L *lua.LState) int { return mapBytes(L, upper) },
	})
	stock := L.GetGlobal("string").(*lua.LTable)
	for _, name := range []string{"len", "reverse", "sub"} {
		t.RawSetString(name, converted(L, stock.RawGetString(name), 1))
	}
	meta := L.NewTable()
	for event, op := range map[string]func(a, b float64) float64{
		"__add": func(a, b float64) float64 { return a + b }, "__sub": func(a, b float64) float64 { return a - b },
		"__mul": func(a, b float64) float64 { return a * b }, "__div": func(a, b float64) float64 { return a / b },
		"__mod": modulo, "__pow": math.Pow, "__unm": func(a, _ float64) float64 { return -a },
	} {
		meta.RawSetString(event, L.NewFunction(func(L *lua.LState) int { return arithmetic(L, event, op) }))
	}
	meta.RawSetString("__index", t)
	meta.RawSetString("__metatable", lua.LFalse)
	L.SetMetatable(lua.LString(""), meta)
	return t
}

// arithmetic implements an operator for operands that are not both numbers. event is the name of the
// operator's metamethod, such as "__mod". gopher-lua's own operator would read "010" as eight.
func arithmetic(L *lua.LState, event string, op func(a, b float64) float64) int {
	a, b := L.Get(1), L.Get(2)
	if event == "__unm" {
		b = a
	}
	x, okA := ToNumber(a)
	y, okB := ToNumber(b)
	if okA && okB {
		L.Push(lua.LNumber(op(x, y)))
		return 1
	}
	// In Lua 5.1, strings have no such metamethod, so Lua calls the metamethod of a table operand.
	// This loop does the same.
	for _, v := range []lua.LValue{a, b} {
		if t, ok := v.(*lua.LTable); ok {
			if f := L.GetMetaField(t, event); f != lua.LNil {
				L.Push(call(L, f, a, b))
				return 1
			}
		}
	}
	if okA {
		a = b
	}
	L.RaiseError("attempt to perform arithmetic on a %s value", a.Type())
	return 0
}

// converted wraps a gopher-lua function so that it converts its arguments as Lua does. texts is the
// number of string arguments, which come first; all other arguments are numbers.
func converted(L *lua.LState, f lua.LValue, texts int) lua.LValue {
	stock := f.(*lua.LFunction).GFunction
	return L.NewFunction(func(L *lua.LState) int {
		for i := 1; i <= L.GetTop(); i++ {
			switch v := L.Get(i).(type) {
			case lua.LNumber:
				if i <= texts {
					L.Replace(i, lua.LString(FormatNumber(float64(v))))
				}
			case lua.LString:
				if i > texts {
					L.Replace(i, lua.LNumber(number(L, i)))
				}
			}
		}
		return stock(L)
	})
}

func strByte(L *lua.LState) int {
	s := Text(L, 1)
	first := startIndex(optInteger(L, 2, 1), len(s))
	last := min(startIndex(optInteger(L, 3, first), len(s)), len(s))
	first = max(first, 1)
	if first > last {
		return 0
	}
	if last-first >= maxResults {
		L.RaiseError("string slice too long")
	}
	for i := first; i <= last; i++ {
		L.Push(lua.LNumber(s[i-1]))
	}
	return last - first + 1
}

func strChar(L *lua.LState) int {
	b := make([]byte, L.GetTop())
	for i := range b {
		c := integer(L, i+1)
		if c < 0 || c > 255 {
			L.ArgError(i+1, "invalid value")
		}
		b[i] = byte(c)
	}
	L.Push(lua.LString(b))
	return 1
}

// mapBytes implements lower and upper. gopher-lua's versions also change letters outside the C
// locale and bytes that are not valid UTF-8.
func mapBytes(L *lua.LState, f func(byte) byte) int {
	b := []byte(Text(L, 1))
	for i := range b {
		b[i] = f(b[i])
	}
	L.Push(lua.LString(b))
	return 1
}

func strRep(L *lua.LState) int {
	s, n := Text(L, 1), integer(L, 2)
	if n <= 0 || s == "" {
		L.Push(lua.LString(""))
		return 1
	}
	if n > MaxString/len(s) {
		checkLength(L, MaxString+1)
	}
	L.Push(lua.LString(strings.Repeat(s, n)))
	return 1
}
