package lualib

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/lua51"
	lua "github.com/yuin/gopher-lua"
)

// jsonConfig is what cjson's own functions can change; the defaults are those
// of Redis.
type jsonConfig struct {
	sparseConvert bool
	sparseRatio   int
	sparseSafe    int
	encodeDepth   int
	decodeDepth   int
	precision     int
	encodeInvalid string // off, on or null
	decodeInvalid bool
	keepBuffer    bool
}

func defaultJSON() *jsonConfig {
	return &jsonConfig{
		sparseRatio: 2, sparseSafe: 10, encodeDepth: 1000, decodeDepth: 1000,
		precision: 14, encodeInvalid: "off", decodeInvalid: true, keepBuffer: true,
	}
}

func openJSON(rt *lua51.Runtime) *lua.LTable {
	null := rt.L.NewUserData()
	rt.Null = null
	return newJSON(rt, null)
}

func newJSON(rt *lua51.Runtime, null *lua.LUserData) *lua.LTable {
	cfg := defaultJSON()
	t := rt.L.NewTable()
	t.RawSetString("_NAME", lua.LString("cjson"))
	t.RawSetString("_VERSION", lua.LString("2.1.0"))
	t.RawSetString("null", null)
	return rt.Functions(t, map[string]lua.LGFunction{
		"encode": func(L *lua.LState) int {
			if L.GetTop() != 1 {
				lua51.ArgError(L, 1, "expected 1 argument")
			}
			e := &jsonEncoder{L: L, rt: rt, cfg: cfg}
			e.value(L.Get(1), 0)
			L.Push(lua.LString(e.b.String()))
			return 1
		},
		"decode": func(L *lua.LState) int {
			if L.GetTop() != 1 {
				lua51.ArgError(L, 1, "expected 1 argument")
			}
			s := lua51.CheckString(L, 1)
			if len(s) >= 2 && (s[0] == 0 || s[1] == 0) {
				lua51.Errorf(L, "JSON parser does not support UTF-16 or UTF-32")
			}
			d := &jsonDecoder{L: L, cfg: cfg, s: s, null: null}
			L.Push(d.document())
			return 1
		},
		"new": func(L *lua.LState) int {
			L.Push(newJSON(rt, null))
			return 1
		},
		"encode_sparse_array": func(L *lua.LState) int {
			if L.Get(1) != lua.LNil {
				cfg.sparseConvert = checkSwitch(L, 1)
			}
			cfg.sparseRatio = optRange(L, 2, cfg.sparseRatio, 0, math.MaxInt32)
			cfg.sparseSafe = optRange(L, 3, cfg.sparseSafe, 0, math.MaxInt32)
			L.Push(lua.LBool(cfg.sparseConvert))
			L.Push(lua.LNumber(cfg.sparseRatio))
			L.Push(lua.LNumber(cfg.sparseSafe))
			return 3
		},
		"encode_max_depth":        intSetting(&cfg.encodeDepth, 1, math.MaxInt32),
		"decode_max_depth":        intSetting(&cfg.decodeDepth, 1, math.MaxInt32),
		"encode_number_precision": intSetting(&cfg.precision, 1, 14),
		"encode_keep_buffer":      switchSetting(&cfg.keepBuffer),
		"decode_invalid_numbers":  switchSetting(&cfg.decodeInvalid),
		"encode_invalid_numbers": func(L *lua.LState) int {
			if v := L.Get(1); v == lua.LString("null") {
				cfg.encodeInvalid = "null"
			} else if v != lua.LNil {
				cfg.encodeInvalid = "off"
				if checkSwitch(L, 1) {
					cfg.encodeInvalid = "on"
				}
			}
			switch cfg.encodeInvalid {
			case "null":
				L.Push(lua.LString("null"))
			default:
				L.Push(lua.LBool(cfg.encodeInvalid == "on"))
			}
			return 1
		},
	})
}

func checkSwitch(L *lua.LState, n int) bool {
	switch v := L.Get(n).(type) {
	case lua.LBool:
		return bool(v)
	case lua.LString:
		if v == "on" || v == "off" {
			return v == "on"
		}
	}
	lua51.ArgError(L, n, fmt.Sprintf("invalid option '%s'", lua51.CheckString(L, n)))
	return false
}

func optRange(L *lua.LState, n, def, lo, hi int) int {
	if L.Get(n) == lua.LNil {
		return def
	}
	v := lua51.CheckInt(L, n)
	if v < lo || v > hi {
		lua51.ArgError(L, n, fmt.Sprintf("expected integer between %d and %d", lo, hi))
	}
	return v
}

