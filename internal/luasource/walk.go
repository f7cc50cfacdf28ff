package luasource

import (
	"fmt"

	"github.com/yuin/gopher-lua/ast"
)

// walker walks the syntax tree once, from the top, and rewrites it for gopher-lua's compiler.
type walker struct {
	visit     func(node any)
	fn        *function
	depth     int
	functions int // number of functions, including those that the walk adds
	looks     int // number of comparisons of constants that gopher-lua's compiler will make
}

// function is the function that the walker is in, or an enclosing function.
type function struct {
	outer    *function
	locals   []string // local variables in scope
	params   int      // number of locals that are parameters, including self
	vararg   bool
	dots     bool            // whether the function uses ...
	captured map[string]bool // variables of outer functions that this function uses

	constants map[string]int // index of each constant: strings, numerals and names of global variables, as written
	loops     []*loop
}

type loop struct{ breaks, closures bool }

const (
	maxDepth     = 200     // Lua 5.1's limit on nested syntax
	maxCaptured  = 60      // Lua 5.1's limit on variables of outer functions
	maxLocals    = 200     // Lua 5.1's limit on local variables
	maxConstants = 1 << 15 // per function; for each new constant, gopher-lua's compiler searches all others
	maxLooks     = 6e8     // per library: comparisons of constants in gopher-lua's compiler
)

func refuse(line int, format string, args ...any) {
	panic(&Refusal{line, fmt.Sprintf(format, args...)})
}

func (w *walker) enter(line int) {
	if w.depth++; w.depth > maxDepth {
		panic(tooDeep(line))
	}
}

func tooDeep(line int) *Refusal {
	return &Refusal{line, fmt.Sprintf("more than %d levels of syntax within one another; each operand of a long chain and each elseif is one: split it up", maxDepth)}
}

// block walks the statements of a block. The block's local variables are in scope only there.
func (w *walker) block(stmts []ast.Stmt) []ast.Stmt {
	locals := len(w.fn.locals)
	out := w.statements(stmts)
	w.fn.locals = w.fn.locals[:locals]
	return out
}

func (w *walker) statements(stmts []ast.Stmt) []ast.Stmt {
	out := make([]ast.Stmt, len(stmts))
	for i, s := range stmts {
		w.enter(s.Line())
		w.visit(s)
		out[i] = w.statement(s)
		w.depth--
	}
	return out
}

func (w *walker) statement(s ast.Stmt) ast.Stmt {
	switch s := s.(type) {
	case *ast.AssignStmt:
		w.list(s.Lhs)
		w.list(s.Rhs)
		return w.assignment(s)
	case *ast.LocalAssignStmt:
		if isLocalFunction(s) {
			w.declare(s.Line(), s.Names...)
			w.list(s.Exprs)
			return s
		}
		w.list(s.Exprs)
		w.declare(s.Line(), s.Names...)
		return localFunctionValue(s)
	case *ast.FuncCallStmt:
		if s.Expr.(*ast.FuncCallExpr).AdjustRet {
			refuse(s.Line(), "a call in parentheses is not a statement in Lua 5.1")
		}
		s.Expr = w.expr(s.Expr)
	case *ast.DoBlockStmt:
		s.Stmts = w.block(s.Stmts)
	case *ast.WhileStmt:
		s.Condition = w.expr(s.Condition)
		s.Stmts = w.loop(s.Line(), s.Stmts, nil)
		if isTrue, ok := constant(s.Condition); ok && !isTrue {
			return &ast.DoBlockStmt{}
		}
	case *ast.RepeatStmt:
		s.Stmts = w.loop(s.Line(), s.Stmts, func() { s.Condition = w.expr(s.Condition) })
	case *ast.IfStmt:
		s.Condition = w.expr(s.Condition)
		s.Then = w.block(s.Then)
		s.Else = w.block(s.Else)
		return branch(s)
	case *ast.NumberForStmt:
		s.Init, s.Limit, s.Step = bound(w.expr(s.Init)), bound(w.expr(s.Limit)), bound(w.expr(s.Step))
		s.Stmts = w.loop(s.Line(), s.Stmts, nil, s.Name)
	case *ast.GenericForStmt:
		w.list(s.Exprs)
		s.Stmts = w.loop(s.Line(), s.Stmts, nil, s.Names...)
		return genericFor(s)
	case *ast.FuncDefStmt:
		if s.Name.Func != nil {
			s.Name.Func = w.expr(s.Name.Func)
		} else {
			s.Name.Receiver = w.expr(s.Name.Receiver)
			w.constant(s.Line(), s.Name.Method)
		}
		w.visit(s.Func)
		w.function(s.Func, s.Name.Func == nil)
	case *ast.ReturnStmt:
		w.list(s.Exprs)
	case *ast.BreakStmt:
		n := len(w.fn.loops)
		if n == 0 {
			refuse(s.Line(), "break outside of a loop")
		}
		w.fn.loops[n-1].breaks = true
	case *ast.LabelStmt, *ast.GotoStmt:
		refuse(s.Line(), "Lua 5.1 has no goto and no labels")
	}
	return s
}

// loop walks a loop's statements, with the variables that the loop declares. until, if not nil,
// walks the condition of a repeat loop, which can use the local variables of the statements.
func (w *walker) loop(line int, stmts []ast.Stmt, until func(), names ...string) []ast.Stmt {
	fn := w.fn
	locals := len(fn.locals)
	l := &loop{}
	fn.loops = append(fn.loops, l)
	w.declare(line, names...)
	out := w.statements(stmts)
	if until != nil {
		until()
	}
	fn.loops = fn.loops[:len(fn.loops)-1]
	fn.locals = fn.locals[:locals]
	switch {
	case l.breaks && l.closures:
		out = append(detachAtBreak(), out...)
		w.functions++
	case beginsWithJump(out):
		out = append([]ast.Stmt{&ast.LocalAssignStmt{Names: []string{markName}}}, out...)
	}
	return out
}

