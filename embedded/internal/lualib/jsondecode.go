package lualib

import (
	"strings"
	"unicode/utf8"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/lua51"
	lua "github.com/yuin/gopher-lua"
)

// jsonToken is one token; kind is its name in cjson's messages.
type jsonToken struct {
	kind  string
	at    int
	value lua.LValue
	wrong string // what is wrong with a T_ERROR
}

type jsonDecoder struct {
	L     *lua.LState
	cfg   *jsonConfig
	s     string
	pos   int
	depth int
	null  lua.LValue
}

func (d *jsonDecoder) expected(what string, t jsonToken) {
	found := t.kind
	if found == "T_ERROR" {
		found = t.wrong
	}
	lua51.Errorf(d.L, "Expected %s but found %s at character %d", what, found, t.at+1)
}

func (d *jsonDecoder) document() lua.LValue {
	v := d.value(d.next())
	if t := d.next(); t.kind != "T_END" {
		d.expected("the end", t)
	}
	return v
}

func (d *jsonDecoder) value(t jsonToken) lua.LValue {
	switch t.kind {
	case "T_STRING", "T_NUMBER", "T_BOOLEAN":
		return t.value
	case "T_NULL":
		return d.null
	case "T_OBJ_BEGIN":
		return d.object()
	case "T_ARR_BEGIN":
		return d.array()
	}
	d.expected("value", t)
	return nil
}

func (d *jsonDecoder) descend() {
	d.depth++
	if d.depth > d.cfg.decodeDepth {
		lua51.Errorf(d.L, "Found too many nested data structures (%d) at character %d", d.depth, d.pos)
	}
}

func (d *jsonDecoder) object() lua.LValue {
	d.descend()
	defer func() { d.depth-- }()
	t := d.L.NewTable()
	tok := d.next()
	if tok.kind == "T_OBJ_END" {
		return t
	}
	for {
		if tok.kind != "T_STRING" {
			d.expected("object key string", tok)
		}
		key := tok.value
		if tok = d.next(); tok.kind != "T_COLON" {
			d.expected("colon", tok)
		}
		t.RawSet(key, d.value(d.next()))
		switch tok = d.next(); tok.kind {
		case "T_OBJ_END":
			return t
		case "T_COMMA":
		default:
			d.expected("comma or object end", tok)
		}
		tok = d.next()
	}
}

func (d *jsonDecoder) array() lua.LValue {
	d.descend()
	defer func() { d.depth-- }()
	t := d.L.NewTable()
	tok := d.next()
	if tok.kind == "T_ARR_END" {
		return t
	}
	for i := 1; ; i++ {
		t.RawSetInt(i, d.value(tok))
		switch tok = d.next(); tok.kind {
		case "T_ARR_END":
			return t
		case "T_COMMA":
		default:
			d.expected("comma or array end", tok)
		}
		tok = d.next()
	}
}

var jsonPunctuation = map[byte]string{
	'{': "T_OBJ_BEGIN", '}': "T_OBJ_END", '[': "T_ARR_BEGIN", ']': "T_ARR_END", ',': "T_COMMA", ':': "T_COLON",
}

func (d *jsonDecoder) next() jsonToken {
	for d.pos < len(d.s) && strings.IndexByte(" \t\n\r", d.s[d.pos]) >= 0 {
		d.pos++
	}
	t := jsonToken{at: d.pos}
	if d.pos >= len(d.s) || d.s[d.pos] == 0 {
		t.kind = "T_END"
		return t
	}
	rest := d.s[d.pos:]
	c := rest[0]
	if kind, ok := jsonPunctuation[c]; ok {
		d.pos++
		t.kind = kind
		return t
	}
	switch {
	case c == '"':
		return d.text(t)
	case c == '-' || c >= '0' && c <= '9':
		if !d.cfg.decodeInvalid && invalidJSONNumber(rest) {
			t.kind, t.wrong = "T_ERROR", "invalid number"
			return t
		}
		return d.number(t)
	case strings.HasPrefix(rest, "true"), strings.HasPrefix(rest, "false"):
		t.kind, t.value = "T_BOOLEAN", lua.LBool(c == 't')
		d.pos += 4
		if c == 'f' {
			d.pos++
		}
		return t
	case strings.HasPrefix(rest, "null"):
		t.kind = "T_NULL"
		d.pos += 4
		return t
	case d.cfg.decodeInvalid && strings.IndexByte("+iInN", c) >= 0 && invalidJSONNumber(rest):
		return d.number(t)
	}
	t.kind, t.wrong = "T_ERROR", "invalid token"
	return t
}

// invalidJSONNumber tells what strtod takes and JSON does not: signs, leading
// zeros, hexadecimal, inf and nan.
func invalidJSONNumber(s string) bool {
	if s[0] == '+' {
		return true
	}
	s = strings.TrimPrefix(s, "-")
	switch {
	case s == "":
		return false
	case s[0] == '0':
		return len(s) > 1 && (s[1]|32 == 'x' || s[1] >= '0' && s[1] <= '9')
	case s[0] <= '9':
		return false
	}
	return len(s) >= 3 && (strings.EqualFold(s[:3], "inf") || strings.EqualFold(s[:3], "nan"))
}

func (d *jsonDecoder) number(t jsonToken) jsonToken {
	v, n := lua51.ScanNumber(d.s[d.pos:])
	if n == 0 {
		t.kind, t.wrong = "T_ERROR", "invalid number"
		return t
	}
	d.pos += n
	t.kind, t.value = "T_NUMBER", lua.LNumber(v)
	return t
}

func (d *jsonDecoder) text(t jsonToken) jsonToken {
	fail := func(wrong string) jsonToken {
		return jsonToken{kind: "T_ERROR", at: d.pos, wrong: wrong}
	}
	d.pos++
	var b strings.Builder
	for {
		if d.pos >= len(d.s) || d.s[d.pos] == 0 {
			return fail("unexpected end of string")
		}
		c := d.s[d.pos]
		switch c {
		case '"':
			d.pos++
			t.kind, t.value = "T_STRING", lua.LString(b.String())
			return t
		case '\\':
			var e byte
			if d.pos+1 < len(d.s) {
				e = d.s[d.pos+1]
			}
			if e == 'u' {
				if !d.unicode(&b) {
					return fail("invalid unicode escape code")
				}
				continue
			}
			i := strings.IndexByte("\"\\/btnfr", e)
			if i < 0 {
				return fail("invalid escape code")
			}
			b.WriteByte("\"\\/\b\t\n\f\r"[i])
			d.pos += 2
		default:
			b.WriteByte(c)
			d.pos++
		}
	}
}

// unicode reads \uXXXX, and the second half of a surrogate pair.
func (d *jsonDecoder) unicode(b *strings.Builder) bool {
	r, ok := parseHex4(d.s[d.pos+2:])
	if !ok {
		return false
	}
	n := 6
	if r&0xF800 == 0xD800 {
		if r&0x400 != 0 || !strings.HasPrefix(d.s[d.pos+n:], `\u`) {
			return false
		}
		low, ok := parseHex4(d.s[d.pos+n+2:])
		if !ok || low&0xFC00 != 0xDC00 {
			return false
		}
		r = (r&0x3FF)<<10 + low&0x3FF + 0x10000
		n = 12
	}
	d.pos += n
	var buf [utf8.UTFMax]byte
	b.Write(buf[:utf8.EncodeRune(buf[:], r)])
	return true
}
