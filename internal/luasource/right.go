package luasource

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/yuin/gopher-lua/ast"
)

// This file rewrites code that gopher-lua compiles wrongly. It adds variables whose names are in
// parentheses, because no program can contain such names.

// Names of the local variables that hold Concat and Modulo of package lualib. The rewritten chunk
// takes the two functions as arguments, in this order.
const (
	concatName = "(concat)"
	moduloName = "(modulo)"
)

// concat rewrites a .. b .. c as a call to Concat, because gopher-lua formats numbers differently
// and does not limit the length of strings. A chain becomes one call, because it is one instruction
// in Lua.
func concat(e *ast.StringConcatOpExpr) ast.Expr {
	args := []ast.Expr{single(e.Lhs)}
	if rest, ok := e.Rhs.(*ast.FuncCallExpr); ok && isConcat(rest) {
		args = append(args, rest.Args...)
	} else {
		args = append(args, single(e.Rhs))
	}
	return setLine(e.Line(), &ast.FuncCallExpr{Func: name(concatName, e.Line()), Args: args, AdjustRet: true})
}

// modulo rewrites a % b as a call to Modulo, unless b is a whole-number literal other than 0.
// gopher-lua uses math.Mod, which is exact; Lua 5.1 computes a - floor(a/b)*b, whose division rounds.
func modulo(e *ast.ArithmeticOpExpr) ast.Expr {
	if n, ok := e.Rhs.(*ast.NumberExpr); e.Operator != "%" || ok && isWhole(n) {
		return e
	}
	args := []ast.Expr{single(e.Lhs), single(e.Rhs)}
	return setLine(e.Line(), &ast.FuncCallExpr{Func: name(moduloName, e.Line()), Args: args, AdjustRet: true})
}

func isWhole(e *ast.NumberExpr) bool {
	v, _ := numeral(e.Value)
	return v != 0 && v == math.Trunc(v)
}

// bound converts a loop bound to a number. In Lua, a bound may be a string, such as an element of
// ARGV, but gopher-lua accepts only numbers as bounds.
func bound(e ast.Expr) ast.Expr {
	switch e.(type) {
	case nil, *ast.NumberExpr, *ast.UnaryLenOpExpr, *ast.ArithmeticOpExpr:
		return e
	}
	return setLine(e.Line(), &ast.ArithmeticOpExpr{Operator: "+", Lhs: e, Rhs: &ast.NumberExpr{Value: "0"}})
}

func isConcat(call *ast.FuncCallExpr) bool {
	id, ok := call.Func.(*ast.IdentExpr)
	return ok && id.Value == concatName
}

// single reduces an expression that may have several values to its first value.
func single(e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.FuncCallExpr:
		e.AdjustRet = true
	case *ast.Comma3Expr:
		e.AdjustRet = true
	}
	return e
}

// isSingle reports whether an expression always has exactly one value.
func isSingle(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.FuncCallExpr:
		return e.AdjustRet
	case *ast.Comma3Expr:
		return e.AdjustRet
	}
	return true
}

// setLine sets the line of a node and returns the node.
func setLine[N ast.PositionHolder](line int, node N) N {
	node.SetLine(line)
	return node
}

func name(text string, line int) ast.Expr { return setLine(line, &ast.IdentExpr{Value: text}) }

// number rewrites a numeral so that gopher-lua reads Lua's value: 010 is ten, and 1e999 is
// infinity.
func number(e *ast.NumberExpr) ast.Expr {
	v, ok := numeral(e.Value)
	if !ok {
		refuse(e.Line(), "malformed number near '%s'", e.Value)
	}
	if math.IsInf(v, 0) {
		return &ast.ArithmeticOpExpr{Operator: "/", Lhs: &ast.NumberExpr{Value: "1"}, Rhs: &ast.NumberExpr{Value: "0"}}
	}
	e.Value = strconv.FormatFloat(v, 'g', -1, 64)
	return e
}

func numeral(text string) (float64, bool) {
	if strings.HasPrefix(text, "0x") || strings.HasPrefix(text, "0X") {
		text += "p0"
	}
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil || math.IsInf(v, 0)
}

