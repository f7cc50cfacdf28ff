package lua51

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

func (rt *Runtime) openString() {
	t := rt.L.NewTable()
	rt.globals.RawSetString("string", t)
	rt.Functions(t, map[string]lua.LGFunction{
		"byte":    strByte,
		"char":    strChar,
		"dump":    strDump,
		"find":    func(L *lua.LState) int { return rt.find(L, true) },
		"format":  rt.strFormat,
		"gmatch":  rt.strGmatch,
		"gsub":    rt.strGsub,
		"len":     strLen,
		"lower":   func(L *lua.LState) int { return mapBytes(L, lower) },
		"match":   func(L *lua.LState) int { return rt.find(L, false) },
		"rep":     rt.strRep,
		"reverse": strReverse,
		"sub":     strSub,
		"upper":   func(L *lua.LState) int { return mapBytes(L, upper) },
	})
	t.RawSetString("gfind", t.RawGetString("gmatch"))
}

func strByte(L *lua.LState) int {
	s := CheckString(L, 1)
	i := startIndex(optInteger(L, 2, 1), len(s))
	e := startIndex(optInteger(L, 3, i), len(s))
	if i <= 0 {
		i = 1
	}
	if e > len(s) {
		e = len(s)
	}
	if i > e {
		return 0
	}
	n := e - i + 1
	if n > maxResults {
		Errorf(L, "string slice too long")
	}
	for ; i <= e; i++ {
		L.Push(lua.LNumber(s[i-1]))
	}
	return n
}

func strChar(L *lua.LState) int {
	b := make([]byte, L.GetTop())
	for i := range b {
		c := CheckInt(L, i+1)
		if c < 0 || c > 255 {
			ArgError(L, i+1, "invalid value")
		}
		b[i] = byte(c)
	}
	L.Push(lua.LString(b))
	return 1
}

func strDump(L *lua.LState) int {
	if CheckFunction(L, 1).IsG {
		Errorf(L, "unable to dump given function")
	}
	Errorf(L, "the embedded server refuses string.dump: it has no bytecode that Redis could read")
	return 0
}

func strLen(L *lua.LState) int {
	L.Push(lua.LNumber(len(CheckString(L, 1))))
	return 1
}

func mapBytes(L *lua.LState, f func(byte) byte) int {
	b := []byte(CheckString(L, 1))
	for i := range b {
		b[i] = f(b[i])
	}
	L.Push(lua.LString(b))
	return 1
}

// maxString bounds what one string.rep makes, as a server's memory would.
const maxString = 512 << 20

func (rt *Runtime) strRep(L *lua.LState) int {
	s := CheckString(L, 1)
	n := CheckInt(L, 2)
	if n <= 0 || s == "" {
		L.Push(lua.LString(""))
		return 1
	}
	if n > maxString/len(s) {
		Errorf(L, "not enough memory")
	}
	L.Push(lua.LString(strings.Repeat(s, n)))
	return 1
}

func strReverse(L *lua.LState) int {
	s := CheckString(L, 1)
	b := make([]byte, len(s))
	for i := range b {
		b[i] = s[len(s)-1-i]
	}
	L.Push(lua.LString(b))
	return 1
}

func strSub(L *lua.LState) int {
	s := CheckString(L, 1)
	i := startIndex(checkInteger(L, 2), len(s))
	e := startIndex(optInteger(L, 3, -1), len(s))
	if i < 1 {
		i = 1
	}
	if e > len(s) {
		e = len(s)
	}
	if i > e {
		L.Push(lua.LString(""))
	} else {
		L.Push(lua.LString(s[i-1 : e]))
	}
	return 1
}
