package syntax

import (
	"fmt"

	"github.com/yuin/gopher-lua/ast"
)

// statement reads one; last tells that none may follow in this block.
func (p *parser) statement() (s ast.Stmt, last bool) {
	line := p.tok.line
	if p.tok.kind == tReserved {
		switch p.tok.text {
		case "if":
			return p.ifStmt(), false
		case "while":
			p.advance()
			cond := p.expr()
			p.expect("do")
			n := p.begin(true)
			body := p.endLoop(n, p.chunk())
			st := &ast.WhileStmt{Condition: cond, Stmts: body}
			st.SetLine(line)
			st.SetLastLine(p.tok.line)
			p.match("end", "while", line)
			return st, false
		case "do":
			p.advance()
			st := &ast.DoBlockStmt{Stmts: p.block()}
			st.SetLine(line)
			st.SetLastLine(p.tok.line)
			p.match("end", "do", line)
			return st, false
		case "for":
			return p.forStmt(), false
		case "repeat":
			return p.repeatStmt(), false
		case "function":
			return p.functionStmt(), false
		case "local":
			p.advance()
			if p.accept("function") {
				return p.localFunction(line), false
			}
			return p.localStmt(line), false
		case "return":
			return p.returnStmt(), true
		case "break":
			p.advance()
			loop := p.fs.innermostLoop()
			if loop == nil {
				p.fail("no loop to break")
			}
			loop.breaks = true
			st := &ast.BreakStmt{}
			st.SetLine(line)
			return st, true
		}
	}
	return p.exprStmt(), false
}

func (p *parser) ifStmt() ast.Stmt {
	line := p.tok.line
	p.advance()
	st := &ast.IfStmt{}
	st.SetLine(line)
	st.Condition = p.expr()
	p.expect("then")
	st.Then = p.block()
	cur := st
	for p.is("elseif") {
		next := &ast.IfStmt{}
		next.SetLine(p.tok.line)
		p.advance()
		next.Condition = p.expr()
		p.expect("then")
		next.Then = p.block()
		cur.Else = []ast.Stmt{next}
		cur = next
	}
	if p.accept("else") {
		cur.Else = p.block()
	}
	st.SetLastLine(p.tok.line)
	for c := st; c != cur; {
		c = c.Else[0].(*ast.IfStmt)
		c.SetLastLine(p.tok.line)
	}
	p.match("end", "if", line)
	return st
}

func (p *parser) forStmt() ast.Stmt {
	line := p.tok.line
	p.advance()
	first := p.name()
	switch {
	case p.is("="):
		return p.numericFor(first, line)
	case p.is(",") || p.is("in"):
		return p.genericFor(first, line)
	}
	p.fail("'=' or 'in' expected")
	return nil
}

// numericFor reads for i = a, b, c. Unless all three are numbers in the
// source, it becomes
//
//	do local i1, i2, i3 = (for)(a, b, c); for i = i1, i2, i3 do ... end end
//
// since gopher-lua neither converts strings here nor words errors as PUC does.
func (p *parser) numericFor(name string, line int) ast.Stmt {
	p.advance()
	bounds := []ast.Expr{p.expr()}
	p.expect(",")
	bounds = append(bounds, p.expr())
	if p.accept(",") {
		bounds = append(bounds, p.expr())
	} else {
		bounds = append(bounds, number(1, line))
	}
	p.expect("do")
	st := &ast.NumberForStmt{Name: name, Init: bounds[0], Limit: bounds[1], Step: bounds[2]}
	st.SetLine(line)
	plain := true
	for _, b := range bounds {
		if _, ok := b.(*ast.NumberExpr); !ok {
			plain = false
		}
	}
	outer := p.begin(false)
	names := []string{"(init)", "(limit)", "(step)"}
	if !plain {
		p.declare(names...)
	}
	n := p.begin(true)
	p.declare("(for index)", "(for limit)", "(for step)", name)
	st.Stmts = p.endLoop(n, p.chunk())
	p.end(outer)
	st.SetLastLine(p.tok.line)
	p.match("end", "for", line)
	if plain {
		return st
	}
	// A call in the last place would pass on all its results.
	if call, ok := bounds[2].(*ast.FuncCallExpr); ok {
		call.AdjustRet = true
	}
	if dots, ok := bounds[2].(*ast.Comma3Expr); ok {
		dots.AdjustRet = true
	}
	take := &ast.LocalAssignStmt{Names: names, Exprs: []ast.Expr{helper(HelperFor, line, bounds)}}
	take.SetLine(line)
	ref := func(i int) ast.Expr {
		e := &ast.IdentExpr{Value: names[i]}
		e.SetLine(line)
		return e
	}
	st.Init, st.Limit, st.Step = ref(0), ref(1), ref(2)
	do := &ast.DoBlockStmt{Stmts: []ast.Stmt{take, st}}
	do.SetLine(line)
	do.SetLastLine(st.LastLine())
	return do
}

