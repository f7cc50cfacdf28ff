package lualib

import (
	"math"

	lua "github.com/yuin/gopher-lua"
)

func openMath(L *lua.LState) *lua.LTable {
	t := L.NewTable()
	L.GetGlobal("math").(*lua.LTable).ForEach(func(name, v lua.LValue) {
		if f, ok := v.(*lua.LFunction); ok {
			v = converted(L, f, 0)
		}
		t.RawSet(name, v)
	})
	t.RawSetString("mod", lua.LNil)
	t.RawSetString("huge", lua.LNumber(math.Inf(1)))
	random := lrand48(0x1234ABCD330E)
	return set(L, t, map[string]lua.LGFunction{
		"random": random.random,
		"randomseed": func(L *lua.LState) int {
			random = lrand48(uint32(integer(L, 1)))<<16 | 0x330E
			return 0
		},
	})
}

// random implements Redis's math.random: the same seed gives the same numbers as on a server.
func (r *lrand48) random(L *lua.LState) int {
	const most = 1<<31 - 1 // REDIS_LRAND48_MAX
	v := float64(r.next()%most) / most
	low, high := 1, 0
	switch L.GetTop() {
	case 0:
		L.Push(lua.LNumber(v))
		return 1
	case 1:
		high = integer(L, 1)
	case 2:
		low, high = integer(L, 1), integer(L, 2)
	default:
		L.RaiseError("wrong number of arguments")
	}
	if low > high {
		L.ArgError(L.GetTop(), "interval is empty")
	}
	L.Push(lua.LNumber(math.Floor(v*float64(high-low+1)) + float64(low)))
	return 1
}

// lrand48 is the random number generator of math.random.
type lrand48 uint64

func (r *lrand48) next() int32 {
	*r = (*r*0x5DEECE66D + 0xB) & (1<<48 - 1)
	return int32(*r >> 17)
}
