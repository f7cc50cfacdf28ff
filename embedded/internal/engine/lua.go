package engine

import (
	"fmt"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/lualib"
	"github.com/ratelimit-functions/ratelimit/internal/luasource"
	lua "github.com/yuin/gopher-lua"
)

// Lua calls within one another, as Redis has it, and pcalls. Within a pcall there may be half as many calls as around it, but
// minCalls in any case: a call out of a library function or a metamethod takes Go's stack, up to a KiB, and Go ends the process
// when that needs more than 512 MiB.
const (
	maxCalls  = 20000
	minCalls  = 200
	maxPCalls = 200
)

// threads runs functions, each call and each pcall on a Lua thread of its own. An error leaves a thread as it is: nobody
// looks for the end of its stack, which can be millions of tail calls long. And gopher-lua, when an error is raised, closes
// the variables of all functions on the thread's stack, those outside of the pcall among them.
type threads struct {
	L      *lua.LState // runs nothing but what opens the libraries
	budget *budget
	idle   [][]*lua.LState // by the number of pcalls around what they run
	depth  int             // pcalls around what runs
}

func newThreads() *threads {
	return &threads{budget: newBudget(), L: lua.NewState(lua.Options{
		SkipOpenLibs: true, CallStackSize: maxCalls, MinimizeStackMemory: true,
		RegistrySize: 1024, RegistryMaxSize: 1 << 20, RegistryGrowStep: 1024,
	})}
}

// raised is an error value on its way out of a thread.
type raised struct{ value lua.LValue }

// call runs f on a thread, and hands its results to done, or returns the value of the error that ended it. The results are
// on the thread's stack from 1 on.
func (t *threads) call(f lua.LValue, push func(th *lua.LState), done func(th *lua.LState)) (failure lua.LValue) {
	if t.depth == len(t.idle) {
		t.idle = append(t.idle, nil)
	}
	var th *lua.LState
	idle := &t.idle[t.depth]
	if n := len(*idle); n > 0 {
		th, *idle = (*idle)[n-1], (*idle)[:n-1]
	} else {
		t.L.Options.CallStackSize = max(maxCalls>>t.depth, minCalls)
		th, _ = t.L.NewThread()
		th.SetContext(t.budget)
		th.Panic = func(L *lua.LState) { panic(raised{L.Get(-1)}) }
	}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case raised:
			failure = r.value
		case error: // gopher-lua relies on Go's own checks here and there
			failure = lua.LString(r.Error())
		default:
			failure = lua.LString(fmt.Sprint(r))
		}
	}()
	th.Push(f)
	push(th)
	th.Call(th.GetTop()-1, lua.MultRet)
	done(th)
	th.SetTop(0)
	*idle = append(*idle, th)
	return nil
}

// pcall is Redis's own: of an error that is a table, it returns the field err in its place if that is a text or a number, and
// behind it if not.
func (t *threads) pcall(L *lua.LState) int {
	f := L.Get(1)
	L.SetTop(max(1, L.GetTop()))
	if t.depth >= maxPCalls {
		L.RaiseError("more than %d pcalls within one another", maxPCalls)
	}
	t.depth++
	L.Push(lua.LTrue)
	top := L.GetTop()
	failure := t.call(f, func(th *lua.LState) {
		for i := 2; i < top; i++ {
			th.Push(L.Get(i))
		}
	}, func(th *lua.LState) {
		for i := 1; i <= th.GetTop(); i++ {
			L.Push(th.Get(i))
		}
	})
	t.depth--
	if failure == nil {
		return L.GetTop() - top + 1
	}
	L.Push(lua.LFalse)
	table, ok := failure.(*lua.LTable)
	if !ok {
		L.Push(failure)
		return 2
	}
	field := table.RawGetString("err")
	if _, ok := lualib.ToText(field); ok {
		L.Push(field)
		return 2
	}
	L.Push(table)
	L.Push(field)
	return 3
}

// compile makes a library's text a function that runs it, with the given globals.
func (t *threads) compile(text string, globals *lua.LTable) (f *lua.LFunction, err error) {
	defer func() {
		if r := recover(); r != nil { // gopher-lua's compiler has limits that it does not look at
			err = fmt.Errorf("%s: gopher-lua cannot compile it (%v); split up its largest function", luasource.Name, r)
		}
	}()
	tree, err := luasource.Read(text, nil)
	if err != nil {
		return nil, err
	}
	proto, err := lua.Compile(tree, luasource.Name)
	if err != nil {
		return nil, err
	}
	outer := t.L.NewFunctionFromProto(proto)
	outer.Env = globals
	t.L.Push(outer)
	t.L.Push(t.L.NewFunction(lualib.Concat))
	t.L.Push(t.L.NewFunction(lualib.Modulo))
	t.L.Call(2, 1)
	chunk := t.L.Get(-1).(*lua.LFunction)
	t.L.SetTop(0)
	return chunk, nil
}

// environment is a table of globals that cannot be changed, whose contents can be exchanged: those of a load, and those of
// a call. Reading what is not there raises, as in Redis.
func environment(L *lua.LState) (globals *lua.LTable, show func(*lua.LTable)) {
	meta := L.NewTable()
	meta.RawSetString("__newindex", L.NewFunction(lualib.ReadOnly))
	globals = L.NewTable()
	globals.Metatable = meta
	return globals, func(t *lua.LTable) { meta.RawSetString("__index", t) }
}

// raiseMissing has reading what is not in a table raise.
func raiseMissing(L *lua.LState, t *lua.LTable) {
	meta := L.NewTable()
	meta.RawSetString("__index", L.NewFunction(func(L *lua.LState) int {
		name := L.ToStringMeta(L.Get(2)).String()
		if why, ok := luasource.Absent(name); ok {
			L.RaiseError("%s", why)
		}
		L.RaiseError("Script attempted to access nonexistent global variable '%s'", name)
		return 0
	}))
	t.Metatable = meta
}
