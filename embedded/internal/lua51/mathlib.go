package lua51

import (
	"math"

	lua "github.com/yuin/gopher-lua"
)

func (rt *Runtime) openMath() {
	t := rt.L.NewTable()
	rt.globals.RawSetString("math", t)
	t.RawSetString("pi", lua.LNumber(math.Pi))
	t.RawSetString("huge", lua.LNumber(math.Inf(1)))
	unary := map[string]func(float64) float64{
		"abs": math.Abs, "acos": math.Acos, "asin": math.Asin, "atan": math.Atan, "ceil": math.Ceil,
		"cos": math.Cos, "cosh": math.Cosh, "exp": math.Exp, "floor": math.Floor, "log": math.Log,
		"log10": math.Log10, "sin": math.Sin, "sinh": math.Sinh, "sqrt": math.Sqrt, "tan": math.Tan,
		"tanh": math.Tanh,
		"deg":  func(v float64) float64 { return v / (math.Pi / 180) },
		"rad":  func(v float64) float64 { return v * (math.Pi / 180) },
	}
	for name, f := range unary {
		t.RawSetString(name, rt.L.NewFunction(func(L *lua.LState) int {
			v := CheckNumber(L, 1)
			L.Push(lua.LNumber(invalid(f(v), v)))
			return 1
		}))
	}
	binary := map[string]func(a, b float64) float64{
		"atan2": math.Atan2, "fmod": math.Mod, "mod": math.Mod, "pow": pow,
	}
	for name, f := range binary {
		t.RawSetString(name, rt.L.NewFunction(func(L *lua.LState) int {
			a, b := CheckNumber(L, 1), CheckNumber(L, 2)
			L.Push(lua.LNumber(invalid(f(a, b), a, b)))
			return 1
		}))
	}
	rt.Functions(t, map[string]lua.LGFunction{
		"frexp": func(L *lua.LState) int {
			m, e := math.Frexp(CheckNumber(L, 1))
			L.Push(lua.LNumber(m))
			L.Push(lua.LNumber(e))
			return 2
		},
		"ldexp": func(L *lua.LState) int {
			L.Push(lua.LNumber(math.Ldexp(CheckNumber(L, 1), CheckInt(L, 2))))
			return 1
		},
		"modf": mathModf,
		"max":  func(L *lua.LState) int { return extreme(L, func(a, b float64) bool { return a > b }) },
		"min":  func(L *lua.LState) int { return extreme(L, func(a, b float64) bool { return a < b }) },
		"random": func(L *lua.LState) int {
			return rt.mathRandom(L)
		},
		"randomseed": func(L *lua.LState) int {
			rt.random.seed(uint32(CheckInt(L, 1)))
			return 0
		},
	})
}

func mathModf(L *lua.LState) int {
	v := CheckNumber(L, 1)
	whole := math.Trunc(v)
	frac := v - whole
	if math.IsInf(v, 0) {
		frac = 0
	}
	L.Push(lua.LNumber(whole))
	L.Push(lua.LNumber(math.Copysign(frac, v)))
	return 2
}

func extreme(L *lua.LState, better func(a, b float64) bool) int {
	best := CheckNumber(L, 1)
	for i := 2; i <= L.GetTop(); i++ {
		if v := CheckNumber(L, i); better(v, best) {
			best = v
		}
	}
	L.Push(lua.LNumber(best))
	return 1
}

func (rt *Runtime) mathRandom(L *lua.LState) int {
	const max = 1<<31 - 1 // REDIS_LRAND48_MAX
	r := float64(rt.random.next()%max) / max
	switch L.GetTop() {
	case 0:
		L.Push(lua.LNumber(r))
	case 1:
		u := CheckInt(L, 1)
		if u < 1 {
			ArgError(L, 1, "interval is empty")
		}
		L.Push(lua.LNumber(math.Floor(r*float64(u)) + 1))
	case 2:
		l, u := CheckInt(L, 1), CheckInt(L, 2)
		if l > u {
			ArgError(L, 2, "interval is empty")
		}
		L.Push(lua.LNumber(math.Floor(r*float64(u-l+1)) + float64(l)))
	default:
		Errorf(L, "wrong number of arguments")
	}
	return 1
}

// lrand48 is the generator behind Redis's math.random: the same seed gives the
// same numbers as on a server.
type lrand48 struct {
	x      uint64
	seeded bool
}

func (r *lrand48) seed(v uint32) { r.x, r.seeded = uint64(v)<<16|0x330E, true }

func (r *lrand48) next() int32 {
	if !r.seeded {
		r.x, r.seeded = 0x1234ABCD330E, true
	}
	r.x = (r.x*0x5DEECE66D + 0xB) & (1<<48 - 1)
	return int32(r.x >> 17)
}
