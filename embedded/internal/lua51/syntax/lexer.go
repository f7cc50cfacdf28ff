// Package syntax reads Lua 5.1, exactly: what PUC's compiler refuses is
// refused here with the same message. The tree it makes is gopher-lua's, whose
// own parser also takes goto, empty statements and octal numbers.
package syntax

import (
	"fmt"
	"strings"
)

type tokenKind int

const (
	tEOF tokenKind = iota
	tName
	tString
	tNumber
	tReserved // text holds the word
	tOperator // text holds the operator
)

type token struct {
	kind tokenKind
	text string // name, word, operator, or the contents of a string
	raw  string // as written, for messages
	line int
}

var reserved = map[string]bool{
	"and": true, "break": true, "do": true, "else": true, "elseif": true, "end": true, "false": true,
	"for": true, "function": true, "if": true, "in": true, "local": true, "nil": true, "not": true,
	"or": true, "repeat": true, "return": true, "then": true, "true": true, "until": true, "while": true,
}

// Error is a syntax error, worded as PUC words it: "chunk:line: message".
type Error struct{ Text string }

func (e *Error) Error() string { return e.Text }

type lexer struct {
	src   string
	pos   int
	line  int
	chunk string
}

func (lx *lexer) fail(msg, near string, line int) {
	text := fmt.Sprintf("%s:%d: %s", lx.chunk, line, msg)
	if near != "" {
		text += fmt.Sprintf(" near '%s'", near)
	}
	panic(&Error{text})
}

func (lx *lexer) peek(ahead int) byte {
	if lx.pos+ahead < len(lx.src) {
		return lx.src[lx.pos+ahead]
	}
	return 0
}

// newline steps over \n, \r, \r\n or \n\r.
func (lx *lexer) newline() {
	c := lx.src[lx.pos]
	lx.pos++
	if n := lx.peek(0); (n == '\n' || n == '\r') && n != c {
		lx.pos++
	}
	lx.line++
}

func (lx *lexer) next() token {
	for lx.pos < len(lx.src) {
		c := lx.src[lx.pos]
		switch {
		case c == '\n' || c == '\r':
			lx.newline()
		case c == ' ' || c >= '\t' && c <= '\r':
			lx.pos++
		case c == '-' && lx.peek(1) == '-':
			lx.comment()
		default:
			return lx.scan(c)
		}
	}
	return token{kind: tEOF, raw: "<eof>", line: lx.line}
}

func (lx *lexer) comment() {
	lx.pos += 2
	if lx.peek(0) == '[' {
		if level, ok := lx.longOpen(); ok {
			lx.longText(level, "comment")
			return
		}
	}
	for lx.pos < len(lx.src) && lx.src[lx.pos] != '\n' && lx.src[lx.pos] != '\r' {
		lx.pos++
	}
}

func (lx *lexer) scan(c byte) token {
	start, line := lx.pos, lx.line
	switch {
	case c == '_' || isAlpha(c):
		for lx.pos < len(lx.src) && (isAlnum(lx.src[lx.pos]) || lx.src[lx.pos] == '_') {
			lx.pos++
		}
		word := lx.src[start:lx.pos]
		if reserved[word] {
			return token{tReserved, word, word, line}
		}
		return token{tName, word, word, line}
	case isDigit(c) || c == '.' && isDigit(lx.peek(1)):
		return lx.number()
	case c == '"' || c == '\'':
		return lx.quoted(c)
	case c == '[':
		if level, ok := lx.longOpen(); ok {
			text := lx.longText(level, "string")
			return token{tString, text, lx.src[start:lx.pos], lx.line}
		}
		if lx.peek(1) == '=' {
			lx.pos++
			for lx.peek(0) == '=' {
				lx.pos++
			}
			lx.fail("invalid long string delimiter", lx.src[start:lx.pos], line)
		}
	}
	for _, op := range []string{"...", "..", "==", "<=", ">=", "~="} {
		if strings.HasPrefix(lx.src[lx.pos:], op) {
			lx.pos += len(op)
			return token{tOperator, op, op, line}
		}
	}
	lx.pos++
	op := string([]byte{c})
	raw := op
	if c < 32 || c == 127 {
		raw = fmt.Sprintf("char(%d)", c)
	}
	return token{tOperator, op, raw, line}
}

