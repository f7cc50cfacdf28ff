// This file checks the library's Lua against rules that no test run can check: commands are named
// literally, keys come from the caller, the clock is read in one place, and numbers are not formatted
// by Lua's default (1e+15).

package functions

import (
	"fmt"
	"strings"

	"github.com/ratelimit-functions/ratelimit/internal/luasource"
	"github.com/yuin/gopher-lua/ast"
)

// lintProblem is one violation of a rule.
type lintProblem struct {
	File string // the source file, named by the last line "--@ FILE" above the problem; "" if there is none
	Line int    // line in File, or in the whole library
	Says string
}

func (p lintProblem) String() string {
	if p.File == "" {
		return fmt.Sprintf("line %d: %s", p.Line, p.Says)
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Says)
}

// lint returns the problems in a library's source code, or an error if the engine could not run
// it.
func lint(text string) ([]lintProblem, error) {
	c := &linter{text: strings.Split(text, "\n")}
	if _, err := luasource.Read(text, c.visit); err != nil {
		return nil, fmt.Errorf("the library is not Lua that can be run: %w", err)
	}
	if len(c.times) > 1 {
		for _, line := range c.times[1:] {
			c.add(line, "TIME is called in a second place; ask the clock that the first one fills")
		}
	}
	return c.problems, nil
}

type linter struct {
	text     []string
	times    []int // lines on which TIME is called
	problems []lintProblem
}

// add records a problem, with the line in its source file.
func (c *linter) add(line int, format string, args ...any) {
	p := lintProblem{Line: line, Says: fmt.Sprintf(format, args...)}
	for at := line - 1; at >= 0 && at < len(c.text); at-- {
		if file, ok := strings.CutPrefix(c.text[at], "--@ "); ok {
			p.File, p.Line = file, line-at-1-c.before(at+1)
			break
		}
	}
	c.problems = append(c.problems, p)
}

// before counts the lines that the build inserts before a file's own lines: the declaration of its
// table, and the `do` that begins its scope. at is the index of the first inserted line.
func (c *linter) before(at int) int {
	lines := 0
	if at < len(c.text) && strings.HasPrefix(c.text[at], "local ") && strings.HasSuffix(c.text[at], " = {}") {
		lines++
	}
	if at+lines < len(c.text) && c.text[at+lines] == "do" {
		lines++
	}
	return lines
}

func (c *linter) visit(node any) {
	switch n := node.(type) {
	case *ast.FuncCallExpr:
		c.call(n)
	case *ast.StringConcatOpExpr:
		c.concat(n.Lhs, n.Line())
		c.concat(n.Rhs, n.Line())
	case *ast.LocalAssignStmt:
		for _, name := range n.Names {
			if name == "key" {
				c.add(n.Line(), "a local variable is named key; a key comes from KEYS, as a parameter or a loop over keys")
			}
		}
	case *ast.AssignStmt:
		for i, target := range n.Lhs {
			_, field := target.(*ast.AttrGetExpr)
			if lastName(target) == "key" && !(field && i < len(n.Rhs) && isKey(n.Rhs[i])) {
				c.add(n.Line(), "key is assigned; a key comes from KEYS and stays what it is")
			}
		}
	case *ast.Field:
		if key, ok := n.Key.(*ast.StringExpr); ok && key.Value == "key" && !isKey(n.Value) {
			c.add(n.Value.Line(), "the field key is set to something other than a key")
		}
	}
}

func (c *linter) call(n *ast.FuncCallExpr) {
	if name, ok := n.Func.(*ast.IdentExpr); ok && name.Value == "tostring" {
		c.add(n.Line(), "tostring writes large numbers as 1e+15; use string.format with %%d")
	}
	function, ok := n.Func.(*ast.AttrGetExpr)
	if !ok {
		return
	}
	object, ok := function.Object.(*ast.IdentExpr)
	name := lastName(function)
	if !ok || object.Value != "redis" || (name != "call" && name != "pcall") {
		return
	}
	var command *ast.StringExpr
	if len(n.Args) > 0 {
		command, _ = n.Args[0].(*ast.StringExpr)
	}
	switch {
	case command == nil:
		c.add(n.Line(), "the command of redis.%s is not a literal, so its rights are unknown", name)
	case command.Value == "TIME":
		c.times = append(c.times, n.Line())
	case len(n.Args) < 2 || !isKey(n.Args[1]):
		c.add(n.Line(), "the key of %s is not a variable named key, nor a field or an element of keys", command.Value)
	}
}

// isKey reports whether an expression is one of the caller's keys, judging by its name: key, a
// field named key, or keys[i].
func isKey(e ast.Expr) bool {
	if lastName(e) == "key" {
		return true
	}
	element, ok := e.(*ast.AttrGetExpr)
	return ok && lastName(element.Object) == "keys"
}

// concat records a problem if operand, which is joined to a string, is certainly a number.
func (c *linter) concat(operand ast.Expr, line int) {
	what := ""
	switch o := operand.(type) {
	case *ast.NumberExpr:
		what = o.Value
	case *ast.ArithmeticOpExpr:
		what = "the result of " + o.Operator
	case *ast.UnaryMinusOpExpr, *ast.UnaryLenOpExpr:
		what = "a number"
	case *ast.FuncCallExpr:
		if function, ok := o.Func.(*ast.AttrGetExpr); ok && lastName(function.Object) == "math" {
			what = "the result of math." + lastName(function)
		} else if lastName(o.Func) == "tonumber" {
			what = "the result of tonumber"
		}
	}
	if what != "" {
		c.add(line, "%s is joined to a string, and a large number would become 1e+15; use string.format with %%d", what)
	}
}

// lastName returns the name of a variable, or of the field that an expression ends in.
func lastName(e ast.Expr) string {
	switch n := e.(type) {
	case *ast.IdentExpr:
		return n.Value
	case *ast.AttrGetExpr:
		if key, ok := n.Key.(*ast.StringExpr); ok {
			return key.Value
		}
	}
	return ""
}
