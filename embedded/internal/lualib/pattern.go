package lualib

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

const (
	maxCaptures     = 32
	captureOpen     = -1
	capturePosition = -2
	maxMatchDepth   = 200 // of nested matches, as in Redis's Lua
)

// matcher implements the pattern matching of PUC Lua (lstrlib.c), position by position.
type matcher struct {
	meter
	src     string
	pat     string
	level   int
	depth   int
	capture [maxCaptures]struct{ start, len int }
}

func (m *matcher) fail(format string, args ...any) { m.L.RaiseError(format, args...) }

// classEnd returns the index after the single character class at p.
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
			m.step()
		}
		return p + 1
	}
	return p
}

var classes = [256]func(c byte) bool{
	'a': isAlpha, 'c': isCntrl, 'd': isDigit, 'l': isLower, 'p': isPunct, 's': isSpace, 'u': isUpper, 'w': isAlnum, 'x': isHex,
	'z': func(c byte) bool { return c == 0 },
}

func singleClass(c, class byte) bool {
	if in := classes[lower(class)]; in != nil {
		return in(c) != isUpper(class)
	}
	return class == c
}

// inSet reports whether c is in the set [p..ec], where ec is the index of its ']'.
func (m *matcher) inSet(c byte, p, ec int) bool {
	yes := true
	if m.pat[p+1] == '^' {
		yes = false
		p++
	}
	for p++; p < ec; p++ {
		m.step()
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

// single reports whether the byte at s matches the class [p, ep).
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

// match returns the end of a match at s of the pattern from p on, or -1.
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
		m.step()
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
		m.step()
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
	m.steps(max(c.len, 0))
	if c.len >= 0 && strings.HasPrefix(m.src[s:], m.src[c.start:c.start+c.len]) {
		return s + c.len
	}
	return -1
}

// value returns capture i of a match of src[s:e]. Without captures, capture 0 is the whole match.
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

// push pushes all captures. If there are none and whole is true, it pushes the whole match.
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
