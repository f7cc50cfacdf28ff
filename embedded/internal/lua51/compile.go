package lua51

import (
	"fmt"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/lua51/syntax"
	lua "github.com/yuin/gopher-lua"
)

// Compile reads a chunk and gives it as a function with the given globals.
// name is a chunk name as luaL_loadbuffer takes it: "@file", "=text", or the
// source itself. Errors are worded as PUC words them.
func (rt *Runtime) Compile(text, name string, env *lua.LTable) (*lua.LFunction, error) {
	id := chunkID(name)
	if strings.HasPrefix(text, "\x1bLua") {
		return nil, fmt.Errorf("%s: bad header in precompiled chunk", id)
	}
	stmts, info, err := syntax.Parse(text, id, ParseNumber)
	if err != nil {
		return nil, err
	}
	proto, err := lua.Compile(stmts, id)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", id, err)
	}
	rt.noteSource(id, name)
	if len(proto.FunctionPrototypes) == 1 {
		rt.noteLocals(proto.FunctionPrototypes[0], info)
	}
	outer := rt.L.NewFunctionFromProto(proto)
	outer.Env = env
	L := rt.L
	top := L.GetTop()
	L.Push(outer)
	for _, h := range rt.helpers {
		L.Push(h)
	}
	L.Call(len(rt.helpers), 1)
	fn := L.Get(-1).(*lua.LFunction)
	L.SetTop(top)
	return fn, nil
}

// maxNotes bounds what is kept for messages about chunks that are long gone,
// such as those of loadstring.
const maxNotes = 10000

func (rt *Runtime) noteSource(id, name string) {
	if len(rt.sources) > maxNotes {
		clear(rt.sources)
	}
	if len(rt.budget.locals) > maxNotes {
		clear(rt.budget.locals)
	}
	rt.sources[id] = name
}

// chunkID is PUC's luaO_chunkid: how messages name a chunk.
func chunkID(name string) string {
	const size = 60 // LUA_IDSIZE
	switch {
	case strings.HasPrefix(name, "="):
		return cut(name[1:], size-1)
	case strings.HasPrefix(name, "@"):
		name = name[1:]
		if room := size - len(" '...' ") - 1; len(name) > room {
			return "..." + name[len(name)-room:]
		}
		return name
	}
	line, _, more := strings.Cut(name, "\n")
	if i := strings.IndexByte(line, '\r'); i >= 0 {
		line, more = line[:i], true
	}
	room := size - len(` [string "..."] `) - 1
	if more || len(line) > room {
		return `[string "` + cut(line, room) + `..."]`
	}
	return `[string "` + line + `"]`
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}

// openHelpers makes what compiled chunks call instead of gopher-lua's own
// instructions, in the order of syntax.Helpers.
func (rt *Runtime) openHelpers() {
	operator := func(event string, op func(a, b float64) float64) lua.LValue {
		return rt.L.NewFunction(func(L *lua.LState) int { return arithmetic(L, event, op) })
	}
	rt.helpers = []lua.LValue{
		rt.L.NewFunction(rt.concat), rt.L.NewFunction(forPrepare),
		operator("__mod", modulo), operator("__pow", pow),
	}
}

// concat is the .. operator over a chain of operands, from the right.
func (rt *Runtime) concat(L *lua.LState) int {
	top := L.GetTop()
	if top == 2 {
		if a, ok := L.Get(1).(lua.LString); ok {
			if b, ok := L.Get(2).(lua.LString); ok {
				L.Push(a + b)
				return 1
			}
		}
	}
	// Pieces are collected from the right, up to an operand that needs a
	// metamethod.
	pieces := make([]string, top)
	acc := L.Get(top)
	for i := top - 1; i >= 1; {
		s, ok := ToString(acc)
		left, lok := ToString(L.Get(i))
		if !ok || !lok {
			acc = rt.concatMeta(L, L.Get(i), acc, i)
			i--
			continue
		}
		n := top
		n--
		pieces[n] = s
		for lok {
			n--
			pieces[n] = left
			i--
			if i < 1 {
				break
			}
			left, lok = ToString(L.Get(i))
		}
		acc = lua.LString(strings.Join(pieces[n:], ""))
	}
	L.Push(acc)
	return 1
}