func (p *parser) genericFor(first string, line int) ast.Stmt {
	names := []string{first}
	for p.accept(",") {
		names = append(names, p.name())
	}
	p.expect("in")
	st := &ast.GenericForStmt{Names: names}
	st.SetLine(p.tok.line)
	st.Exprs = p.exprList()
	p.expect("do")
	n := p.begin(true)
	p.declare("(for generator)", "(for state)", "(for control)")
	p.declare(names...)
	st.Stmts = p.endLoop(n, p.chunk())
	st.SetLastLine(p.tok.line)
	p.match("end", "for", line)
	return st
}

func (p *parser) repeatStmt() ast.Stmt {
	line := p.tok.line
	p.advance()
	st := &ast.RepeatStmt{}
	st.SetLine(line)
	n := p.begin(true)
	st.Stmts = p.chunk()
	p.match("until", "repeat", line)
	st.Condition = p.expr() // sees the locals of the block
	st.SetLastLine(p.lastLine)
	st.Stmts = p.endLoop(n, st.Stmts)
	return st
}

func (p *parser) functionStmt() ast.Stmt {
	line := p.tok.line
	p.advance()
	fn := &ast.FuncName{}
	nameLine := p.tok.line
	var target ast.Expr = p.ident(p.name(), nameLine)
	method := false
	for p.is(".") {
		p.advance()
		target = index(target, str(p.name(), p.lastLine), p.lastLine)
	}
	if p.accept(":") {
		fn.Receiver, fn.Method = target, p.name()
		method = true
	} else {
		fn.Func = target
	}
	st := &ast.FuncDefStmt{Name: fn, Func: p.body(method, line)}
	st.SetLine(line)
	st.SetLastLine(p.lastLine)
	return st
}

func (p *parser) localFunction(line int) ast.Stmt {
	name := p.name()
	p.declare(name)
	st := &ast.LocalAssignStmt{Names: []string{name}, Exprs: []ast.Expr{p.body(false, p.lx.line)}}
	st.SetLine(line)
	st.SetLastLine(p.lastLine)
	return st
}

func (p *parser) localStmt(line int) ast.Stmt {
	st := &ast.LocalAssignStmt{}
	st.SetLine(line)
	for {
		st.Names = append(st.Names, p.name())
		if !p.accept(",") {
			break
		}
	}
	if p.accept("=") {
		st.Exprs = p.exprList()
		if _, ok := st.Exprs[0].(*ast.FunctionExpr); ok && len(st.Names) == 1 && len(st.Exprs) == 1 {
			// gopher-lua takes local f = function() ... end for local function
			// f(): inside it, f would be the new local. A second value, which
			// is dropped, keeps it from that.
			none := &ast.NilExpr{}
			none.SetLine(line)
			st.Exprs = append(st.Exprs, none)
		}
	}
	st.SetLastLine(p.lastLine)
	p.declare(st.Names...)
	return st
}

func (p *parser) returnStmt() ast.Stmt {
	st := &ast.ReturnStmt{}
	st.SetLine(p.tok.line)
	p.advance()
	if !p.blockEnd() && !p.is(";") {
		st.Exprs = p.exprList()
	}
	st.SetLastLine(p.lastLine)
	return st
}