func (w *walker) list(exprs []ast.Expr) {
	for i, e := range exprs {
		exprs[i] = w.expr(e)
	}
}

func (w *walker) expr(e ast.Expr) ast.Expr {
	if e == nil {
		return nil
	}
	w.enter(e.Line())
	defer func() { w.depth-- }()
	w.visit(e)
	switch e := e.(type) {
	case *ast.NumberExpr:
		w.constant(e.Line(), e.Value)
		return number(e)
	case *ast.Comma3Expr:
		w.fn.dots = true
	case *ast.StringExpr:
		w.constant(e.Line(), e.Value)
		if e.Value == "__len" {
			refuse(e.Line(), "__len: Lua 5.1 ignores it in the metatable of a table, but gopher-lua does not; rename the field")
		}
	case *ast.IdentExpr:
		w.use(e)
	case *ast.AttrGetExpr:
		w.refuseAbsent(e)
		e.Object, e.Key = w.expr(e.Object), w.expr(e.Key)
	case *ast.TableExpr:
		for _, f := range e.Fields {
			w.visit(f)
			f.Key, f.Value = w.expr(f.Key), w.expr(f.Value)
		}
		table(e)
	case *ast.FuncCallExpr:
		e.Func, e.Receiver = w.expr(e.Func), w.expr(e.Receiver)
		if e.Receiver != nil {
			w.constant(e.Line(), e.Method)
		}
		w.list(e.Args)
	case *ast.LogicalOpExpr:
		e.Lhs, e.Rhs = w.expr(e.Lhs), w.expr(e.Rhs)
		return logical(e)
	case *ast.RelationalOpExpr:
		e.Lhs, e.Rhs = w.expr(e.Lhs), w.expr(e.Rhs)
	case *ast.ArithmeticOpExpr:
		e.Lhs, e.Rhs = w.expr(e.Lhs), w.expr(e.Rhs)
		return modulo(e)
	case *ast.StringConcatOpExpr:
		e.Lhs, e.Rhs = w.expr(e.Lhs), w.expr(e.Rhs)
		return concat(e)
	case *ast.UnaryMinusOpExpr:
		e.Expr = w.expr(e.Expr)
	case *ast.UnaryNotOpExpr:
		e.Expr = w.expr(e.Expr)
		return not(e)
	case *ast.UnaryLenOpExpr:
		e.Expr = w.expr(e.Expr)
	case *ast.FunctionExpr:
		w.function(e, false)
	}
	return e
}

func (w *walker) function(e *ast.FunctionExpr, method bool) {
	w.functions++
	for _, l := range w.fn.loops {
		l.closures = true
	}
	w.fn = &function{outer: w.fn, vararg: e.ParList.HasVargs, captured: map[string]bool{}, constants: map[string]int{}}
	if method {
		w.declare(e.Line(), "self")
	}
	w.declare(e.Line(), e.ParList.Names...)
	w.fn.params = len(w.fn.locals)
	if w.fn.vararg {
		w.declare(e.Line(), "arg") // a local variable that Lua 5.1 adds for compatibility with 5.0
	}
	e.Stmts = w.block(e.Stmts)
	w.fn = w.fn.outer
}

func (w *walker) declare(line int, names ...string) {
	if w.fn.locals = append(w.fn.locals, names...); len(w.fn.locals) > maxLocals {
		refuse(line, "a function with more than %d local variables; Lua 5.1 takes no more: put some into a table", maxLocals)
	}
}

// constant records the use of a constant, written as text, in the current function.
func (w *walker) constant(line int, text string) {
	place, known := w.fn.constants[text]
	if !known {
		place = len(w.fn.constants) + 1
		w.fn.constants[text] = place
	}
	if place > maxConstants {
		refuse(line, "a function with more than %d different constants, over which gopher-lua takes too long; put some into another function", maxConstants)
	}
	if w.looks += place; w.looks > maxLooks {
		refuse(line, "gopher-lua would look at more than %d constants, for each at those before it in its function; split up the largest functions", int(maxLooks))
	}
}

// place returns the index of a variable in the function's locals, or -1 if the variable is not
// local to the function.
func (fn *function) place(name string) int {
	for i := len(fn.locals) - 1; i >= 0; i-- {
		if fn.locals[i] == name {
			return i
		}
	}
	return -1
}

// use records the use of a variable. It rejects a global variable that the engine does not have.
func (w *walker) use(e *ast.IdentExpr) {
	owner := w.fn
	for owner != nil && owner.place(e.Value) < 0 {
		owner = owner.outer
	}
	if owner == nil {
		w.constant(e.Line(), e.Value)
		if why, ok := Absent(e.Value); ok {
			refuse(e.Line(), "%s", why)
		}
		return
	}
	for fn := w.fn; fn != owner; fn = fn.outer {
		if fn.captured[e.Value] = true; len(fn.captured) > maxCaptured {
			refuse(e.Line(), "a function uses more than %d variables of the functions around it; Lua 5.1 takes no more: put some into a table", maxCaptured)
		}
	}
}

// refuseAbsent rejects a library field that the engine does not have, such as string.dump.
func (w *walker) refuseAbsent(e *ast.AttrGetExpr) {
	library, ok := e.Object.(*ast.IdentExpr)
	key, isName := e.Key.(*ast.StringExpr)
	if !ok || !isName {
		return
	}
	for fn := w.fn; fn != nil; fn = fn.outer {
		if fn.place(library.Value) >= 0 {
			return
		}
	}
	if why, ok := Absent(library.Value + "." + key.Value); ok {
		refuse(e.Line(), "%s", why)
	}
}