// concatMeta joins operands i and i+1, at least one of which is not a string.
func (rt *Runtime) concatMeta(L *lua.LState, a, b lua.LValue, i int) lua.LValue {
	for _, v := range []lua.LValue{a, b} {
		if fn := userMeta(v, "__concat"); fn != lua.LNil {
			L.Push(fn)
			L.Push(a)
			L.Push(b)
			L.Call(2, 1)
			r := L.Get(-1)
			L.Pop(1)
			return r
		}
	}
	if _, ok := ToString(a); ok {
		a = b
		i++
	}
	Errorf(L, "attempt to concatenate %s", describe(L, a, i))
	return nil
}

// userMeta is a metamethod that a script can have set.
func userMeta(v lua.LValue, event string) lua.LValue {
	var mt lua.LValue
	switch v := v.(type) {
	case *lua.LTable:
		mt = v.Metatable
	case *lua.LUserData:
		mt = v.Metatable
	}
	if t, ok := mt.(*lua.LTable); ok {
		return t.RawGetString(event)
	}
	return lua.LNil
}

func forPrepare(L *lua.LState) int {
	for i, what := range []string{"initial value", "limit", "step"} {
		v, ok := ToNumber(L.Get(i + 1))
		if !ok {
			Errorf(L, "'for' %s must be a number", what)
		}
		L.Push(lua.LNumber(v))
	}
	return 3
}

// arithmetic is what the operators do with operands that are not both numbers.
func arithmetic(L *lua.LState, event string, op func(a, b float64) float64) int {
	a, b := L.Get(1), L.Get(2)
	x, okA := ToNumber(a)
	y, okB := ToNumber(b)
	if okA && okB {
		L.Push(lua.LNumber(op(x, y)))
		return 1
	}
	for _, v := range []lua.LValue{a, b} {
		if fn := userMeta(v, event); fn != lua.LNil {
			L.Push(fn)
			L.Push(a)
			L.Push(b)
			L.Call(2, 1)
			return 1
		}
	}
	wrong, operand := a, 1
	if okA {
		wrong, operand = b, 2
	}
	Errorf(L, "attempt to perform arithmetic on %s", describe(L, wrong, operand))
	return 0
}

// openMetatables gives the built-in types metatables that do what Lua 5.1 does
// and word errors as it does. Scripts do not get to see them.
func (rt *Runtime) openMetatables() {
	L := rt.L
	mt := L.NewTable()
	ops := map[string]func(a, b float64) float64{
		"__add": func(a, b float64) float64 { return a + b },
		"__sub": func(a, b float64) float64 { return a - b },
		"__mul": func(a, b float64) float64 { return a * b },
		"__div": func(a, b float64) float64 { return a / b },
		"__mod": modulo,
		"__pow": pow,
	}
	for event, op := range ops {
		mt.RawSetString(event, L.NewFunction(func(L *lua.LState) int { return arithmetic(L, event, op) }))
	}
	rt.Functions(mt, map[string]lua.LGFunction{
		"__unm": func(L *lua.LState) int {
			v, ok := ToNumber(L.Get(1))
			if !ok {
				Errorf(L, "attempt to perform arithmetic on %s", describe(L, L.Get(1), 1))
			}
			L.Push(lua.LNumber(-v))
			return 1
		},
		"__index":    wrong("index"),
		"__newindex": wrong("index"),
		"__call":     wrong("call"),
		"__len":      wrong("get length of"),
		"__lt":       compareSame,
		"__le":       compareSame,
	})
	for _, v := range []lua.LValue{lua.LNil, lua.LTrue, lua.LNumber(0), L.NewFunction(baseType)} {
		L.SetMetatable(v, mt)
	}
	str := L.NewTable()
	mt.ForEach(func(k, v lua.LValue) { str.RawSet(k, v) })
	str.RawSetString("__len", lua.LNil)
	str.RawSetString("__lt", lua.LNil)
	str.RawSetString("__le", lua.LNil)
	str.RawSetString("__index", rt.globals.RawGetString("string"))
	L.SetMetatable(lua.LString(""), str)
	rt.stringMeta = L.NewTable()
	rt.strings = rt.Freeze(rt.stringMeta)
}

func wrong(what string) lua.LGFunction {
	return func(L *lua.LState) int {
		Errorf(L, "attempt to %s %s", what, describe(L, L.Get(1), 1))
		return 0
	}
}

func compareSame(L *lua.LState) int {
	Errorf(L, "attempt to compare two %s values", L.Get(1).Type())
	return 0
}