// exprStmt reads a call or an assignment.
func (p *parser) exprStmt() ast.Stmt {
	line := p.tok.line
	e := p.suffixed()
	if call, ok := e.(*ast.FuncCallExpr); ok && !call.AdjustRet {
		st := &ast.FuncCallStmt{Expr: call}
		st.SetLine(line)
		return st
	}
	targets := []ast.Expr{p.assignable(e)}
	for p.accept(",") {
		targets = append(targets, p.assignable(p.suffixed()))
		if len(targets) > maxDepth {
			p.limit(maxDepth, "variables in assignment")
		}
	}
	if !p.is("=") {
		p.expected("=")
	}
	p.advance()
	values := p.exprList()
	for _, t := range targets {
		t.SetLine(p.lastLine) // PUC stores at the end of the statement
	}
	if len(targets) == 1 && len(values) == 1 && p.direct(targets[0], values[0]) {
		return assign(targets[0], values[0], p.lastLine)
	}
	return p.assignAll(targets, values, p.lastLine)
}

// direct tells whether gopher-lua gets the assignment of a value right. It does
// not for a local variable if
//   - the value is an "and" or "or": x = f() and 1 leaves x as it was when f()
//     is nil;
//   - the variable is the function's last parameter: a call whose result goes
//     there overwrites the parameter while it still reads the arguments.
func (p *parser) direct(target, value ast.Expr) bool {
	id, ok := target.(*ast.IdentExpr)
	if !ok {
		return true
	}
	for i := len(p.fs.active) - 1; i >= 0; i-- {
		if p.fs.active[i] == id.Value {
			_, logical := value.(*ast.LogicalOpExpr)
			return !logical && i != p.fs.params-1
		}
	}
	return true
}

func assign(target, value ast.Expr, line int) ast.Stmt {
	st := &ast.AssignStmt{Lhs: []ast.Expr{target}, Rhs: []ast.Expr{value}}
	st.SetLine(line)
	st.SetLastLine(line)
	return st
}

// assignAll makes an assignment of several values, or of one by way of another
// variable. gopher-lua would store the first value before it reads the second, so
// that a, b = b, a goes wrong. It becomes
//
//	do local o1, k1, ... = obj, key, ...; local v1, v2 = values; b = v2; a = v1 end
//
// PUC stores from the last to the first, too.
func (p *parser) assignAll(targets, values []ast.Expr, line int) ast.Stmt {
	local := func(names []string, exprs []ast.Expr) ast.Stmt {
		st := &ast.LocalAssignStmt{Names: names, Exprs: exprs}
		st.SetLine(line)
		st.SetLastLine(line)
		return st
	}
	do := &ast.DoBlockStmt{}
	do.SetLine(line)
	do.SetLastLine(line)
	var names []string
	var exprs []ast.Expr
	// keep evaluates e now, under a name that no program can spell.
	keep := func(e ast.Expr, what string) ast.Expr {
		switch e.(type) {
		case *ast.StringExpr, *ast.NumberExpr:
			return e
		}
		single(e)
		name := fmt.Sprintf("(%s%d)", what, len(names))
		names = append(names, name)
		exprs = append(exprs, e)
		ref := &ast.IdentExpr{Value: name}
		ref.SetLine(e.Line())
		return ref
	}
	for i, t := range targets {
		if a, ok := t.(*ast.AttrGetExpr); ok {
			object := keep(a.Object, "object")
			targets[i] = index(object, keep(a.Key, "key"), line)
		}
	}
	n := p.begin(false)
	if len(names) > 0 {
		do.Stmts = append(do.Stmts, local(names, exprs))
		p.declare(names...)
	}
	kept := make([]string, len(targets))
	for i := range kept {
		kept[i] = fmt.Sprintf("(value%d)", i)
	}
	do.Stmts = append(do.Stmts, local(kept, values))
	p.declare(kept...)
	p.end(n)
	for i := len(targets) - 1; i >= 0; i-- {
		ref := &ast.IdentExpr{Value: kept[i]}
		ref.SetLine(line)
		do.Stmts = append(do.Stmts, assign(targets[i], ref, line))
	}
	return do
}

func (p *parser) assignable(e ast.Expr) ast.Expr {
	switch e.(type) {
	case *ast.IdentExpr, *ast.AttrGetExpr:
		return e
	}
	p.fail("syntax error")
	return nil
}
