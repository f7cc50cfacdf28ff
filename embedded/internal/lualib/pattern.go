package lualib

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

const (
	maxCaptures     = 32
	captureOpen     = -1
	capturePosition = -2
	maxMatchDepth   = 200 // maximum number of nested matches, as in Redis's Lua
)

// matcher matches Lua patterns. It follows Lua's C implementation (lstrlib.c) step by step, so that
// its results are the same.
type matcher struct {
	meter
	src     string
	pat     string
	level   int
	depth   int
	capture [maxCaptures]struct{ start, len int }
}

func (m *matcher) fail(format string, args ...any) { m.L.RaiseError(format, args...) }

var classes = [256]func(c byte) bool{
	'a': isAlpha, 'c': isCntrl, 'd': isDigit, 'l': isLower, 'p': isPunct, 's': isSpace, 'u': isUpper, 'w': isAlnum, 'x': isHex,
	'z': func(c byte) bool { return c == 0 },
}

func inClass(c, class byte) bool {
	if in := classes[lower(class)]; in != nil {
		return in(c) != isUpper(class)
	}
	return class == c
}

// byteAt returns s[i], or 0 if i is after the end.
func byteAt(s string, i int) byte {
	if i < len(s) {
		return s[i]
	}
	return 0
}

// set reads the set at pat[p], such as [a-z%s]. It returns the index after the set, and whether the
// set contains c.
func (m *matcher) set(p int, c byte) (end int, in bool) {
	p++
	listed := byteAt(m.pat, p) != '^'
	if !listed {
		p++
	}
	last := p // will be the index of the closing bracket, which cannot be the first character
	for last == p || byteAt(m.pat, last) != ']' {
		m.step()
		if last >= len(m.pat) {
			m.fail("malformed pattern (missing ']')")
		}
		if m.pat[last] == '%' && last+1 < len(m.pat) {
			last++
		}
		last++
	}
	for ; p < last; p++ {
		m.step()
		found := false
		switch {
		case m.pat[p] == '%':
			p++
			found = inClass(c, m.pat[p])
		case p+2 < last && m.pat[p+1] == '-':
			found = m.pat[p] <= c && c <= m.pat[p+2]
			p += 2
		default:
			found = m.pat[p] == c
		}
		if found {
			return last + 1, listed
		}
	}
	return last + 1, !listed
}

// single reads the class at pat[p], which matches one byte. It returns the index after the class,
// and whether the class contains src[s].
func (m *matcher) single(s, p int) (end int, in bool) {
	end, c := p+1, byteAt(m.src, s)
	switch m.pat[p] {
	case '.':
		in = true
	case '%':
		if end == len(m.pat) {
			m.fail("malformed pattern (ends with '%%')")
		}
		in = inClass(c, m.pat[end])
		end++
	case '[':
		end, in = m.set(p, c)
	default:
		in = m.pat[p] == c
	}
	return end, in && s < len(m.src)
}

// search returns the first match in src that starts at the index from. Unless anchored is true, the
// match may also start later. start is -1 if nothing matches.
func (m *matcher) search(from int, anchored bool) (start, end int) {
	for start = from; start <= len(m.src); start++ {
		m.level = 0
		if end = m.match(start, 0); end >= 0 {
			return start, end
		}
		if anchored {
			break
		}
	}
	return -1, -1
}

// match matches pat[p:] with the beginning of src[s:]. It returns the end of the match in src, or
// -1.
func (m *matcher) match(s, p int) int {
	m.depth++
	defer func() { m.depth-- }()
	if m.depth > maxMatchDepth {
		m.fail("pattern too complex")
	}
	for s >= 0 {
		m.step()
		if p >= len(m.pat) {
			return s
		}
		next := byteAt(m.pat, p+1)
		switch c := m.pat[p]; {
		case c == '(' && next == ')':
			return m.startCapture(s, p+2, capturePosition)
		case c == '(':
			return m.startCapture(s, p+1, captureOpen)
		case c == ')':
			return m.endCapture(s, p+1)
		case c == '$' && p+1 == len(m.pat):
			if s < len(m.src) {
				return -1
			}
			return s
		case c == '%' && next == 'b':
			s, p = m.balance(s, p+2), p+4
		case c == '%' && next == 'f':
			s, p = m.frontier(s, p+2)
		case c == '%' && isDigit(next):
			s, p = m.backReference(s, next), p+2
		default:
			end, here := m.single(s, p)
			suffix := byteAt(m.pat, end)
			switch {
			case suffix == '*' || suffix == '+' && here:
				return m.maxExpand(s, p, end)
			case suffix == '-':
				return m.minExpand(s, p, end)
			case suffix == '?':
				if here {
					if e := m.match(s+1, end+1); e >= 0 {
						return e
					}
				}
				p = end + 1
			case here:
				s, p = s+1, end
			default:
				return -1
			}
		}
	}
	return -1
}

// maxExpand matches as many characters of the class pat[p:end] as possible, followed by the rest of
// the pattern. If the class is followed by +, the caller has already matched the first character.
func (m *matcher) maxExpand(s, p, end int) int {
	i := s
	for _, in := m.single(i, p); in; _, in = m.single(i, p) {
		m.step()
		i++
	}
	if m.pat[end] == '+' {
		s++
	}
	for ; i >= s; i-- {
		m.step()
		if e := m.match(i, end+1); e >= 0 {
			return e
		}
	}
	return -1
}

func (m *matcher) minExpand(s, p, end int) int {
	for {
		m.step()
		if e := m.match(s, end+1); e >= 0 {
			return e
		}
		if _, in := m.single(s, p); !in {
			return -1
		}
		s++
	}
}

// frontier implements %f for the set at pat[p]. Its first result is the index after the set. The
// second result is s if the set contains src[s] but not the byte before it, and -1 otherwise. The
// bytes before and after src count as NUL.
func (m *matcher) frontier(s, p int) (int, int) {
	if byteAt(m.pat, p) != '[' {
		m.fail("missing '[' after '%%f' in pattern")
	}
	var before byte
	if s > 0 {
		before = m.src[s-1]
	}
	_, was := m.set(p, before)
	end, is := m.set(p, byteAt(m.src, s))
	if was || !is {
		return -1, end
	}
	return s, end
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
	for l >= 0 && m.capture[l].len != captureOpen {
		l--
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

// value returns capture i of the match src[s:e]. Without captures, capture 0 is the whole match.
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

// push pushes all captures of the match src[s:e]. If there are none and whole is true, it pushes
// the whole match. It returns the number of values pushed.
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
