package lualib

import lua "github.com/yuin/gopher-lua"

// tabSort implements the quicksort of Lua 5.1 (ltablib.c) step by step, because the order of equal
// elements depends on the steps. gopher-lua's sort would also include trailing elements that were
// set to nil.
func tabSort(L *lua.LState) int {
	t := L.CheckTable(1)
	s := &sorter{meter: meter{L: L}, t: t}
	if L.Get(2) != lua.LNil {
		s.by = L.CheckFunction(2)
	}
	s.sort(1, t.Len())
	return 0
}

type sorter struct {
	meter
	t  *lua.LTable
	by *lua.LFunction
}

func (s *sorter) get(i int) lua.LValue    { return s.t.RawGet(lua.LNumber(i)) }
func (s *sorter) set(i int, v lua.LValue) { s.t.RawSet(lua.LNumber(i), v) }

func (s *sorter) less(a, b lua.LValue) bool {
	text, _ := a.(lua.LString)
	s.steps(1 + len(text))
	if s.by == nil {
		return s.L.LessThan(a, b)
	}
	return lua.LVAsBool(call(s.L, s.by, a, b))
}

func (s *sorter) swap(i, j int) {
	a, b := s.get(i), s.get(j)
	s.set(i, b)
	s.set(j, a)
}

// order swaps two elements if they are not in order, and reports whether it did.
func (s *sorter) order(i, j int) bool {
	swap := s.less(s.get(j), s.get(i))
	if swap {
		s.swap(i, j)
	}
	return swap
}

func (s *sorter) sort(l, u int) {
	for l < u {
		s.order(l, u)
		if u-l == 1 {
			return
		}
		i := (l + u) / 2
		if !s.order(l, i) {
			s.order(i, u)
		}
		if u-l == 2 {
			return
		}
		pivot := s.get(i)
		s.swap(i, u-1)
		i, j := l, u-1
		for {
			for i++; s.less(s.get(i), pivot); i++ {
				s.checkOrder(i <= u)
			}
			for j--; s.less(pivot, s.get(j)); j-- {
				s.checkOrder(j >= l)
			}
			if j < i {
				break
			}
			s.swap(i, j)
		}
		s.swap(u-1, i)
		if i-l < u-i {
			s.sort(l, i-1)
			l = i + 1
		} else {
			s.sort(i+1, u)
			u = i - 1
		}
	}
}

func (s *sorter) checkOrder(ok bool) {
	if !ok {
		s.L.RaiseError("invalid order function for sorting")
	}
}
