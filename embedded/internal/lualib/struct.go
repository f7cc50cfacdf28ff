package lualib

import (
	"encoding/binary"
	"math"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/lua51"
	lua "github.com/yuin/gopher-lua"
)

const (
	maxStructInt   = 32 // MAXINTSIZE
	maxStructAlign = 8  // MAXALIGN on x86-64
)

func openStruct(rt *lua51.Runtime) *lua.LTable {
	return rt.Functions(rt.L.NewTable(), map[string]lua.LGFunction{
		"pack": structPack, "unpack": structUnpack, "size": structSize,
	})
}

type byteOrder interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

// structFormat walks a format string.
type structFormat struct {
	L     *lua.LState
	text  string
	pos   int
	order byteOrder
	align int
}

func newStructFormat(L *lua.LState) *structFormat {
	text := lua51.CheckString(L, 1)
	if i := strings.IndexByte(text, 0); i >= 0 {
		text = text[:i]
	}
	return &structFormat{L: L, text: text, order: binary.LittleEndian, align: 1}
}

func (f *structFormat) number(def int) int {
	start, n := f.pos, 0
	for f.pos < len(f.text) && f.text[f.pos] >= '0' && f.text[f.pos] <= '9' {
		n = n*10 + int(f.text[f.pos]-'0')
		if n > math.MaxInt32 {
			lua51.Errorf(f.L, "integral size overflow")
		}
		f.pos++
	}
	if f.pos == start {
		return def
	}
	return n
}

// next gives the next option and its size, 0 for those without one.
func (f *structFormat) next() (opt byte, size int, more bool) {
	if f.pos >= len(f.text) {
		return 0, 0, false
	}
	opt = f.text[f.pos]
	f.pos++
	switch opt {
	case 'b', 'B', 'x':
		size = 1
	case 'h', 'H':
		size = 2
	case 'l', 'L', 'T', 'd':
		size = 8
	case 'f':
		size = 4
	case 'c':
		size = f.number(1)
	case 'i', 'I':
		if size = f.number(4); size > maxStructInt {
			lua51.Errorf(f.L, "integral size %d is larger than limit of %d", size, maxStructInt)
		}
	}
	return opt, size, true
}

// padding is how many bytes come before an option to align it.
func (f *structFormat) padding(at int, opt byte, size int) int {
	if size == 0 || opt == 'c' {
		return 0
	}
	size = min(size, f.align)
	return (size - at&(size-1)) & (size - 1)
}

func (f *structFormat) control(opt byte) {
	switch opt {
	case ' ':
	case '>':
		f.order = binary.BigEndian
	case '<':
		f.order = binary.LittleEndian
	case '!':
		a := f.number(maxStructAlign)
		if a <= 0 || a&(a-1) != 0 {
			lua51.Errorf(f.L, "alignment %d is not a power of 2", a)
		}
		f.align = a
	default:
		lua51.ArgError(f.L, 1, "invalid format option '"+string([]byte{opt})+"'")
	}
}

func isStructInt(opt byte) bool { return strings.IndexByte("bBhHlLTiI", opt) >= 0 }

func structPack(L *lua.LState) int {
	f := newStructFormat(L)
	L.Push(lua.LNil) // as there, so that a missing argument is nil
	var b []byte
	arg := 2
	for {
		opt, size, more := f.next()
		if !more {
			break
		}
		b = append(b, make([]byte, f.padding(len(b), opt, size))...)
		switch {
		case isStructInt(opt):
			b = f.appendInt(b, lua51.CheckNumber(L, arg), size)
			arg++
		case opt == 'x':
			b = append(b, 0)
		case opt == 'f':
			b = f.order.AppendUint32(b, math.Float32bits(float32(lua51.CheckNumber(L, arg))))
			arg++
		case opt == 'd':
			b = f.order.AppendUint64(b, math.Float64bits(lua51.CheckNumber(L, arg)))
			arg++
		case opt == 'c' || opt == 's':
			s := lua51.CheckString(L, arg)
			arg++
			if size == 0 {
				size = len(s)
			}
			if len(s) < size {
				lua51.ArgError(L, arg, "string too short")
			}
			b = append(b, s[:size]...)
			if opt == 's' {
				b = append(b, 0)
			}
		default:
			f.control(opt)
		}
	}
	L.Push(lua.LString(b))
	return 1
}

