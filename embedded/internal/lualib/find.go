package lualib

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

func startIndex(i, length int) int {
	if i < 0 {
		i += length + 1
	}
	if i < 0 {
		return 0
	}
	return i
}

func find(L *lua.LState, find bool) int {
	s, p := Text(L, 1), Text(L, 2)
	init := startIndex(optInteger(L, 3, 1), len(s)) - 1
	if init < 0 {
		init = 0
	} else if init > len(s) {
		init = len(s)
	}
	if find && (lua.LVAsBool(L.Get(4)) || !strings.ContainsAny(p, "^$*+?.([%-")) {
		i := strings.Index(s[init:], p)
		if i < 0 {
			L.Push(lua.LNil)
			return 1
		}
		L.Push(lua.LNumber(init + i + 1))
		L.Push(lua.LNumber(init + i + len(p)))
		return 2
	}
	anchor := strings.HasPrefix(p, "^")
	m := &matcher{meter: meter{L: L}, src: s, pat: strings.TrimPrefix(p, "^")}
	for at := init; ; at++ {
		m.level = 0
		if e := m.match(at, 0); e >= 0 {
			if find {
				L.Push(lua.LNumber(at + 1))
				L.Push(lua.LNumber(e))
				return m.push(at, e, false) + 2
			}
			return m.push(at, e, true)
		}
		if anchor || at >= len(s) {
			break
		}
	}
	L.Push(lua.LNil)
	return 1
}

func strGmatch(L *lua.LState) int {
	m := &matcher{meter: meter{L: L}, src: Text(L, 1), pat: Text(L, 2)}
	pos := 0
	L.Push(L.NewFunction(func(L *lua.LState) int {
		m.L = L
		for at := pos; at <= len(m.src); at++ {
			m.level = 0
			if e := m.match(at, 0); e >= 0 {
				pos = e
				if e == at {
					pos++
				}
				return m.push(at, e, true)
			}
		}
		return 0
	}))
	return 1
}

func strGsub(L *lua.LState) int {
	src, p := Text(L, 1), Text(L, 2)
	repl := L.Get(3)
	switch repl.Type() {
	case lua.LTNumber, lua.LTString, lua.LTFunction, lua.LTTable:
	default:
		L.ArgError(3, "string/function/table expected")
	}
	limit := optInteger(L, 4, len(src)+1)
	anchor := strings.HasPrefix(p, "^")
	m := &matcher{meter: meter{L: L}, src: src, pat: strings.TrimPrefix(p, "^")}
	var b strings.Builder
	at, n := 0, 0
	for n < limit {
		m.level = 0
		e := m.match(at, 0)
		if e >= 0 {
			n++
			substitute(L, m, &b, repl, at, e)
			checkLength(L, b.Len())
		}
		switch {
		case e > at:
			at = e
		case at < len(src):
			b.WriteByte(src[at])
			at++
		default:
			at = len(src) + 1
		}
		if at > len(src) || anchor {
			break
		}
	}
	if at < len(src) {
		b.WriteString(src[at:])
	}
	L.Push(lua.LString(b.String()))
	L.Push(lua.LNumber(n))
	return 2
}

func substitute(L *lua.LState, m *matcher, b *strings.Builder, repl lua.LValue, s, e int) {
	var v lua.LValue
	switch r := repl.(type) {
	case *lua.LFunction:
		L.Push(r)
		n := m.push(s, e, true)
		L.Call(n, 1)
		v = L.Get(-1)
		L.Pop(1)
	case *lua.LTable:
		v = L.GetTable(r, m.value(0, s, e))
	default:
		text, _ := ToText(repl)
		for i := 0; i < len(text); i++ {
			checkLength(L, b.Len())
			if text[i] != '%' {
				b.WriteByte(text[i])
				continue
			}
			i++
			switch {
			case i >= len(text):
				b.WriteByte(0)
			case !isDigit(text[i]):
				b.WriteByte(text[i])
			case text[i] == '0':
				b.WriteString(m.src[s:e])
			default:
				t, _ := ToText(m.value(int(text[i]-'1'), s, e))
				b.WriteString(t)
			}
		}
		return
	}
	if !lua.LVAsBool(v) {
		b.WriteString(m.src[s:e])
		return
	}
	text, ok := ToText(v)
	if !ok {
		L.RaiseError("invalid replacement value (a %s)", v.Type())
	}
	b.WriteString(text)
}