// isLocalFunction reports whether s is written as "local function f()" rather than "local f =
// function()". In the second form, the function body does not see f. gopher-lua's parser sets the
// last line only for the first form.
func isLocalFunction(s *ast.LocalAssignStmt) bool { return s.LastLine() != 0 }

// localFunctionValue adds a second value to "local f = function()", so that gopher-lua does not
// treat the statement as "local function f()".
func localFunctionValue(s *ast.LocalAssignStmt) ast.Stmt {
	if len(s.Names) == 1 && len(s.Exprs) == 1 {
		if _, ok := s.Exprs[0].(*ast.FunctionExpr); ok {
			s.Exprs = append(s.Exprs, &ast.NilExpr{})
		}
	}
	return s
}

// assignment returns the assignment unchanged or, if gopher-lua would compile it wrongly, as
//
//	do local object, key, ... = ...; local value1, value2 = values; b = value2; a = value1 end
//
// gopher-lua compiles three cases wrongly. With several targets or values, it stores a value before
// it has read all of them: "a, b = b, a" reads a after storing it. If a local variable is assigned
// an "and" or "or", the variable may keep its old value: "x = f() and 1" does not change x when f()
// is nil. If the function's last parameter is assigned a call in parentheses, the parameter is
// overwritten while the call's arguments are evaluated.
func (w *walker) assignment(s *ast.AssignStmt) ast.Stmt {
	if len(s.Lhs) == 1 && len(s.Rhs) == 1 && w.compilesRight(s.Lhs[0], s.Rhs[0]) {
		return s
	}
	line := s.Line()
	do := setLine(line, &ast.DoBlockStmt{})
	do.SetLastLine(line)
	local := func(names []string, values []ast.Expr) {
		do.Stmts = append(do.Stmts, setLine(line, &ast.LocalAssignStmt{Names: names, Exprs: values}))
	}
	var names []string
	var kept []ast.Expr
	keep := func(e ast.Expr) ast.Expr {
		switch e.(type) {
		case *ast.StringExpr, *ast.NumberExpr:
			return e
		}
		names = append(names, fmt.Sprintf("(kept %d)", len(names)))
		kept = append(kept, single(e))
		return name(names[len(names)-1], line)
	}
	if len(s.Lhs) > 1 {
		for _, target := range s.Lhs {
			if t, ok := target.(*ast.AttrGetExpr); ok {
				t.Object, t.Key = keep(t.Object), keep(t.Key)
			}
		}
	}
	if len(names) > 0 {
		local(names, kept)
	}
	values := make([]string, len(s.Lhs))
	for i := range values {
		values[i] = fmt.Sprintf("(value %d)", i)
	}
	local(values, s.Rhs)
	for i := len(s.Lhs) - 1; i >= 0; i-- {
		do.Stmts = append(do.Stmts, setLine(line, &ast.AssignStmt{Lhs: s.Lhs[i : i+1], Rhs: []ast.Expr{name(values[i], line)}}))
	}
	return do
}

func (w *walker) compilesRight(target, value ast.Expr) bool {
	id, ok := target.(*ast.IdentExpr)
	if !ok {
		return true
	}
	place := w.fn.place(id.Value)
	_, logical := value.(*ast.LogicalOpExpr)
	_, call := value.(*ast.FuncCallExpr)
	return place < 0 || !logical && !(call && place == w.fn.params-1)
}

// genericFor passes a loop's three values through variables. Without the variables, gopher-lua
// would not set values that the loop omits: "for k in next, t" would start at an old value of a
// register. genericFor leaves a loop over one expression with several values, such as pairs(t),
// unchanged, because gopher-lua compiles it correctly.
func genericFor(s *ast.GenericForStmt) ast.Stmt {
	if len(s.Exprs) == 1 && !isSingle(s.Exprs[0]) {
		return s
	}
	line := s.Line()
	names := []string{"(iterator)", "(state)", "(control)"}
	take := setLine(line, &ast.LocalAssignStmt{Names: names, Exprs: s.Exprs})
	s.Exprs = []ast.Expr{name(names[0], line), name(names[1], line), name(names[2], line)}
	do := setLine(line, &ast.DoBlockStmt{Stmts: []ast.Stmt{take, s}})
	do.SetLastLine(s.LastLine())
	return do
}

