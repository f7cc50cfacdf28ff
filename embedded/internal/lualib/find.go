package lualib

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

func startIndex(i, length int) int {
	if i < 0 {
		i += length + 1
	}
	return max(i, 0)
}

// find implements string.find, or string.match if positions is false.
func find(L *lua.LState, positions bool) int {
	s, p := Text(L, 1), Text(L, 2)
	from := min(max(startIndex(optInteger(L, 3, 1), len(s))-1, 0), len(s))
	m := &matcher{meter: meter{L: L}, src: s}
	var start, end int
	if positions && (lua.LVAsBool(L.Get(4)) || !strings.ContainsAny(p, "^$*+?.([%-")) {
		start = strings.Index(s[from:], p)
		if start >= 0 {
			start += from
		}
		end = start + len(p)
	} else {
		var anchored bool
		m.pat, anchored = strings.CutPrefix(p, "^")
		start, end = m.search(from, anchored)
	}
	if start < 0 {
		L.Push(lua.LNil)
		return 1
	}
	if !positions {
		return m.push(start, end, true)
	}
	L.Push(lua.LNumber(start + 1))
	L.Push(lua.LNumber(end))
	return m.push(start, end, false) + 2
}

func strGmatch(L *lua.LState) int {
	m := &matcher{src: Text(L, 1), pat: Text(L, 2)}
	pos := 0
	L.Push(L.NewFunction(func(L *lua.LState) int {
		m.L = L
		start, end := m.search(pos, false)
		if start < 0 {
			return 0
		}
		pos = max(end, start+1)
		return m.push(start, end, true)
	}))
	return 1
}

func strGsub(L *lua.LState) int {
	src := Text(L, 1)
	p, anchored := strings.CutPrefix(Text(L, 2), "^")
	repl := L.Get(3)
	L.CheckTypes(3, lua.LTNumber, lua.LTString, lua.LTFunction, lua.LTTable)
	limit := optInteger(L, 4, len(src)+1)
	m := &matcher{meter: meter{L: L}, src: src, pat: p}
	var b strings.Builder
	copied, from, n := 0, 0, 0
	for n < limit {
		start, end := m.search(from, anchored)
		if start < 0 {
			break
		}
		n++
		b.WriteString(src[copied:start])
		m.substitute(&b, repl, start, end)
		checkLength(L, b.Len())
		copied, from = end, max(end, start+1)
		if anchored {
			break
		}
	}
	b.WriteString(src[copied:])
	L.Push(lua.LString(b.String()))
	L.Push(lua.LNumber(n))
	return 2
}

// substitute writes to b the text that replaces the match src[s:e]. repl is the third argument of
// string.gsub.
func (m *matcher) substitute(b *strings.Builder, repl lua.LValue, s, e int) {
	var v lua.LValue
	switch r := repl.(type) {
	case *lua.LFunction:
		m.L.Push(r)
		m.L.Call(m.push(s, e, true), 1)
		v = m.L.Get(-1)
		m.L.Pop(1)
	case *lua.LTable:
		v = m.L.GetTable(r, m.value(0, s, e))
	default:
		text, _ := ToText(repl)
		m.expand(b, text, s, e)
		return
	}
	if !lua.LVAsBool(v) {
		b.WriteString(m.src[s:e])
		return
	}
	text, ok := ToText(v)
	if !ok {
		m.fail("invalid replacement value (a %s)", v.Type())
	}
	b.WriteString(text)
}

// expand writes text. It replaces %0 with the match src[s:e], and %1 to %9 with captures.
func (m *matcher) expand(b *strings.Builder, text string, s, e int) {
	for {
		plain, rest, found := strings.Cut(text, "%")
		b.WriteString(plain)
		checkLength(m.L, b.Len())
		if !found {
			return
		}
		switch c := byteAt(rest, 0); {
		case c == '0':
			b.WriteString(m.src[s:e])
		case isDigit(c):
			capture, _ := ToText(m.value(int(c-'1'), s, e))
			b.WriteString(capture)
		default:
			b.WriteByte(c) // a NUL byte for a % at the end, as in Lua
		}
		text = rest[min(1, len(rest)):]
	}
}
