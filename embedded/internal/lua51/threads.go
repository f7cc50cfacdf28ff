package lua51

import lua "github.com/yuin/gopher-lua"

// protected runs fn with args on a thread of its own and gives its results, or
// the error value that ended it.
//
// A thread, because gopher-lua, when an error is raised, closes the upvalues of
// all functions on the stack, also of those that go on after the pcall: their
// closures would no longer share locals with them.
func (rt *Runtime) protected(fn lua.LValue, args []lua.LValue) ([]lua.LValue, lua.LValue) {
	th := rt.takeThread()
	th.Push(fn)
	for _, a := range args {
		th.Push(a)
	}
	rt.depth++
	err := th.PCall(len(args), lua.MultRet, nil)
	rt.depth--
	if err != nil {
		th.SetTop(0)
		rt.putThread(th)
		return nil, rt.ErrorValue(err)
	}
	out := make([]lua.LValue, th.GetTop())
	for i := range out {
		out[i] = th.Get(i + 1)
	}
	th.SetTop(0)
	rt.putThread(th)
	return out, nil
}

func (rt *Runtime) takeThread() *lua.LState {
	if n := len(rt.idle); n > 0 {
		th := rt.idle[n-1]
		rt.idle = rt.idle[:n-1]
		return th
	}
	th, _ := rt.L.NewThread()
	th.SetContext(rt.budget)
	return th
}

// idleThreads is how many threads are kept for the next pcall.
const idleThreads = 8

func (rt *Runtime) putThread(th *lua.LState) {
	if len(rt.idle) < idleThreads {
		rt.idle = append(rt.idle, th)
	}
}

func arguments(L *lua.LState, from int) []lua.LValue {
	var args []lua.LValue
	for i := from; i <= L.GetTop(); i++ {
		args = append(args, L.Get(i))
	}
	return args
}

// maxProtectedDepth is PUC's LUAI_MAXCCALLS: pcalls within one another.
const maxProtectedDepth = 200

// basePCall is Redis's own pcall: an error table with a text in err is
// replaced by that text.
func (rt *Runtime) basePCall(L *lua.LState) int {
	if L.GetTop() == 0 {
		// Redis puts the result's place holder, a boolean, where it then
		// looks for the function.
		return pushAll(L, lua.LFalse, []lua.LValue{lua.LString("attempt to call a boolean value")})
	}
	if rt.depth >= maxProtectedDepth {
		Raise(L, "error in error handling")
	}
	out, failure := rt.protected(L.Get(1), arguments(L, 2))
	if failure != nil {
		if t, ok := failure.(*lua.LTable); ok {
			if msg := t.RawGetString("err"); msg.Type() == lua.LTString || msg.Type() == lua.LTNumber {
				failure = msg
			}
		}
		L.Push(lua.LFalse)
		L.Push(failure)
		return 2
	}
	return pushAll(L, lua.LTrue, out)
}

func (rt *Runtime) baseXPCall(L *lua.LState) int {
	CheckAny(L, 2)
	if rt.depth >= maxProtectedDepth {
		Raise(L, "error in error handling")
	}
	out, failure := rt.protected(L.Get(1), nil)
	if failure == nil {
		return pushAll(L, lua.LTrue, out)
	}
	out, failure = rt.protected(L.Get(2), []lua.LValue{failure})
	switch {
	case failure != nil:
		out = []lua.LValue{failure}
	case len(out) == 0:
		out = []lua.LValue{lua.LNil}
	}
	return pushAll(L, lua.LFalse, out[:1])
}

func pushAll(L *lua.LState, first lua.LValue, rest []lua.LValue) int {
	L.Push(first)
	for _, v := range rest {
		L.Push(v)
	}
	return len(rest) + 1
}

// openCoroutine is the coroutine library, with the budget watching over each.
func (rt *Runtime) openCoroutine() {
	co := rt.L.NewTable()
	rt.globals.RawSetString("coroutine", co)
	rt.Functions(co, map[string]lua.LGFunction{
		"create": func(L *lua.LState) int {
			L.Push(rt.newCoroutine(CheckFunction(L, 1)).thread)
			return 1
		},
		"wrap": func(L *lua.LState) int {
			c := rt.newCoroutine(CheckFunction(L, 1))
			L.Push(L.NewFunction(func(L *lua.LState) int {
				out, failure := rt.resume(L, c, arguments(L, 1))
				if failure != nil {
					if s, ok := failure.(lua.LString); ok {
						Raise(L, Where(L, 1)+string(s))
					}
					RaiseValue(L, failure)
				}
				for _, v := range out {
					L.Push(v)
				}
				return len(out)
			}))
			return 1
		},
		"resume": func(L *lua.LState) int {
			out, failure := rt.resume(L, rt.checkCoroutine(L, 1), arguments(L, 2))
			if failure != nil {
				L.Push(lua.LFalse)
				L.Push(failure)
				return 2
			}
			return pushAll(L, lua.LTrue, out)
		},
		"running": func(L *lua.LState) int {
			if c := coroutineOf(L); c != nil {
				L.Push(c.thread)
			} else {
				L.Push(lua.LNil)
			}
			return 1
		},
		"status": func(L *lua.LState) int {
			c := rt.checkCoroutine(L, 1)
			L.Push(lua.LString(c.status))
			return 1
		},
		"yield": func(L *lua.LState) int {
			if coroutineOf(L) == nil {
				Raise(L, "attempt to yield across metamethod/C-call boundary")
			}
			return L.Yield(arguments(L, 1)...)
		},
	})
}

// coroutine is the context of a coroutine's thread.
type coroutine struct {
	*budget
	thread *lua.LState
	fn     *lua.LFunction
	status string
}

func (rt *Runtime) newCoroutine(fn *lua.LFunction) *coroutine {
	if fn.IsG {
		Errorf(rt.L, "Lua function expected")
	}
	th, _ := rt.L.NewThread()
	c := &coroutine{rt.budget, th, fn, "suspended"}
	th.SetContext(c)
	return c
}

// coroutineOf is the coroutine that a thread belongs to, or nil.
func coroutineOf(th *lua.LState) *coroutine {
	c, _ := th.Context().(*coroutine)
	return c
}

func (rt *Runtime) checkCoroutine(L *lua.LState, n int) *coroutine {
	if th, ok := L.Get(n).(*lua.LState); ok {
		if c := coroutineOf(th); c != nil {
			return c
		}
	}
	ArgError(L, n, "coroutine expected")
	return nil
}

func (rt *Runtime) resume(L *lua.LState, c *coroutine, args []lua.LValue) ([]lua.LValue, lua.LValue) {
	if c.status != "suspended" {
		return nil, lua.LString("cannot resume " + c.status + " coroutine")
	}
	caller := coroutineOf(L)
	if caller != nil {
		caller.status = "normal"
	}
	c.status = "running"
	state, err, out := L.Resume(c.thread, c.fn, args...)
	if caller != nil {
		caller.status = "running"
	}
	switch state {
	case lua.ResumeYield:
		c.status = "suspended"
	default:
		c.status = "dead"
	}
	if err != nil {
		return nil, rt.ErrorValue(err)
	}
	return out, nil
}