// number takes every letter and digit that follows, as PUC does, so that
// "0x1g" is one malformed number.
func (lx *lexer) number() token {
	start := lx.pos
	for isDigit(lx.peek(0)) || lx.peek(0) == '.' {
		lx.pos++
	}
	if c := lx.peek(0); c == 'e' || c == 'E' {
		lx.pos++
		if c := lx.peek(0); c == '+' || c == '-' {
			lx.pos++
		}
	}
	for isAlnum(lx.peek(0)) || lx.peek(0) == '_' {
		lx.pos++
	}
	text := lx.src[start:lx.pos]
	return token{tNumber, text, text, lx.line}
}

// longOpen steps over "[[" or "[==[", and gives the number of "=".
func (lx *lexer) longOpen() (int, bool) {
	i := lx.pos + 1
	for i < len(lx.src) && lx.src[i] == '=' {
		i++
	}
	if i >= len(lx.src) || lx.src[i] != '[' {
		return 0, false
	}
	level := i - lx.pos - 1
	lx.pos = i + 1
	return level, true
}

func (lx *lexer) longText(level int, what string) string {
	if c := lx.peek(0); lx.pos < len(lx.src) && (c == '\n' || c == '\r') {
		lx.newline()
	}
	closing := "]" + strings.Repeat("=", level) + "]"
	var b strings.Builder
	for lx.pos < len(lx.src) {
		switch c := lx.src[lx.pos]; {
		case c == ']' && strings.HasPrefix(lx.src[lx.pos:], closing):
			lx.pos += len(closing)
			return b.String()
		case c == '\n' || c == '\r':
			lx.newline()
			b.WriteByte('\n')
		default:
			b.WriteByte(c)
			lx.pos++
		}
	}
	lx.fail("unfinished long "+what, "<eof>", lx.line)
	return ""
}

func (lx *lexer) quoted(quote byte) token {
	start := lx.pos
	lx.pos++
	var b strings.Builder
	for {
		if lx.pos >= len(lx.src) {
			lx.fail("unfinished string", "<eof>", lx.line)
		}
		c := lx.src[lx.pos]
		switch {
		case c == quote:
			lx.pos++
			return token{tString, b.String(), lx.src[start:lx.pos], lx.line}
		case c == '\n' || c == '\r':
			lx.fail("unfinished string", string(quote)+b.String(), lx.line)
		case c == '\\':
			lx.escape(&b, quote)
		default:
			b.WriteByte(c)
			lx.pos++
		}
	}
}

func (lx *lexer) escape(b *strings.Builder, quote byte) {
	lx.pos++
	if lx.pos >= len(lx.src) {
		lx.fail("unfinished string", "<eof>", lx.line)
	}
	c := lx.src[lx.pos]
	if i := strings.IndexByte("abfnrtv", c); i >= 0 {
		b.WriteByte("\a\b\f\n\r\t\v"[i])
		lx.pos++
		return
	}
	switch {
	case c == '\n' || c == '\r':
		b.WriteByte('\n')
		lx.newline()
	case isDigit(c):
		v := 0
		for i := 0; i < 3 && isDigit(lx.peek(0)); i++ {
			v = v*10 + int(lx.src[lx.pos]-'0')
			lx.pos++
		}
		if v > 255 {
			lx.fail("escape sequence too large", string(quote)+b.String(), lx.line)
		}
		b.WriteByte(byte(v))
	default:
		b.WriteByte(c)
		lx.pos++
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isAlpha(c byte) bool { return c|32 >= 'a' && c|32 <= 'z' }
func isAlnum(c byte) bool { return isAlpha(c) || isDigit(c) }
