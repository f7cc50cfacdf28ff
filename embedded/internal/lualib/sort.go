package lualib

import lua "github.com/yuin/gopher-lua"

// tabSort implements the quicksort of Lua 5.1 (ltablib.c) step by step, because the order of equal
// elements depends on the steps. gopher-lua's sort also includes trailing elements that were set to
// nil.
func tabSort(L *lua.LState) int {
	t := L.CheckTable(1)
	s := &sorter{meter: meter{L: L}, t: t}
	if L.Get(2) != lua.LNil {
		s.order = L.CheckFunction(2)
	}
	s.sort(1, t.Len())
	return 0
}

type sorter struct {
	meter
	t     *lua.LTable
	order *lua.LFunction
}

func (s *sorter) get(i int) lua.LValue    { return s.t.RawGet(lua.LNumber(i)) }
func (s *sorter) set(i int, v lua.LValue) { s.t.RawSet(lua.LNumber(i), v) }

func (s *sorter) less(a, b lua.LValue) bool {
	text, _ := a.(lua.LString)
	s.steps(1 + len(text))
	if s.order == nil {
		return s.L.LessThan(a, b)
	}
	s.L.Push(s.order)
	s.L.Push(a)
	s.L.Push(b)
	s.L.Call(2, 1)
	r := s.L.Get(-1)
	s.L.Pop(1)
	return lua.LVAsBool(r)
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
					s.L.RaiseError("invalid order function for sorting")
				}
			}
			for j--; s.less(pivot, s.get(j)); j-- {
				if j < l {
					s.L.RaiseError("invalid order function for sorting")
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
