// Package lua51 makes a gopher-lua state behave as the Lua 5.1 inside Redis
// does: its numbers, its standard library, its error messages, and the
// protection that Redis puts over globals and library tables.
package lua51

import (
	"fmt"
	"time"

	lua "github.com/yuin/gopher-lua"
)

const readonlyMessage = "Attempt to modify a readonly table"

// Runtime is one Lua state with the standard library of Redis. It is not safe
// for concurrent use.
type Runtime struct {
	L *lua.LState

	globals *lua.LTable                 // what a call sees, before protection
	frozen  map[*lua.LTable]*lua.LTable // read-only table -> the table behind it
	strings *lua.LTable                 // metatable of strings, as scripts see it

	stringMeta *lua.LTable  // behind strings
	helpers    []lua.LValue // what compiled chunks call by hidden names
	budget     *budget
	random     lrand48

	Env  *lua.LTable    // globals of what load and loadstring make
	Null *lua.LUserData // C's NULL as a light userdata: cjson.null

	idle    []*lua.LState
	depth   int               // of pcalls within one another
	sources map[string]string // chunk names by how messages name the chunk
}

// A table's array would grow up to any whole number that is used as a key, a minute since the epoch say. Beyond this many
// elements keys are hashed instead. The setting is gopher-lua's own, for the whole process, and changes no meaning below it.
const longestArray = 1 << 22

func init() { lua.MaxArrayIndex = longestArray }

// New makes a state whose globals are the standard library as Redis offers it
// at call time. Add what else is needed with Globals, then call Protect.
func New() *Runtime {
	L := lua.NewState(lua.Options{
		SkipOpenLibs:     true,
		CallStackSize:    maxCallDepth,
		RegistrySize:     1024,
		RegistryMaxSize:  1024 * 1024,
		RegistryGrowStep: 1024,

		MinimizeStackMemory: true,
	})
	rt := &Runtime{L: L, frozen: map[*lua.LTable]*lua.LTable{}, sources: map[string]string{}, globals: L.NewTable()}
	rt.budget = newBudget()
	L.SetContext(rt.budget)
	rt.openBase()
	rt.openCoroutine()
	rt.openString()
	rt.openTable()
	rt.openMath()
	rt.openMetatables()
	rt.openHelpers()
	return rt
}

// maxCallDepth bounds Lua calls within one another. PUC allows 20000 Lua
// calls, and 200 of C; Go's own stack would bear many more.
const maxCallDepth = 20000

// Globals is the table of globals that calls see.
func (rt *Runtime) Globals() *lua.LTable { return rt.globals }

// Close frees the state.
func (rt *Runtime) Close() { rt.L.Close() }

// Functions adds Go functions to a table.
func (rt *Runtime) Functions(t *lua.LTable, fns map[string]lua.LGFunction) *lua.LTable {
	for name, fn := range fns {
		t.RawSetString(name, rt.L.NewFunction(fn))
	}
	return t
}

// Protect makes every table that is reachable from the globals read-only, and
// the globals themselves: reading an undefined one raises.
func (rt *Runtime) Protect() {
	var names []string
	rt.globals.ForEach(func(k, _ lua.LValue) { names = append(names, k.String()) })
	for _, name := range names {
		if t, ok := rt.globals.RawGetString(name).(*lua.LTable); ok {
			rt.globals.RawSetString(name, rt.Freeze(t))
		}
	}
	rt.stringMeta.RawSetString("__index", rt.globals.RawGetString("string"))
	g := rt.FreezeGlobals(rt.globals)
	rt.globals.RawSetString("_G", g)
}

// Freeze gives a read-only view of t. Changing t itself still shows in it.
func (rt *Runtime) Freeze(t *lua.LTable) *lua.LTable {
	mt := rt.L.NewTable()
	mt.RawSetString("__index", t)
	return rt.view(t, mt)
}

// FreezeGlobals is Freeze for a table of globals: reading what is not there
// raises, as in Redis.
func (rt *Runtime) FreezeGlobals(t *lua.LTable) *lua.LTable {
	outer := rt.L.NewTable()
	outer.RawSetString("__index", t)
	missing := rt.L.NewTable()
	missing.RawSetString("__index", rt.L.NewFunction(func(L *lua.LState) int {
		Raise(L, Where(L, 1)+fmt.Sprintf("Script attempted to access nonexistent global variable '%s'", textOf(L.Get(2))))
		return 0
	}))
	t.Metatable = missing
	return rt.view(t, outer)
}

// Env is a read-only table of globals whose contents can be exchanged.
type Env struct {
	Table *lua.LTable
	meta  *lua.LTable
}

// NewEnv makes one that shows t, which FreezeGlobals or Protect has seen.
func (rt *Runtime) NewEnv(t *lua.LTable) *Env {
	meta := rt.L.NewTable()
	env := &Env{Table: rt.view(t, meta), meta: meta}
	env.Use(t)
	return env
}

// Use has the environment show t.
func (e *Env) Use(t *lua.LTable) { e.meta.RawSetString("__index", t) }

func (rt *Runtime) view(t, mt *lua.LTable) *lua.LTable {
	mt.RawSetString("__newindex", rt.L.NewFunction(func(L *lua.LState) int {
		Raise(L, Where(L, 1)+readonlyMessage)
		return 0
	}))
	view := rt.L.NewTable()
	view.Metatable = mt
	rt.frozen[view] = t
	return view
}

// Behind is the table itself, or the one behind a read-only view.
func (rt *Runtime) Behind(t *lua.LTable) *lua.LTable { return rt.behind(t) }

// behind is the table itself, or the one behind a read-only view.
func (rt *Runtime) behind(t *lua.LTable) *lua.LTable {
	if t.Metatable == lua.LNil {
		return t
	}
	if real, ok := rt.frozen[t]; ok {
		return real
	}
	return t
}

func (rt *Runtime) isFrozen(t *lua.LTable) bool {
	if t.Metatable == lua.LNil {
		return false
	}
	_, ok := rt.frozen[t]
	return ok
}

// checkWritable demands a table that may be changed.
func (rt *Runtime) checkWritable(L *lua.LState, n int) *lua.LTable {
	t := CheckTable(L, n)
	if rt.isFrozen(t) {
		Raise(L, readonlyMessage)
	}
	return t
}

func textOf(v lua.LValue) string {
	if s, ok := ToString(v); ok {
		return s
	}
	return v.Type().String()
}

// Call runs fn with args and gives its first result; the error that ends it is
// a *lua.ApiError whose Object is the Lua error value, or ErrBudget.
func (rt *Runtime) Call(fn *lua.LFunction, limit time.Duration, args ...lua.LValue) (lua.LValue, error) {
	rt.budget.start(limit)
	defer rt.budget.stop()
	L := rt.L
	L.SetTop(0)
	L.Push(fn)
	for _, a := range args {
		L.Push(a)
	}
	if err := L.PCall(len(args), 1, nil); err != nil {
		if rt.budget.spent {
			return nil, ErrBudget
		}
		return nil, err
	}
	v := L.Get(-1)
	L.SetTop(0)
	return v, nil
}
