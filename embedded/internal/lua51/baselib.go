package lua51

import (
	"fmt"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

func (rt *Runtime) openBase() {
	L, g := rt.L, rt.globals
	g.RawSetString("_VERSION", lua.LString("Lua 5.1"))
	rt.Functions(g, map[string]lua.LGFunction{
		"assert":         baseAssert,
		"collectgarbage": baseCollectGarbage,
		"error":          baseError,
		"gcinfo":         func(L *lua.LState) int { L.Push(lua.LNumber(memoryInUse)); return 1 },
		"getmetatable":   rt.baseGetMetatable,
		"load":           rt.baseLoad,
		"loadstring":     rt.baseLoadString,
		"next":           rt.baseNext,
		"pcall":          rt.basePCall,
		"rawequal":       baseRawEqual,
		"rawget":         rt.baseRawGet,
		"rawset":         rt.baseRawSet,
		"select":         baseSelect,
		"setmetatable":   rt.baseSetMetatable,
		"tonumber":       baseToNumber,
		"tostring":       rt.baseToString,
		"type":           baseType,
		"unpack":         rt.baseUnpack,
		"xpcall":         rt.baseXPCall,
	})
	next := g.RawGetString("next")
	g.RawSetString("pairs", L.NewFunction(func(L *lua.LState) int {
		t := CheckTable(L, 1)
		L.Push(next)
		L.Push(t)
		L.Push(lua.LNil)
		return 3
	}))
	step := L.NewFunction(rt.ipairsStep)
	g.RawSetString("ipairs", L.NewFunction(func(L *lua.LState) int {
		t := CheckTable(L, 1)
		L.Push(step)
		L.Push(t)
		L.Push(lua.LNumber(0))
		return 3
	}))
}

// memoryInUse is what collectgarbage("count") and gcinfo answer, in KB. Go's
// heap is not Lua's, so the number is fixed rather than misleading.
const memoryInUse = 64

func baseAssert(L *lua.LState) int {
	CheckAny(L, 1)
	if !lua.LVAsBool(L.Get(1)) {
		Errorf(L, "%s", OptString(L, 2, "assertion failed!"))
	}
	return L.GetTop()
}

func baseCollectGarbage(L *lua.LState) int {
	switch opt := OptString(L, 1, "collect"); opt {
	case "count":
		L.Push(lua.LNumber(memoryInUse))
	case "step":
		L.Push(lua.LTrue)
	case "collect", "stop", "restart", "setpause", "setstepmul":
		L.Push(lua.LNumber(0))
	default:
		ArgError(L, 1, fmt.Sprintf("invalid option '%s'", opt))
	}
	return 1
}

func baseError(L *lua.LState) int {
	level := OptInt(L, 2, 1)
	v := L.Get(1)
	if s, ok := ToString(v); ok && level > 0 {
		v = lua.LString(Where(L, level) + s)
	}
	RaiseValue(L, v)
	return 0
}

func (rt *Runtime) baseGetMetatable(L *lua.LState) int {
	v := CheckAny(L, 1)
	switch v := v.(type) {
	case *lua.LTable:
		if rt.isFrozen(v) {
			L.Push(lua.LNil)
			return 1
		}
	case lua.LString:
		L.Push(rt.strings)
		return 1
	case *lua.LUserData:
	default:
		// The other built-in types have metatables here only to word errors.
		L.Push(lua.LNil)
		return 1
	}
	L.Push(L.GetMetatable(v))
	return 1
}

func (rt *Runtime) baseSetMetatable(L *lua.LState) int {
	t := CheckTable(L, 1)
	mt := L.Get(2)
	if L.GetTop() < 2 || mt != lua.LNil && mt.Type() != lua.LTTable {
		ArgError(L, 2, "nil or table expected")
	}
	if rt.isFrozen(t) {
		Raise(L, readonlyMessage)
	}
	if old, ok := t.Metatable.(*lua.LTable); ok && rt.behind(old).RawGetString("__metatable") != lua.LNil {
		Errorf(L, "cannot change a protected metatable")
	}
	if m, ok := mt.(*lua.LTable); ok {
		m = rt.behind(m)
		if m.RawGetString("__len") != lua.LNil {
			Errorf(L, "the embedded server refuses a table's __len: Redis ignores it (Lua 5.1), gopher-lua does not; remove it")
		}
		mt = m
	}
	t.Metatable = mt
	L.SetTop(1)
	return 1
}

func (rt *Runtime) baseNext(L *lua.LState) int {
	t := rt.behind(CheckTable(L, 1))
	k, v := t.Next(L.Get(2))
	if k == lua.LNil {
		L.Push(lua.LNil)
		return 1
	}
	L.Push(k)
	L.Push(v)
	return 2
}

func (rt *Runtime) ipairsStep(L *lua.LState) int {
	t := rt.behind(CheckTable(L, 1))
	i := CheckInt(L, 2) + 1
	v := t.RawGetInt(i)
	if v == lua.LNil {
		L.Push(lua.LNil)
		return 1
	}
	L.Push(lua.LNumber(i))
	L.Push(v)
	return 2
}

// ErrorValue is the Lua value that an error carries, with the messages of
// gopher-lua's own machine reworded as PUC words them.
func (rt *Runtime) ErrorValue(err error) lua.LValue {
	api, ok := err.(*lua.ApiError)
	if !ok || api.Object == nil {
		return lua.LString(err.Error())
	}
	if s, ok := api.Object.(lua.LString); ok {
		return lua.LString(rewordError(string(s)))
	}
	return api.Object
}

func baseRawEqual(L *lua.LState) int {
	CheckAny(L, 2)
	L.Push(lua.LBool(L.RawEqual(CheckAny(L, 1), L.Get(2))))
	return 1
}

func (rt *Runtime) baseRawGet(L *lua.LState) int {
	t := rt.behind(CheckTable(L, 1))
	L.Push(t.RawGet(CheckAny(L, 2)))
	return 1
}

func (rt *Runtime) baseRawSet(L *lua.LState) int {
	t := CheckTable(L, 1)
	k, v := CheckAny(L, 2), CheckAny(L, 3)
	if rt.isFrozen(t) {
		Raise(L, readonlyMessage)
	}
	checkKey(L, k)
	t.RawSet(k, v)
	L.SetTop(1)
	return 1
}

func checkKey(L *lua.LState, k lua.LValue) {
	switch k := k.(type) {
	case *lua.LNilType:
		Raise(L, "table index is nil")
	case lua.LNumber:
		if k != k {
			Raise(L, "table index is NaN")
		}
	}
}

func baseSelect(L *lua.LState) int {
	top := L.GetTop()
	if s, ok := L.Get(1).(lua.LString); ok && strings.HasPrefix(string(s), "#") {
		L.Push(lua.LNumber(top - 1))
		return 1
	}
	i := CheckInt(L, 1)
	if i < 0 {
		i = top + i
	} else if i > top {
		i = top
	}
	if i < 1 {
		ArgError(L, 1, "index out of range")
	}
	return top - i
}

func baseToNumber(L *lua.LState) int {
	base := OptInt(L, 2, 10)
	if base == 10 {
		if v, ok := ToNumber(CheckAny(L, 1)); ok {
			L.Push(lua.LNumber(v))
			return 1
		}
		L.Push(lua.LNil)
		return 1
	}
	s := CheckString(L, 1)
	if base < 2 || base > 36 {
		ArgError(L, 2, "base out of range")
	}
	if v, ok := parseBase(s, base); ok {
		L.Push(lua.LNumber(v))
		return 1
	}
	L.Push(lua.LNil)
	return 1
}

func (rt *Runtime) baseToString(L *lua.LState) int {
	v := CheckAny(L, 1)
	switch v := v.(type) {
	case lua.LString:
		L.Push(v)
	case lua.LNumber:
		L.Push(lua.LString(FormatNumber(float64(v))))
	case *lua.LTable, *lua.LUserData:
		if fn := L.GetMetaField(v, "__tostring"); fn != lua.LNil {
			L.Push(fn)
			L.Push(v)
			L.Call(1, 1)
			return 1
		}
		if v == lua.LValue(rt.Null) {
			L.Push(lua.LString("userdata: (nil)"))
			return 1
		}
		L.Push(lua.LString(address(v)))
	default:
		L.Push(lua.LString(address(v)))
	}
	return 1
}

func address(v lua.LValue) string {
	switch v.(type) {
	case *lua.LFunction:
		return fmt.Sprintf("function: %p", v)
	case *lua.LTable, *lua.LUserData, *lua.LState:
		return fmt.Sprintf("%s: %p", v.Type(), v)
	}
	return v.String()
}

func baseType(L *lua.LState) int {
	L.Push(lua.LString(CheckAny(L, 1).Type().String()))
	return 1
}

// maxResults is how many values PUC lets a function push (LUAI_MAXCSTACK).
const maxResults = 8000

func (rt *Runtime) baseUnpack(L *lua.LState) int {
	t := rt.behind(CheckTable(L, 1))
	i := OptInt(L, 2, 1)
	e := OptInt(L, 3, t.Len())
	if i > e {
		return 0
	}
	n := e - i + 1
	if n+L.GetTop() > maxResults {
		Errorf(L, "too many results to unpack")
	}
	for ; i <= e; i++ {
		L.Push(t.RawGet(lua.LNumber(i)))
	}
	return n
}

func (rt *Runtime) baseLoadString(L *lua.LState) int {
	s := CheckString(L, 1)
	return rt.load(L, s, OptString(L, 2, s))
}

func (rt *Runtime) baseLoad(L *lua.LState) int {
	fn := CheckFunction(L, 1)
	name := OptString(L, 2, "=(load)")
	var b strings.Builder
	for {
		L.Push(fn)
		L.Call(0, 1)
		v := L.Get(-1)
		L.Pop(1)
		if v == lua.LNil {
			break
		}
		s, ok := ToString(v)
		if !ok {
			Errorf(L, "reader function must return a string")
		}
		if s == "" {
			break
		}
		b.WriteString(s)
	}
	return rt.load(L, b.String(), name)
}

func (rt *Runtime) load(L *lua.LState, text, name string) int {
	fn, err := rt.Compile(text, name, rt.Env)
	if err != nil {
		L.Push(lua.LNil)
		L.Push(lua.LString(err.Error()))
		return 2
	}
	L.Push(fn)
	return 1
}
