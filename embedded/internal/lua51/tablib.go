package lua51

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

func (rt *Runtime) openTable() {
	t := rt.L.NewTable()
	rt.globals.RawSetString("table", t)
	rt.Functions(t, map[string]lua.LGFunction{
		"concat":   rt.tabConcat,
		"foreach":  rt.tabForeach,
		"foreachi": rt.tabForeachI,
		"getn":     func(L *lua.LState) int { L.Push(lua.LNumber(rt.behind(CheckTable(L, 1)).Len())); return 1 },
		"insert":   rt.tabInsert,
		"maxn":     rt.tabMaxn,
		"remove":   rt.tabRemove,
		"setn": func(L *lua.LState) int {
			CheckTable(L, 1)
			Errorf(L, "'setn' is obsolete")
			return 0
		},
		"sort": rt.tabSort,
	})
}

func (rt *Runtime) tabConcat(L *lua.LState) int {
	t := rt.behind(CheckTable(L, 1))
	sep := OptString(L, 2, "")
	i := OptInt(L, 3, 1)
	last := OptInt(L, 4, t.Len())
	var b strings.Builder
	for ; i <= last; i++ {
		v := t.RawGet(lua.LNumber(i))
		s, ok := ToString(v)
		if !ok {
			Errorf(L, "invalid value (%s) at index %d in table for 'concat'", v.Type(), i)
		}
		b.WriteString(s)
		if i < last {
			b.WriteString(sep)
		}
	}
	L.Push(lua.LString(b.String()))
	return 1
}

func (rt *Runtime) tabInsert(L *lua.LState) int {
	t := rt.checkWritable(L, 1)
	e := t.Len() + 1
	switch L.GetTop() {
	case 2:
		t.RawSetInt(e, L.Get(2))
	case 3:
		pos := CheckInt(L, 2)
		if pos > e {
			Errorf(L, "the embedded server refuses table.insert at %d, past the end (the table has %d elements): "+
				"it could not keep the table's length as Redis does; use t[%d] = v", pos, e-1, pos)
		}
		for i := e; i > pos; i-- {
			t.RawSet(lua.LNumber(i), t.RawGet(lua.LNumber(i-1)))
		}
		t.RawSet(lua.LNumber(pos), L.Get(3))
	default:
		Errorf(L, "wrong number of arguments to 'insert'")
	}
	return 0
}

func (rt *Runtime) tabRemove(L *lua.LState) int {
	t := rt.checkWritable(L, 1)
	e := t.Len()
	pos := OptInt(L, 2, e)
	if pos < 1 || pos > e {
		return 0
	}
	L.Push(t.RawGetInt(pos))
	for ; pos < e; pos++ {
		t.RawSetInt(pos, t.RawGetInt(pos+1))
	}
	t.RawSetInt(e, lua.LNil)
	return 1
}

func (rt *Runtime) tabMaxn(L *lua.LState) int {
	max := 0.0
	rt.behind(CheckTable(L, 1)).ForEach(func(k, _ lua.LValue) {
		if n, ok := k.(lua.LNumber); ok && float64(n) > max {
			max = float64(n)
		}
	})
	L.Push(lua.LNumber(max))
	return 1
}

func (rt *Runtime) tabForeach(L *lua.LState) int {
	t := rt.behind(CheckTable(L, 1))
	fn := CheckFunction(L, 2)
	for k, v := t.Next(lua.LNil); k != lua.LNil; k, v = t.Next(k) {
		if r := call2(L, fn, k, v); r != lua.LNil {
			L.Push(r)
			return 1
		}
	}
	return 0
}

func (rt *Runtime) tabForeachI(L *lua.LState) int {
	t := rt.behind(CheckTable(L, 1))
	fn := CheckFunction(L, 2)
	for i, n := 1, t.Len(); i <= n; i++ {
		if r := call2(L, fn, lua.LNumber(i), t.RawGetInt(i)); r != lua.LNil {
			L.Push(r)
			return 1
		}
	}
	return 0
}

func call2(L *lua.LState, fn, a, b lua.LValue) lua.LValue {
	L.Push(fn)
	L.Push(a)
	L.Push(b)
	L.Call(2, 1)
	r := L.Get(-1)
	L.Pop(1)
	return r
}

// tabSort is PUC's quicksort (ltablib.c), step by step: with an inconsistent
// order function, or one with effects, the result depends on the steps.
func (rt *Runtime) tabSort(L *lua.LState) int {
	t := rt.checkWritable(L, 1)
	n := t.Len()
	var fn *lua.LFunction
	if L.Get(2) != lua.LNil {
		fn = CheckFunction(L, 2)
	}
	s := &sorter{L: L, t: t, fn: fn, budget: rt.budget}
	s.sort(1, n)
	return 0
}

type sorter struct {
	L      *lua.LState
	t      *lua.LTable
	fn     *lua.LFunction
	budget *budget
}

func (s *sorter) get(i int) lua.LValue    { return s.t.RawGet(lua.LNumber(i)) }
func (s *sorter) set(i int, v lua.LValue) { s.t.RawSet(lua.LNumber(i), v) }

func (s *sorter) less(a, b lua.LValue) bool {
	if s.budget.work(1) {
		Errorf(s.L, "sorting ran too long")
	}
	if s.fn != nil {
		return lua.LVAsBool(call2(s.L, s.fn, a, b))
	}
	if a.Type() != b.Type() {
		Raise(s.L, "attempt to compare "+a.Type().String()+" with "+b.Type().String())
	}
	switch a := a.(type) {
	case lua.LNumber:
		return a < b.(lua.LNumber)
	case lua.LString:
		return a < b.(lua.LString)
	case *lua.LTable:
		if fn := userMeta(a, "__lt"); fn != lua.LNil && fn == userMeta(b, "__lt") {
			return lua.LVAsBool(call2(s.L, fn, a, b))
		}
	}
	Raise(s.L, "attempt to compare two "+a.Type().String()+" values")
	return false
}

func (s *sorter) sort(l, u int) {
	for l < u {
		a, b := s.get(l), s.get(u)
		if s.less(b, a) {
			s.set(l, b)
			s.set(u, a)
		}
		if u-l == 1 {
			return
		}
		i := (l + u) / 2
		a, b = s.get(i), s.get(l)
		if s.less(a, b) {
			s.set(i, b)
			s.set(l, a)
		} else if b = s.get(u); s.less(b, a) {
			s.set(i, b)
			s.set(u, a)
		}
		if u-l == 2 {
			return
		}
		pivot := s.get(i)
		s.set(i, s.get(u-1))
		s.set(u-1, pivot)
		i, j := l, u-1
		for {
			for i++; s.less(s.get(i), pivot); i++ {
				if i > u {
					Errorf(s.L, "invalid order function for sorting")
				}
			}
			for j--; s.less(pivot, s.get(j)); j-- {
				if j < l {
					Errorf(s.L, "invalid order function for sorting")
				}
			}
			if j < i {
				break
			}
			a, b := s.get(i), s.get(j)
			s.set(i, b)
			s.set(j, a)
		}
		a, b = s.get(u-1), s.get(i)
		s.set(u-1, b)
		s.set(i, a)
		if i-l < u-i {
			s.sort(l, i-1)
			l = i + 1
		} else {
			s.sort(i+1, u)
			u = i - 1
		}
	}
}
