package lualib

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

func openTable(L *lua.LState) *lua.LTable {
	stock := L.GetGlobal("table").(*lua.LTable)
	insert := stock.RawGetString("insert").(*lua.LFunction).GFunction
	t := set(L, L.NewTable(), map[string]lua.LGFunction{
		"concat": tabConcat, "remove": tabRemove, "sort": tabSort,
		"insert": func(L *lua.LState) int { return tabInsert(L, insert) },
	})
	take(stock, t, "getn", "maxn")
	return t
}

// tabInsert implements table.insert with stock, the function of gopher-lua. It rejects positions
// for which stock would not produce the same table as Lua.
func tabInsert(L *lua.LState, stock lua.LGFunction) int {
	t := L.CheckTable(1)
	if L.GetTop() != 2 && L.GetTop() != 3 {
		L.RaiseError("wrong number of arguments to 'insert'")
	}
	if L.GetTop() == 3 {
		at := integer(L, 2)
		if n := t.Len(); at < 1 || at > n+1 {
			L.RaiseError("the embedded server refuses table.insert at position %d in a table of length %d: its length would differ from that in Redis; use t[%d] = v", at, n, at)
		}
		L.Replace(2, lua.LNumber(at))
	}
	return stock(L)
}

func tabConcat(L *lua.LState) int {
	t := L.CheckTable(1)
	separator := ""
	if L.Get(2) != lua.LNil {
		separator = Text(L, 2)
	}
	var b strings.Builder
	for i, last := optInteger(L, 3, 1), optInteger(L, 4, t.Len()); i <= last; i++ {
		v := t.RawGet(lua.LNumber(i))
		s, ok := ToText(v)
		if !ok {
			L.RaiseError("invalid value (%s) at index %d in table for 'concat'", v.Type(), i)
		}
		b.WriteString(s)
		if i < last {
			b.WriteString(separator)
		}
		checkLength(L, b.Len())
	}
	L.Push(lua.LString(b.String()))
	return 1
}

// tabRemove implements table.remove. gopher-lua's table.remove may remove a trailing element that
// was set to nil instead of the last element.
func tabRemove(L *lua.LState) int {
	t := L.CheckTable(1)
	last := t.Len()
	at := optInteger(L, 2, last)
	if at < 1 || at > last {
		return 0
	}
	L.Push(t.RawGetInt(at))
	for ; at < last; at++ {
		t.RawSetInt(at, t.RawGetInt(at+1))
	}
	t.RawSetInt(last, lua.LNil)
	return 1
}
