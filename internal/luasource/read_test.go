package luasource

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
)

func TestRefusals(t *testing.T) {
	for _, row := range []struct{ name, code, want string }{
		{"fine", "local function f(a) return a end", ""},
		{"a call on one line with what it calls", "local x = f\n(g)()", "user_function:3: ambiguous syntax"},
		{"the same after brackets", "local x = t[1]\n(g)()", "user_function:3: ambiguous syntax"},
		{"no call after a local without a value", "local x\n(f or g)()", ""},
		{"parameters on another line", "local function f\n(a) return a end", ""},
		{"an empty statement", "local x = 1;;", "user_function:2: unexpected ';'"},
		{"an empty statement in a function", "local function f() ; end", "user_function:2: unexpected ';'"},
		{"a semicolon after a statement", "local x = 1; x = 2;", ""},
		{"a number before a name", "local x = 3local y", "user_function:2: malformed number near '3local'"},
		{"a hexadecimal number and a name", "local x = 0x1g", "user_function:2: malformed number near '0x1g'"},
		{"a goto", "goto done", "user_function:2: Lua 5.1 has no goto"},
		{"a label", "::done::", "user_function:2: Lua 5.1 has no goto"},
		{"a call in parentheses", "(f())", "user_function:2: a call in parentheses is not a statement"},
		{"break outside of a loop", "do break end", "user_function:2: break outside of a loop"},
		{"break in a function in a loop", "while x do f(function() break end) end", "user_function:2: break outside of a loop"},
		{"__len", "local m = {}\nm.__len = f", "user_function:3: __len"},
		{"a missing library", "local function f()\nreturn cjson.encode(1) end", "user_function:3: the embedded server does not have cjson, which Redis has, nor anything in it"},
		{"a missing function", "local function f() return string.dump(f) end", "user_function:2: the embedded server does not have string.dump, which Redis has"},
		{"and what to use instead", "local function f() return xpcall(f) end", "user_function:2: the embedded server does not have xpcall, which Redis has: use pcall"},
		{"a variable of that name", "local function f(cjson, string) return cjson.x, string.dump end", ""},
		{"a table of 50 with a field behind", "local t = {" + strings.Repeat("1,", 50) + "a = 1}", "user_function:2: a table with a field after exactly 50 elements"},
		{"a table of 51 with a field behind", "local t = {" + strings.Repeat("1,", 51) + "a = 1}", ""},
		{"61 variables of other functions", "local a" + names(61) + "\nlocal function f() return a" + names(61) + " end", "user_function:3: a function uses more than 60 variables"},
		{"32768 constants", "local t = {" + numerals(32768) + "}", ""},
		{"one more", "local t = {" + numerals(32769) + "}", "user_function:2: a function with more than 32768 different constants"},
		{"the longest text", "--" + strings.Repeat("x", 3<<20-len("#!lua name=x\n--")), ""},
		{"a longer one", "--" + strings.Repeat("x", 3<<20-len("#!lua name=x\n-")), "user_function:1: the text has 3145729 bytes, and the embedded server takes at most 3145728; split it into several libraries"},
		{"8192 functions", strings.Repeat("f = function() end ", 8192), ""},
		{"one more", strings.Repeat("f = function() end ", 8193), "user_function:1: the text has 8193 functions, and the embedded server takes at most 8192; split it into several libraries"},
		{"the functions that the walk adds to loops", strings.Repeat("while a do local x = function() end break end ", 4097), "user_function:1: the text has 8194 functions"},
		{"the same in loops within one another", strings.Repeat(strings.Repeat("while a do ", 90)+"local x = function() end"+strings.Repeat(" break end", 90)+" ", 91), "user_function:1: the text has 8281 functions"},
		{"1048576 tokens", strings.Repeat("f();", 1<<20/4), ""},
		{"one more", strings.Repeat("f();", 1<<20/4) + "return", "user_function:1: the text has 1048577 tokens, and the embedded server takes at most 1048576; split it into several libraries"},
		{"200 local variables", "local a" + names(199), ""},
		{"one more", "local a\nlocal b" + names(199), "user_function:3: a function with more than 200 local variables; Lua 5.1 takes no more: put some into a table"},
		{"200 parameters", "return function(a" + names(199) + ") end", ""},
		{"one more", "return function(a" + names(200) + ") end", "user_function:2: a function with more than 200 local variables"},
		{"variables of blocks that have ended", strings.Repeat("do local a"+names(99)+" end ", 10), ""},
		{"32769 methods", "local a" + methods(32769), "user_function:2: a function with more than 32768 different constants"},
		{"constants that are looked for too long", "local a = {" + strings.Repeat(numerals(32000), 3) + "}", "user_function:2: gopher-lua would look at more than 600000000 constants"},
		{"operators that wait for their operands", "local a = " + strings.Repeat("not ", 200) + "a", "user_function:2: more than 200 levels"},
		{"200 levels of syntax", "return " + strings.Repeat("-(", 90) + "1" + strings.Repeat(")", 90), ""},
		{"more", "return 1" + strings.Repeat(" + 1", 200), "user_function:2: more than 200 levels"},
		{"an open block", "if x then", "user_function:2: syntax error at the end"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := Read("#!lua name=x\n"+row.code, nil)
			if row.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var refusal *Refusal
			if !errors.As(err, &refusal) || !strings.HasPrefix(err.Error(), row.want) {
				t.Errorf("got %v, want %s", err, row.want)
			}
		})
	}
}