func intSetting(p *int, lo, hi int) lua.LGFunction {
	return func(L *lua.LState) int {
		*p = optRange(L, 1, *p, lo, hi)
		L.Push(lua.LNumber(*p))
		return 1
	}
}

func switchSetting(p *bool) lua.LGFunction {
	return func(L *lua.LState) int {
		if L.Get(1) != lua.LNil {
			*p = checkSwitch(L, 1)
		}
		L.Push(lua.LBool(*p))
		return 1
	}
}

type jsonEncoder struct {
	L   *lua.LState
	rt  *lua51.Runtime
	cfg *jsonConfig
	b   strings.Builder
}

func (e *jsonEncoder) refuse(v lua.LValue, why string) {
	lua51.Errorf(e.L, "Cannot serialise %s: %s", v.Type(), why)
}

func (e *jsonEncoder) value(v lua.LValue, depth int) {
	switch v := v.(type) {
	case lua.LString:
		e.text(string(v))
	case lua.LNumber:
		e.number(v)
	case lua.LBool:
		e.b.WriteString(v.String())
	case *lua.LNilType:
		e.b.WriteString("null")
	case *lua.LTable:
		depth++
		if depth > e.cfg.encodeDepth {
			lua51.Errorf(e.L, "Cannot serialise, excessive nesting (%d)", depth)
		}
		t := e.rt.Behind(v)
		if n := e.arrayLength(t); n > 0 {
			e.array(t, n, depth)
		} else {
			e.object(t, depth)
		}
	default:
		if v == lua.LValue(e.rt.Null) {
			e.b.WriteString("null")
			return
		}
		e.refuse(v, "type not supported")
	}
}

func (e *jsonEncoder) number(v lua.LNumber) {
	f := float64(v)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		switch e.cfg.encodeInvalid {
		case "off":
			e.refuse(v, "must not be NaN or Inf")
		case "null":
			e.b.WriteString("null")
			return
		}
		if math.IsNaN(f) {
			e.b.WriteString("nan")
			return
		}
	}
	e.b.WriteString(lua51.FormatPrecision(f, e.cfg.precision))
}

// arrayLength is the length of a table that is a list, -1 for any other.
func (e *jsonEncoder) arrayLength(t *lua.LTable) int {
	largest, items, list := 0.0, 0, true
	eachPair(t, func(k, _ lua.LValue) {
		n, ok := k.(lua.LNumber)
		if !ok || n < 1 || float64(n) != math.Floor(float64(n)) {
			list = false
			return
		}
		largest = max(largest, float64(n))
		items++
	})
	if !list {
		return -1
	}
	if e.cfg.sparseRatio > 0 && largest > float64(items*e.cfg.sparseRatio) && largest > float64(e.cfg.sparseSafe) {
		if !e.cfg.sparseConvert {
			e.refuse(t, "excessively sparse array")
		}
		return -1
	}
	return int(largest)
}

func (e *jsonEncoder) array(t *lua.LTable, n, depth int) {
	e.b.WriteByte('[')
	for i := 1; i <= n; i++ {
		if i > 1 {
			e.b.WriteByte(',')
		}
		e.value(t.RawGet(lua.LNumber(i)), depth)
	}
	e.b.WriteByte(']')
}

func (e *jsonEncoder) object(t *lua.LTable, depth int) {
	e.b.WriteByte('{')
	first := true
	eachPair(t, func(k, v lua.LValue) {
		if !first {
			e.b.WriteByte(',')
		}
		first = false
		switch k := k.(type) {
		case lua.LNumber:
			e.b.WriteByte('"')
			e.number(k)
			e.b.WriteByte('"')
		case lua.LString:
			e.text(string(k))
		default:
			e.refuse(k, "table key must be a number or string")
		}
		e.b.WriteByte(':')
		e.value(v, depth)
	})
	e.b.WriteByte('}')
}

func (e *jsonEncoder) text(s string) {
	e.b.WriteByte('"')
	for i := 0; i < len(s); i++ {
		c := s[i]
		if j := strings.IndexByte("\"\\/\b\t\n\f\r", c); j >= 0 {
			e.b.WriteByte('\\')
			e.b.WriteByte("\"\\/btnfr"[j])
		} else if c < 32 || c == 127 {
			fmt.Fprintf(&e.b, "\\u%04x", c)
		} else {
			e.b.WriteByte(c)
		}
	}
	e.b.WriteByte('"')
}

// parseHex4 reads four hexadecimal digits.
func parseHex4(s string) (rune, bool) {
	if len(s) < 4 {
		return 0, false
	}
	v, err := strconv.ParseUint(s[:4], 16, 16)
	return rune(v), err == nil && s[0] != '+'
}