const markName = "(mark)"

// beginsWithJump reports whether the code of a loop's statements begins with a jump, as the code of
// break does. gopher-lua would merge this jump with the loop's jump back, and then mistake the
// jump's length for the number of a label. Any other code before the jump prevents the mistake.
// Some other statements, such as "if false" or "x = true or y", would also begin with a jump, but
// they are removed from the syntax tree; see constant.
func beginsWithJump(stmts []ast.Stmt) bool {
	if len(stmts) == 0 {
		return false
	}
	switch s := stmts[0].(type) {
	case *ast.BreakStmt:
		return true
	case *ast.DoBlockStmt:
		return len(s.Stmts) == 0 && beginsWithJump(stmts[1:]) || beginsWithJump(s.Stmts)
	case *ast.WhileStmt:
		return beginsWithJump(s.Stmts)
	case *ast.RepeatStmt:
		return beginsWithJump(s.Stmts)
	}
	return false
}

// constant reports whether an expression is a constant and, if so, whether it is true as a
// condition.
func constant(e ast.Expr) (isTrue, ok bool) {
	switch e.(type) {
	case *ast.TrueExpr, *ast.NumberExpr, *ast.StringExpr:
		return true, true
	case *ast.FalseExpr, *ast.NilExpr:
		return false, true
	}
	return false, false
}

// logical returns the expression "a and b" or "a or b", simplified if a is a constant.
func logical(e *ast.LogicalOpExpr) ast.Expr {
	isTrue, ok := constant(e.Lhs)
	switch {
	case !ok:
		return e
	case isTrue == (e.Operator == "and"):
		return single(e.Rhs)
	}
	return e.Lhs
}

// not returns e, or true or false if the operand of e is a constant.
func not(e *ast.UnaryNotOpExpr) ast.Expr {
	isTrue, ok := constant(e.Expr)
	switch {
	case !ok:
		return e
	case isTrue:
		return setLine(e.Line(), &ast.FalseExpr{})
	}
	return setLine(e.Line(), &ast.TrueExpr{})
}

// branch returns the if statement or, if its condition is a constant, the branch that is always
// taken.
func branch(s *ast.IfStmt) ast.Stmt {
	isTrue, ok := constant(s.Condition)
	if !ok {
		return s
	}
	do := setLine(s.Line(), &ast.DoBlockStmt{Stmts: s.Else})
	if isTrue {
		do.Stmts = s.Then
	}
	do.SetLastLine(s.LastLine())
	return do
}

// detachAtBreak returns statements to insert before a loop's statements. They capture one variable
// of the loop's block, in a branch that never runs. In gopher-lua, a break detaches closures from
// the variables of the block only if one of the block's own variables is captured. Without these
// statements, captured variables of inner blocks would share their registers with other variables
// after the break.
func detachAtBreak() []ast.Stmt {
	fn := &ast.FunctionExpr{ParList: &ast.ParList{}, Stmts: []ast.Stmt{&ast.ReturnStmt{Exprs: []ast.Expr{name(markName, 0)}}}}
	never := &ast.IfStmt{Condition: &ast.FalseExpr{}, Then: []ast.Stmt{
		&ast.LocalAssignStmt{Names: []string{"(f)"}, Exprs: []ast.Expr{fn}},
	}}
	return []ast.Stmt{&ast.LocalAssignStmt{Names: []string{markName}}, never}
}

// table truncates the value of each field with a key, such as n = f(), to one value. Otherwise, in
// {1, n = f()}, gopher-lua would append the other results of f to the array. table also rejects
// fields with keys after a multiple of 50 elements. gopher-lua would store these elements a second
// time, from registers that now contain the fields' keys and values.
func table(e *ast.TableExpr) {
	elements := 0
	for _, f := range e.Fields {
		if f.Key == nil {
			elements++
			continue
		}
		f.Value = single(f.Value)
		if elements > 0 && elements%50 == 0 {
			refuse(e.Line(), "a table with a field after exactly %d elements: gopher-lua fills it wrongly; put the fields with keys first", elements)
		}
	}
}
