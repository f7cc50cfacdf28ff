package engine

import (
	"fmt"
	"sync"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/lualib"
	"github.com/ratelimit-functions/ratelimit/internal/luasource"
	lua "github.com/yuin/gopher-lua"
)

// Maximum depths of nested Lua calls, as in Redis, and of nested pcalls. Each pcall halves the
// maximum depth of the calls in it, but not below minCalls. The depths are bounded because a call
// from a library function or a metamethod takes up to a KiB of Go's stack, and Go ends the process
// if the stack exceeds 512 MiB.
const (
	maxCalls  = 20000
	minCalls  = 200
	maxPCalls = 200
)

// threads runs functions. Each call and each pcall gets its own Lua thread, for two reasons. First,
// after an error, the thread is dropped instead of unwinding its stack, which may contain millions
// of tail calls. Second, when an error is raised, gopher-lua closes the variables of all functions
// on the thread's stack, including functions outside the pcall.
type threads struct {
	L      *lua.LState // used only to open the libraries
	budget *budget
	idle   [][]*lua.LState // idle threads, by the number of enclosing pcalls
	depth  int             // number of pcalls around the running function
}

func newThreads() *threads {
	return &threads{budget: newBudget(), L: lua.NewState(lua.Options{
		SkipOpenLibs: true, CallStackSize: maxCalls, MinimizeStackMemory: true,
		RegistrySize: 1024, RegistryMaxSize: 1 << 20, RegistryGrowStep: 1024,
	})}
}

// raised carries an error value out of a thread in a panic.
type raised struct{ value lua.LValue }

// call runs f on a thread. The function push pushes the arguments of f onto the thread's stack. When
// f has returned, call passes the thread to the function done; the results are on the thread's stack
// from index 1 on. If an error ends f, call returns the error's value.
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
		case error: // a Go run-time error, because gopher-lua relies on Go for some checks
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

// pcall implements Redis's pcall. After an error, it returns false and the error's value. If the
// value is a table whose field err is a string or a number, pcall returns false and that field. For
// any other table, it returns false, the table and the field.
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
	if table, ok := failure.(*lua.LTable); ok {
		field := table.RawGetString("err")
		if _, ok := lualib.ToText(field); !ok {
			L.Push(table)
			L.Push(field)
			return 3
		}
		failure = field
	}
	L.Push(failure)
	return 2
}

// compiled caches up to maxCompiled compiled libraries for this process. Programs such as tests
// start many servers with the same few libraries, and compiling takes longer than the rest of the
// startup.
var (
	compiledMu sync.Mutex
	compiled   = map[string]*lua.FunctionProto{}
)

const maxCompiled = 8

// prototype compiles a library's source code, or returns the cached result.
func prototype(text string) (*lua.FunctionProto, error) {
	compiledMu.Lock()
	proto := compiled[text]
	compiledMu.Unlock()
	if proto != nil {
		return proto, nil
	}
	tree, err := luasource.Read(text, nil)
	if err != nil {
		return nil, err
	}
	proto, err = lua.Compile(tree, luasource.Name)
	if err != nil {
		return nil, err
	}
	compiledMu.Lock()
	defer compiledMu.Unlock()
	if len(compiled) >= maxCompiled {
		clear(compiled)
	}
	compiled[text] = proto
	return proto, nil
}

// compile compiles a library's source code into a function that runs it with the given globals.
func (t *threads) compile(text string, globals *lua.LTable) (f *lua.LFunction, err error) {
	defer func() {
		if r := recover(); r != nil { // gopher-lua's compiler does not check some of its limits
			err = fmt.Errorf("%s: gopher-lua cannot compile it (%v); split up its largest function", luasource.Name, r)
		}
	}()
	proto, err := prototype(text)
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

// environment returns a read-only table of globals and a function that replaces its contents. Loads
// and calls need different contents. Reading an absent global raises an error, as in Redis.
func environment(L *lua.LState) (globals *lua.LTable, show func(*lua.LTable)) {
	meta := L.NewTable()
	meta.RawSetString("__newindex", L.NewFunction(lualib.ReadOnly))
	globals = L.NewTable()
	globals.Metatable = meta
	return globals, func(t *lua.LTable) { meta.RawSetString("__index", t) }
}

// raiseMissing makes t raise an error if an absent field is read.
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