// methods returns calls to n different methods of a.
func methods(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, " a:m%d()", i)
	}
	return b.String()
}

// numerals returns n numerals, each followed by a comma.
func numerals(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d,", i)
	}
	return b.String()
}

// names returns n names (a, ax, axx and so on), each preceded by a comma.
func names(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(", a")
		b.WriteString(strings.Repeat("x", i))
	}
	return b.String()
}

// TestOperatorsWithoutEnd checks that code with too many operators is rejected before it is parsed.
// The parser keeps each operator until it has read the next operand. For this code, it would need
// 1.8 GiB.
func TestOperatorsWithoutEnd(t *testing.T) {
	for _, operator := range []string{"a^", "a..", "- ", "not ", "#", "(a)^", "{a}..", "function() end^", "-a[b]^"} {
		text := "return " + strings.Repeat(operator, 1<<20/len(operator)) + "a"
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Read(text, nil)
		runtime.ReadMemStats(&after)
		if want := "user_function:1: more than 200 levels"; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %.200v, want %s", operator, err, want)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
			t.Errorf("%s: %d MiB of memory for a text of 1 MiB", operator, took>>20)
		}
	}
}

// TestVisitSeesTheText checks that the visitor sees the source code as written, not as rewritten.
func TestVisitSeesTheText(t *testing.T) {
	seen := map[string]int{}
	_, err := Read("#!lua name=x\nlocal a, b = 1, 2 a, b = b, a .. 'x' local t = {k = a % 0.5}", func(node any) {
		switch n := node.(type) {
		case *ast.AssignStmt:
			seen["assignment"]++
		case *ast.StringConcatOpExpr:
			seen["concatenation"]++
		case *ast.ArithmeticOpExpr:
			seen[n.Operator]++
		case *ast.Field:
			seen["field"]++
		case *ast.FuncCallExpr:
			seen["call"]++
		}
	})
	if err != nil || len(seen) != 4 || seen["assignment"] != 1 || seen["concatenation"] != 1 || seen["%"] != 1 || seen["field"] != 1 {
		t.Errorf("saw %v, error %v", seen, err)
	}
}

// FuzzRead checks that Read returns for any string. If Read returns a tree, gopher-lua must either
// compile it or report a compile error.
func FuzzRead(f *testing.F) {
	for _, text := range []string{
		"#!lua name=x\nlocal a, b = 1, 2 a, b = b, a", "for k in next, t do if false then break end end", "x = f() and 1 or not y", "return {1, n = ...}, 0x1p4, 1e999",
		"local function f(...) while true do local x = function() return x end break end return arg end", "a.b['c']:d(1)(2).e, f = g, (h())", "repeat local s = [==[x]==] .. 'y' until #s % 2 ^ -3 == 1;",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tree, err := Read(text, nil)
		if err != nil {
			return
		}
		if _, err := lua.Compile(tree, Name); err != nil && !strings.Contains(err.Error(), "compile error") {
			t.Error(err)
		}
	})
}
