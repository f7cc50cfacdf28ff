package lualib

import (
	"encoding/binary"
	"math"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/lua51"
	lua "github.com/yuin/gopher-lua"
)

// maxMsgpackNesting is LUACMSGPACK_MAX_NESTING: what is nested deeper packs as
// nil.
const maxMsgpackNesting = 16

func openMsgpack(rt *lua51.Runtime) *lua.LTable {
	t := rt.L.NewTable()
	t.RawSetString("_NAME", lua.LString("cmsgpack"))
	t.RawSetString("_VERSION", lua.LString("lua-cmsgpack 0.4.0"))
	t.RawSetString("_COPYRIGHT", lua.LString("Copyright (C) 2012, Salvatore Sanfilippo"))
	t.RawSetString("_DESCRIPTION", lua.LString("MessagePack C implementation for Lua"))
	return rt.Functions(t, map[string]lua.LGFunction{
		"pack":       func(L *lua.LState) int { return msgpackPack(L, rt) },
		"unpack":     func(L *lua.LState) int { return msgpackUnpack(L, 0, 0, false) },
		"unpack_one": func(L *lua.LState) int { return msgpackUnpack(L, 1, lua51.OptInt(L, 2, 0), true) },
		"unpack_limit": func(L *lua.LState) int {
			limit := lua51.CheckInt(L, 2)
			return msgpackUnpack(L, limit, lua51.OptInt(L, 3, 0), true)
		},
	})
}

func msgpackPack(L *lua.LState, rt *lua51.Runtime) int {
	if L.GetTop() == 0 {
		lua51.ArgError(L, 0, "MessagePack pack needs input.")
	}
	var b []byte
	for i := 1; i <= L.GetTop(); i++ {
		b = packValue(b, rt, L.Get(i), 0)
	}
	L.Push(lua.LString(b))
	return 1
}

func packValue(b []byte, rt *lua51.Runtime, v lua.LValue, level int) []byte {
	switch v := v.(type) {
	case lua.LString:
		return append(packLength(b, len(v), 0xa0, 31, 0xd9, 0xda, 0xdb), v...)
	case lua.LBool:
		if v {
			return append(b, 0xc3)
		}
		return append(b, 0xc2)
	case lua.LNumber:
		return packNumber(b, float64(v))
	case *lua.LTable:
		if level == maxMsgpackNesting {
			return append(b, 0xc0)
		}
		return packTable(b, rt, rt.Behind(v), level)
	}
	return append(b, 0xc0)
}

// packLength writes a header: a fix form up to fixMax, or the 8 (if there is
// one), 16 or 32 bit form.
func packLength(b []byte, n int, fix byte, fixMax int, l8, l16, l32 byte) []byte {
	switch {
	case n <= fixMax:
		return append(b, fix|byte(n))
	case l8 != 0 && n <= math.MaxUint8:
		return append(b, l8, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, l16), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, l32), uint32(n))
}

func packNumber(b []byte, v float64) []byte {
	if v >= -1<<63 && v < 1<<63 && v == math.Trunc(v) {
		return packInt(b, int64(v))
	}
	if f := float32(v); float64(f) == v {
		return binary.BigEndian.AppendUint32(append(b, 0xca), math.Float32bits(f))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xcb), math.Float64bits(v))
}

func packInt(b []byte, n int64) []byte {
	switch {
	case n >= -32 && n <= 127:
		return append(b, byte(n))
	case n >= 0 && n <= math.MaxUint8:
		return append(b, 0xcc, byte(n))
	case n >= 0 && n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(n))
	case n >= 0 && n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(n))
	case n >= 0:
		return binary.BigEndian.AppendUint64(append(b, 0xcf), uint64(n))
	case n >= math.MinInt8:
		return append(b, 0xd0, byte(n))
	case n >= math.MinInt16:
		return binary.BigEndian.AppendUint16(append(b, 0xd1), uint16(n))
	case n >= math.MinInt32:
		return binary.BigEndian.AppendUint32(append(b, 0xd2), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(n))
}

func packTable(b []byte, rt *lua51.Runtime, t *lua.LTable, level int) []byte {
	count, largest, list := 0, 0.0, true
	eachPair(t, func(k, _ lua.LValue) {
		count++
		n, ok := k.(lua.LNumber)
		if !ok || n <= 0 || float64(n) != math.Trunc(float64(n)) {
			list = false
			return
		}
		largest = max(largest, float64(n))
	})
	if list && int(largest) == count {
		b = packLength(b, count, 0x90, 15, 0, 0xdc, 0xdd)
		for i := 1; i <= count; i++ {
			b = packValue(b, rt, t.RawGetInt(i), level+1)
		}
		return b
	}
	b = packLength(b, count, 0x80, 15, 0, 0xde, 0xdf)
	eachPair(t, func(k, v lua.LValue) {
		b = packValue(b, rt, k, level+1)
		b = packValue(b, rt, v, level+1)
	})
	return b
}