func (f *structFormat) appendInt(b []byte, v float64, size int) []byte {
	u := uint64(lua51.ToInt64(v))
	if v >= 1<<63 && v < 1<<64 {
		u = uint64(v)
	}
	start := len(b)
	b = append(b, make([]byte, size)...)
	for i := range min(size, 8) {
		at := start + i
		if f.order == binary.BigEndian {
			at = start + size - 1 - i
		}
		b[at] = byte(u >> (8 * i))
	}
	return b
}

func (f *structFormat) readInt(b []byte, signed bool) float64 {
	var u uint64
	size := len(b)
	for i := range min(size, 8) {
		at := i
		if f.order == binary.BigEndian {
			at = size - 1 - i
		}
		u |= uint64(b[at]) << (8 * i)
	}
	if !signed {
		return float64(u)
	}
	if size > 0 && size < 8 && u>>(8*size-1)&1 == 1 {
		u |= math.MaxUint64 << (8 * size)
	}
	return float64(int64(u))
}

func structUnpack(L *lua.LState) int {
	f := newStructFormat(L)
	data := lua51.CheckString(L, 2)
	pos := lua51.OptInt(L, 3, 1)
	if pos <= 0 {
		lua51.ArgError(L, 3, "offset must be 1 or greater")
	}
	pos--
	var out []lua.LValue
	for {
		opt, size, more := f.next()
		if !more {
			break
		}
		pos += f.padding(pos, opt, size)
		tooShort := func() {
			if size > len(data) || pos > len(data)-size {
				lua51.ArgError(L, 2, "data string too short")
			}
		}
		tooShort()
		switch {
		case isStructInt(opt):
			out = append(out, lua.LNumber(f.readInt(bytesAt(data, pos, size), opt >= 'a')))
		case opt == 'x':
		case opt == 'f':
			out = append(out, lua.LNumber(math.Float32frombits(f.order.Uint32(bytesAt(data, pos, 4)))))
		case opt == 'd':
			out = append(out, lua.LNumber(math.Float64frombits(f.order.Uint64(bytesAt(data, pos, 8)))))
		case opt == 'c':
			if size == 0 {
				if len(out) == 0 {
					lua51.Errorf(L, "format 'c0' needs a previous size")
				}
				v, ok := lua51.ToNumber(out[len(out)-1])
				if !ok {
					lua51.Errorf(L, "format 'c0' needs a previous size")
				}
				out = out[:len(out)-1]
				if v < 0 || v > float64(len(data)) {
					lua51.ArgError(L, 2, "data string too short")
				}
				size = int(v)
				tooShort()
			}
			out = append(out, lua.LString(data[pos:pos+size]))
		case opt == 's':
			n := strings.IndexByte(data[pos:], 0)
			if n < 0 {
				lua51.Errorf(L, "unfinished string in data")
			}
			out = append(out, lua.LString(data[pos:pos+n]))
			size = n + 1
		default:
			f.control(opt)
		}
		pos += size
	}
	for _, v := range out {
		L.Push(v)
	}
	L.Push(lua.LNumber(pos + 1))
	return len(out) + 1
}

func bytesAt(s string, pos, n int) []byte { return []byte(s[pos : pos+n]) }

func structSize(L *lua.LState) int {
	f := newStructFormat(L)
	pos := 0
	for {
		opt, size, more := f.next()
		if !more {
			break
		}
		pos += f.padding(pos, opt, size)
		switch {
		case opt == 's':
			lua51.ArgError(L, 1, "option 's' has no fixed size")
		case opt == 'c' && size == 0:
			lua51.ArgError(L, 1, "option 'c0' has no fixed size")
		case !(opt >= '0' && opt <= '9' || opt|32 >= 'a' && opt|32 <= 'z'):
			f.control(opt)
		}
		pos += size
	}
	L.Push(lua.LNumber(pos))
	return 1
}
