package lualib

import (
	"context"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
)

// TestLongWorkEndsWithTheCall checks that each loop of a library function regularly checks whether
// the call must end. Lua itself cannot check before the function returns.
func TestLongWorkEndsWithTheCall(t *testing.T) {
	x := func(n int) lua.LString { return lua.LString(strings.Repeat("x", n)) }
	for _, row := range []struct {
		name, library, function string
		args                    []lua.LValue
	}{
		{"brackets that are not closed", "string", "find", []lua.LValue{"(" + x(5000), lua.LString("^%b()")}},
		{"repetition", "string", "find", []lua.LValue{x(5000), lua.LString("^x*")}},
		{"a long set", "string", "find", []lua.LValue{lua.LString(""), "[" + x(5000) + "]"}},
		{"a byte that is not in a long set", "string", "find", []lua.LValue{lua.LString("y"), "[" + x(3000) + "]"}},
		{"a long text again", "string", "find", []lua.LValue{"(" + x(3000) + ")(" + x(3000) + ")", lua.LString("^(%b())%1")}},
		{"many matches", "string", "gsub", []lua.LValue{x(5000), lua.LString("x"), lua.LString("y")}},
		{"long texts to sort", "table", "sort", []lua.LValue{tableOf(x(5000), x(5000))}},
		{"many numbers to sort", "table", "sort", []lua.LValue{tableOf(make([]lua.LNumber, 5000)...)}},
	} {
		t.Run(row.name, func(t *testing.T) {
			L := lua.NewState(lua.Options{SkipOpenLibs: true})
			defer L.Close()
			f := L.GetField(Open(L).RawGetString(row.library), row.function)
			call := func() error { return L.CallByParam(lua.P{Fn: f, Protect: true}, row.args...) }
			if err := call(); err != nil {
				t.Errorf("with time: %v", err)
			}
			over, cancel := context.WithCancel(context.Background())
			cancel()
			L.SetContext(over)
			if err := call(); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
				t.Errorf("without time: %v", err)
			}
		})
	}
}

func tableOf[V lua.LValue](values ...V) *lua.LTable {
	t := &lua.LTable{}
	for _, v := range values {
		t.Append(v)
	}
	return t
}