func msgpackUnpack(L *lua.LState, limit, offset int, partial bool) int {
	s := lua51.CheckString(L, 1)
	switch {
	case offset < 0 || limit < 0:
		lua51.Errorf(L, "Invalid request to unpack with offset of %d and limit of %d.", offset, len(s))
	case offset > len(s):
		lua51.Errorf(L, "Start offset %d greater than input length %d.", offset, len(s))
	}
	all := limit == 0 && offset == 0
	if all || limit == 0 {
		limit = math.MaxInt32
	}
	u := &unpacker{L: L, b: []byte(s[offset:])}
	var out []lua.LValue
	for ; len(u.b) > 0 && len(out) < limit; out = append(out, u.value(0)) {
	}
	if partial && !all {
		next := len(s) - len(u.b)
		if len(u.b) == 0 {
			next = -1
		}
		L.Push(lua.LNumber(next))
	}
	for _, v := range out {
		L.Push(v)
	}
	if partial && !all {
		return len(out) + 1
	}
	return len(out)
}

type unpacker struct {
	L *lua.LState
	b []byte
}

func (u *unpacker) take(n int) []byte {
	if len(u.b) < n {
		lua51.Errorf(u.L, "Missing bytes in input.")
	}
	b := u.b[:n]
	u.b = u.b[n:]
	return b
}

// maxUnpackDepth keeps hostile input from exhausting the stack.
const maxUnpackDepth = 8000

func (u *unpacker) value(depth int) lua.LValue {
	if depth > maxUnpackDepth {
		lua51.Errorf(u.L, "Bad data format in input.")
	}
	be := binary.BigEndian
	switch c := u.take(1)[0]; {
	case c <= 0x7f || c >= 0xe0:
		return lua.LNumber(int8(c))
	case c&0xf0 == 0x80:
		return u.table(int(c&15), true, depth)
	case c&0xf0 == 0x90:
		return u.table(int(c&15), false, depth)
	case c&0xe0 == 0xa0:
		return lua.LString(u.take(int(c & 31)))
	default:
		switch c {
		case 0xc0:
			return lua.LNil
		case 0xc2, 0xc3:
			return lua.LBool(c == 0xc3)
		case 0xca:
			return lua.LNumber(math.Float32frombits(be.Uint32(u.take(4))))
		case 0xcb:
			return lua.LNumber(math.Float64frombits(be.Uint64(u.take(8))))
		case 0xcc:
			return lua.LNumber(u.take(1)[0])
		case 0xcd:
			return lua.LNumber(be.Uint16(u.take(2)))
		case 0xce:
			return lua.LNumber(be.Uint32(u.take(4)))
		case 0xcf:
			return lua.LNumber(int64(be.Uint64(u.take(8)))) // as Redis has it
		case 0xd0:
			return lua.LNumber(int8(u.take(1)[0]))
		case 0xd1:
			return lua.LNumber(int16(be.Uint16(u.take(2))))
		case 0xd2:
			return lua.LNumber(int32(be.Uint32(u.take(4))))
		case 0xd3:
			return lua.LNumber(int64(be.Uint64(u.take(8))))
		case 0xd9:
			return lua.LString(u.take(int(u.take(1)[0])))
		case 0xda:
			return lua.LString(u.take(int(be.Uint16(u.take(2)))))
		case 0xdb:
			return lua.LString(u.take(int(be.Uint32(u.take(4)))))
		case 0xdc, 0xde:
			return u.table(int(be.Uint16(u.take(2))), c == 0xde, depth)
		case 0xdd, 0xdf:
			return u.table(int(be.Uint32(u.take(4))), c == 0xdf, depth)
		}
	}
	lua51.Errorf(u.L, "Bad data format in input.")
	return nil
}

func (u *unpacker) table(n int, pairs bool, depth int) lua.LValue {
	t := u.L.NewTable()
	for i := 1; i <= n; i++ {
		if !pairs {
			t.RawSetInt(i, u.value(depth+1))
			continue
		}
		k := u.value(depth + 1)
		v := u.value(depth + 1)
		if k == lua.LNil {
			lua51.Raise(u.L, "table index is nil")
		}
		t.RawSet(k, v)
	}
	return t
}
