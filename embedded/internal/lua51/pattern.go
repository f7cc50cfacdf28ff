package lua51

import (
	"fmt"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

const (
	maxCaptures     = 32
	captureOpen     = -1
	capturePosition = -2
	maxMatchDepth   = 200 // of matches within one another, as Redis's Lua has it
)

// matcher is PUC's pattern matching (lstrlib.c), position by position.
type matcher struct {
	L       *lua.LState
	budget  *budget
	src     string
	pat     string
	level   int
	depth   int
	capture [maxCaptures]struct{ start, len int }
}

func (m *matcher) fail(format string, args ...any) { Errorf(m.L, format, args...) }

func (m *matcher) step() {
	if m.budget.work(1) {
		m.fail("pattern matching ran too long")
	}
}

// classEnd is the index after the single character class at p.
func (m *matcher) classEnd(p int) int {
	c := m.pat[p]
	p++
	switch c {
	case '%':
		if p >= len(m.pat) {
			m.fail("malformed pattern (ends with '%%')")
		}
		return p + 1
	case '[':
		if p < len(m.pat) && m.pat[p] == '^' {
			p++
		}
		for first := true; first || p >= len(m.pat) || m.pat[p] != ']'; first = false {
			if p >= len(m.pat) {
				m.fail("malformed pattern (missing ']')")
			}
			c := m.pat[p]
			p++
			if c == '%' && p < len(m.pat) {
				p++
			}
		}
		return p + 1
	}
	return p
}

func singleClass(c, class byte) bool {
	var r bool
	switch lower(class) {
	case 'a':
		r = isAlpha(c)
	case 'c':
		r = isCntrl(c)
	case 'd':
		r = isDigit(c)
	case 'l':
		r = isLower(c)
	case 'p':
		r = isPunct(c)
	case 's':
		r = isSpace(c)
	case 'u':
		r = isUpper(c)
	case 'w':
		r = isAlnum(c)
	case 'x':
		r = isHex(c)
	case 'z':
		r = c == 0
	default:
		return class == c
	}
	return r != isUpper(class)
}

// inSet matches c against the set [p..ec], ec being the index of its ']'.
func (m *matcher) inSet(c byte, p, ec int) bool {
	yes := true
	if m.pat[p+1] == '^' {
		yes = false
		p++
	}
	for p++; p < ec; p++ {
		switch {
		case m.pat[p] == '%':
			p++
			if singleClass(c, m.pat[p]) {
				return yes
			}
		case p+2 < ec && m.pat[p+1] == '-':
			if m.pat[p] <= c && c <= m.pat[p+2] {
				return yes
			}
			p += 2
		case m.pat[p] == c:
			return yes
		}
	}
	return !yes
}

// single tells whether the byte at s matches the class [p, ep).
func (m *matcher) single(s, p, ep int) bool {
	if s >= len(m.src) {
		return false
	}
	c := m.src[s]
	switch m.pat[p] {
	case '.':
		return true
	case '%':
		return singleClass(c, m.pat[p+1])
	case '[':
		return m.inSet(c, p, ep-1)
	}
	return m.pat[p] == c
}

// match gives the end of a match of the pattern from p at s, or -1.
func (m *matcher) match(s, p int) int {
	m.depth++
	defer func() { m.depth-- }()
	if m.depth > maxMatchDepth {
		m.fail("pattern too complex")
	}
	for {
		m.step()
		if p >= len(m.pat) {
			return s
		}
		switch c := m.pat[p]; {
		case c == '(':
			if p+1 < len(m.pat) && m.pat[p+1] == ')' {
				return m.startCapture(s, p+2, capturePosition)
			}
			return m.startCapture(s, p+1, captureOpen)
		case c == ')':
			return m.endCapture(s, p+1)
		case c == '%' && p+1 < len(m.pat) && m.pat[p+1] == 'b':
			if s = m.balance(s, p+2); s < 0 {
				return -1
			}
			p += 4
			continue
		case c == '%' && p+1 < len(m.pat) && m.pat[p+1] == 'f':
			p += 2
			if p >= len(m.pat) || m.pat[p] != '[' {
				m.fail("missing '[' after '%%f' in pattern")
			}
			ep := m.classEnd(p)
			var before, at byte
			if s > 0 {
				before = m.src[s-1]
			}
			if s < len(m.src) {
				at = m.src[s]
			}
			if m.inSet(before, p, ep-1) || !m.inSet(at, p, ep-1) {
				return -1
			}
			p = ep
			continue
		case c == '%' && p+1 < len(m.pat) && isDigit(m.pat[p+1]):
			if s = m.backReference(s, m.pat[p+1]); s < 0 {
				return -1
			}
			p += 2
			continue
		case c == '$' && p+1 == len(m.pat):
			if s == len(m.src) {
				return s
			}
			return -1
		}
		ep := m.classEnd(p)
		here := m.single(s, p, ep)
		var suffix byte
		if ep < len(m.pat) {
			suffix = m.pat[ep]
		}
		switch suffix {
		case '?':
			if here {
				if e := m.match(s+1, ep+1); e >= 0 {
					return e
				}
			}
			p = ep + 1
			continue
		case '*':
			return m.maxExpand(s, p, ep)
		case '+':
			if !here {
				return -1
			}
			return m.maxExpand(s+1, p, ep)
		case '-':
			for {
				m.step()
				if e := m.match(s, ep+1); e >= 0 {
					return e
				}
				if !m.single(s, p, ep) {
					return -1
				}
				s++
			}
		}
		if !here {
			return -1
		}
		s++
		p = ep
	}
}

func (m *matcher) maxExpand(s, p, ep int) int {
	i := 0
	for m.single(s+i, p, ep) {
		i++
	}
	for ; i >= 0; i-- {
		m.step()
		if e := m.match(s+i, ep+1); e >= 0 {
			return e
		}
	}
	return -1
}

func (m *matcher) startCapture(s, p, what int) int {
	if m.level >= maxCaptures {
		m.fail("too many captures")
	}
	m.capture[m.level].start, m.capture[m.level].len = s, what
	m.level++
	e := m.match(s, p)
	if e < 0 {
		m.level--
	}
	return e
}

func (m *matcher) endCapture(s, p int) int {
	l := m.level - 1
	for ; l >= 0; l-- {
		if m.capture[l].len == captureOpen {
			break
		}
	}
	if l < 0 {
		m.fail("invalid pattern capture")
	}
	m.capture[l].len = s - m.capture[l].start
	e := m.match(s, p)
	if e < 0 {
		m.capture[l].len = captureOpen
	}
	return e
}

func (m *matcher) balance(s, p int) int {
	if p+1 >= len(m.pat) {
		m.fail("unbalanced pattern")
	}
	if s >= len(m.src) || m.src[s] != m.pat[p] {
		return -1
	}
	open, closing := m.pat[p], m.pat[p+1]
	depth := 1
	for s++; s < len(m.src); s++ {
		switch m.src[s] {
		case closing:
			if depth--; depth == 0 {
				return s + 1
			}
		case open:
			depth++
		}
	}
	return -1
}

func (m *matcher) backReference(s int, digit byte) int {
	l := int(digit) - '1'
	if l < 0 || l >= m.level || m.capture[l].len == captureOpen {
		m.fail("invalid capture index")
	}
	c := m.capture[l]
	if c.len >= 0 && strings.HasPrefix(m.src[s:], m.src[c.start:c.start+c.len]) {
		return s + c.len
	}
	return -1
}

// value is capture i of a match of src[s:e]; with no captures, capture 0 is
// the whole match.
func (m *matcher) value(i, s, e int) lua.LValue {
	if i >= m.level {
		if i != 0 {
			m.fail("invalid capture index")
		}
		return lua.LString(m.src[s:e])
	}
	c := m.capture[i]
	switch c.len {
	case captureOpen:
		m.fail("unfinished capture")
	case capturePosition:
		return lua.LNumber(c.start + 1)
	}
	return lua.LString(m.src[c.start : c.start+c.len])
}

// push pushes all captures, or the whole match if there are none and whole.
func (m *matcher) push(s, e int, whole bool) int {
	n := m.level
	if n == 0 && whole {
		n = 1
	}
	for i := 0; i < n; i++ {
		m.L.Push(m.value(i, s, e))
	}
	return n
}

func (rt *Runtime) newMatcher(L *lua.LState, src, pat string) *matcher {
	return &matcher{L: L, budget: rt.budget, src: src, pat: pat}
}

func startIndex(i, length int) int {
	if i < 0 {
		i += length + 1
	}
	if i < 0 {
		return 0
	}
	return i
}

func (rt *Runtime) find(L *lua.LState, find bool) int {
	s, p := CheckString(L, 1), CheckString(L, 2)
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
	m := rt.newMatcher(L, s, strings.TrimPrefix(p, "^"))
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

func (rt *Runtime) strGmatch(L *lua.LState) int {
	m := rt.newMatcher(L, CheckString(L, 1), CheckString(L, 2))
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

func (rt *Runtime) strGsub(L *lua.LState) int {
	src, p := CheckString(L, 1), CheckString(L, 2)
	repl := L.Get(3)
	switch repl.Type() {
	case lua.LTNumber, lua.LTString, lua.LTFunction, lua.LTTable:
	default:
		ArgError(L, 3, "string/function/table expected")
	}
	limit := optInteger(L, 4, len(src)+1)
	anchor := strings.HasPrefix(p, "^")
	m := rt.newMatcher(L, src, strings.TrimPrefix(p, "^"))
	var b strings.Builder
	at, n := 0, 0
	for n < limit {
		m.level = 0
		e := m.match(at, 0)
		if e >= 0 {
			n++
			rt.substitute(L, m, &b, repl, at, e)
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

func (rt *Runtime) substitute(L *lua.LState, m *matcher, b *strings.Builder, repl lua.LValue, s, e int) {
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
		text, _ := ToString(repl)
		for i := 0; i < len(text); i++ {
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
				t, _ := ToString(m.value(int(text[i]-'1'), s, e))
				b.WriteString(t)
			}
		}
		return
	}
	if !lua.LVAsBool(v) {
		b.WriteString(m.src[s:e])
		return
	}
	text, ok := ToString(v)
	if !ok {
		Raise(L, fmt.Sprintf("%sinvalid replacement value (a %s)", Where(L, 1), v.Type()))
	}
	b.WriteString(text)
}
