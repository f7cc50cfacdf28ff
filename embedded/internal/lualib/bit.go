package lualib

import (
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/lua51"
	lua "github.com/yuin/gopher-lua"
)

// bitArg reads a number as BitOp does: rounded to an integer, modulo 2^32.
func bitArg(L *lua.LState, n int) uint32 {
	// Adding 2^52+2^51 leaves the rounded integer in the low bits of the
	// mantissa, also for what does not fit.
	return uint32(math.Float64bits(lua51.CheckNumber(L, n) + 6755399441055744.0))
}

func pushBits(L *lua.LState, v uint32) int {
	L.Push(lua.LNumber(int32(v)))
	return 1
}

func openBit(rt *lua51.Runtime) *lua.LTable {
	fold := func(op func(a, b uint32) uint32) lua.LGFunction {
		return func(L *lua.LState) int {
			v := bitArg(L, 1)
			for i := 2; i <= L.GetTop(); i++ {
				v = op(v, bitArg(L, i))
			}
			return pushBits(L, v)
		}
	}
	shift := func(op func(v uint32, n int) uint32) lua.LGFunction {
		return func(L *lua.LState) int {
			v := bitArg(L, 1)
			return pushBits(L, op(v, int(bitArg(L, 2)&31)))
		}
	}
	return rt.Functions(rt.L.NewTable(), map[string]lua.LGFunction{
		"tobit":   func(L *lua.LState) int { return pushBits(L, bitArg(L, 1)) },
		"bnot":    func(L *lua.LState) int { return pushBits(L, ^bitArg(L, 1)) },
		"bswap":   func(L *lua.LState) int { return pushBits(L, bits.ReverseBytes32(bitArg(L, 1))) },
		"band":    fold(func(a, b uint32) uint32 { return a & b }),
		"bor":     fold(func(a, b uint32) uint32 { return a | b }),
		"bxor":    fold(func(a, b uint32) uint32 { return a ^ b }),
		"lshift":  shift(func(v uint32, n int) uint32 { return v << n }),
		"rshift":  shift(func(v uint32, n int) uint32 { return v >> n }),
		"arshift": shift(func(v uint32, n int) uint32 { return uint32(int32(v) >> n) }),
		"rol":     shift(func(v uint32, n int) uint32 { return bits.RotateLeft32(v, n) }),
		"ror":     shift(func(v uint32, n int) uint32 { return bits.RotateLeft32(v, -n) }),
		"tohex":   bitToHex,
	})
}

func bitToHex(L *lua.LState) int {
	v, n := bitArg(L, 1), 8
	if L.GetTop() >= 2 {
		n = int(int32(bitArg(L, 2)))
	}
	upper := n < 0
	if upper {
		n = -n
	}
	if n < 0 || n > 8 {
		n = 8
	}
	s := fmt.Sprintf("%08x", v)[8-n:]
	if upper {
		s = strings.ToUpper(s)
	}
	L.Push(lua.LString(s))
	return 1
}
