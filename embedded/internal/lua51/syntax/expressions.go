package syntax

import (
	"math"

	"github.com/yuin/gopher-lua/ast"
)

var binaryPriority = map[string][2]int{
	"or": {1, 1}, "and": {2, 2},
	"<": {3, 3}, ">": {3, 3}, "<=": {3, 3}, ">=": {3, 3}, "~=": {3, 3}, "==": {3, 3},
	"..": {5, 4}, "+": {6, 6}, "-": {6, 6}, "*": {7, 7}, "/": {7, 7}, "%": {7, 7}, "^": {10, 9},
}

const unaryPriority = 8

func (p *parser) exprList() []ast.Expr {
	list := []ast.Expr{p.expr()}
	for p.accept(",") {
		list = append(list, p.expr())
	}
	return list
}

func (p *parser) expr() ast.Expr { return p.subExpr(0) }

func (p *parser) subExpr(limit int) ast.Expr {
	p.enter()
	defer p.leave()
	left := p.operand()
	for p.tok.kind == tOperator || p.tok.kind == tReserved {
		op := p.tok.text
		prio, ok := binaryPriority[op]
		if !ok || prio[0] <= limit {
			break
		}
		p.advance()
		right := p.subExpr(prio[1])
		left = binary(op, left, right, p.lastLine)
	}
	return left
}

func (p *parser) operand() ast.Expr {
	line := p.tok.line
	if p.is("-") || p.is("not") || p.is("#") {
		op := p.tok.text
		p.advance()
		e := p.subExpr(unaryPriority)
		var out ast.Expr
		switch op {
		case "-":
			out = &ast.UnaryMinusOpExpr{Expr: e}
		case "not":
			out = &ast.UnaryNotOpExpr{Expr: e}
		default:
			out = &ast.UnaryLenOpExpr{Expr: e}
		}
		out.SetLine(p.lastLine)
		return out
	}
	return p.simple(line)
}

func (p *parser) simple(line int) ast.Expr {
	var e ast.Expr
	switch {
	case p.tok.kind == tNumber:
		v, _ := p.number(p.tok.text)
		e = p.numeral(v, line)
	case p.tok.kind == tString:
		e = str(p.tok.text, line)
	case p.is("nil"):
		e = &ast.NilExpr{}
	case p.is("true"):
		e = &ast.TrueExpr{}
	case p.is("false"):
		e = &ast.FalseExpr{}
	case p.is("..."):
		if !p.fs.vararg {
			p.fail("cannot use '...' outside a vararg function")
		}
		p.fs.usesDots = true
		e = &ast.Comma3Expr{}
	case p.is("{"):
		return p.table()
	case p.is("function"):
		p.advance()
		return p.body(false, line)
	default:
		return unparen(p.suffixed())
	}
	e.SetLine(line)
	p.advance()
	return e
}

// numeral writes infinity, which gopher-lua cannot read, as 1/0.
func (p *parser) numeral(v float64, line int) ast.Expr {
	if !math.IsInf(v, 0) {
		return number(v, line)
	}
	e := &ast.ArithmeticOpExpr{Operator: "/", Lhs: number(1, line), Rhs: number(0, line)}
	e.SetLine(line)
	return e
}

func str(s string, line int) *ast.StringExpr {
	e := &ast.StringExpr{Value: s}
	e.SetLine(line)
	return e
}

func index(obj, key ast.Expr, line int) *ast.AttrGetExpr {
	e := &ast.AttrGetExpr{Object: obj, Key: key}
	e.SetLine(line)
	return e
}

func binary(op string, l, r ast.Expr, line int) ast.Expr {
	var e ast.Expr
	switch op {
	case "or", "and":
		e = &ast.LogicalOpExpr{Operator: op, Lhs: l, Rhs: r}
	case "<", ">", "<=", ">=", "==", "~=":
		e = &ast.RelationalOpExpr{Operator: op, Lhs: l, Rhs: r}
	case "..":
		return concat(l, r, line)
	case "%", "^":
		// gopher-lua takes the remainder with fmod, PUC by way of a division,
		// which rounds; and C's pow is more exact than Go's.
		single(l)
		single(r)
		name := HelperMod
		if op == "^" {
			name = HelperPow
		}
		call := helper(name, line, []ast.Expr{l, r})
		call.AdjustRet = true
		return call
	default:
		e = &ast.ArithmeticOpExpr{Operator: op, Lhs: l, Rhs: r}
	}
	e.SetLine(line)
	return e
}

// concat makes a call of the helper, since gopher-lua writes numbers in its
// own way when it concatenates. A chain becomes one call, as it is one
// instruction in PUC: "..", being right associative, has the rest on its right.
func concat(l, r ast.Expr, line int) ast.Expr {
	if a, ok := l.(*ast.StringExpr); ok {
		if b, ok := r.(*ast.StringExpr); ok {
			return str(a.Value+b.Value, line)
		}
	}
	single(l)
	if call, ok := r.(*ast.FuncCallExpr); ok && isConcat(call) {
		call.Args = append([]ast.Expr{l}, call.Args...)
		return call
	}
	single(r)
	return helper(HelperConcat, line, []ast.Expr{l, r})
}

func isConcat(call *ast.FuncCallExpr) bool {
	id, ok := call.Func.(*ast.IdentExpr)
	return ok && id.Value == HelperConcat && !call.AdjustRet
}

// single cuts an expression that may have several values to one.
func single(e ast.Expr) {
	switch e := e.(type) {
	case *ast.FuncCallExpr:
		e.AdjustRet = true
	case *ast.Comma3Expr:
		e.AdjustRet = true
	}
}

// primary reads a name or an expression in parentheses.
func (p *parser) primary() ast.Expr {
	line := p.tok.line
	switch {
	case p.tok.kind == tName:
		return p.ident(p.name(), line)
	case p.is("("):
		p.advance()
		e := p.expr()
		p.match(")", "(", line)
		single(e)
		switch e.(type) {
		case *ast.IdentExpr, *ast.AttrGetExpr:
			// (a) = 1 is an error, and (a) alone cannot be told from a.
			return &parenExpr{e}
		}
		return e
	}
	p.fail("unexpected symbol")
	return nil
}

// parenExpr marks a variable in parentheses until it is known not to be
// assigned to. It never stays in the tree.
type parenExpr struct{ ast.Expr }

func unparen(e ast.Expr) ast.Expr {
	if pe, ok := e.(*parenExpr); ok {
		return pe.Expr
	}
	return e
}

// suffixed reads a primary expression and what is called or indexed on it.
func (p *parser) suffixed() ast.Expr {
	e := p.primary()
	for {
		line := p.tok.line
		switch {
		case p.is("."):
			p.advance()
			key := p.name()
			e = index(unparen(e), str(key, p.lastLine), p.lastLine)
		case p.is("["):
			p.advance()
			key := p.expr()
			p.expect("]")
			e = index(unparen(e), key, p.lastLine)
		case p.is(":"):
			p.advance()
			method := p.name()
			call := &ast.FuncCallExpr{Receiver: unparen(e), Method: method}
			p.args(call)
			e = call
		case p.is("(") || p.is("{") || p.tok.kind == tString:
			if p.is("(") && line != p.lastLine {
				p.fail("ambiguous syntax (function call x new statement)")
			}
			call := &ast.FuncCallExpr{Func: unparen(e)}
			p.args(call)
			e = call
		default:
			return e
		}
	}
}

func (p *parser) args(call *ast.FuncCallExpr) {
	line := p.tok.line
	call.SetLine(line)
	switch {
	case p.tok.kind == tString:
		call.Args = []ast.Expr{str(p.tok.text, line)}
		p.advance()
	case p.is("{"):
		call.Args = []ast.Expr{p.table()}
	case p.is("("):
		if line != p.lastLine {
			p.fail("ambiguous syntax (function call x new statement)")
		}
		p.advance()
		if !p.is(")") {
			call.Args = p.exprList()
		}
		p.match(")", "(", line)
	default:
		p.fail("function arguments expected")
	}
	call.SetLastLine(p.lastLine)
}

func (p *parser) table() ast.Expr {
	line := p.tok.line
	p.expect("{")
	t := &ast.TableExpr{}
	t.SetLine(line)
	for !p.is("}") {
		field := &ast.Field{}
		switch {
		case p.is("["):
			p.advance()
			field.Key = p.expr()
			p.expect("]")
			p.expect("=")
		case p.tok.kind == tName:
			if ahead := p.peek(); ahead.kind == tOperator && ahead.text == "=" {
				field.Key = str(p.name(), line)
				p.advance()
			}
		}
		field.Value = p.expr()
		t.Fields = append(t.Fields, field)
		if !p.accept(",") && !p.accept(";") {
			break
		}
	}
	p.match("}", "{", line)
	t.SetLastLine(p.lastLine)
	return t
}

// body reads parameters and statements of a function; line is where the word
// function stands.
func (p *parser) body(method bool, line int) *ast.FunctionExpr {
	fn := &ast.FunctionExpr{ParList: &ast.ParList{}}
	fn.SetLine(line)
	info := &Function{}
	p.fs.info.Inner = append(p.fs.info.Inner, info)
	p.fs = &scope{outer: p.fs, line: line, info: info}
	p.expect("(")
	if method {
		p.declare("self")
	}
	for !p.is(")") {
		if p.accept("...") {
			fn.ParList.HasVargs, p.fs.vararg = true, true
			break
		}
		if p.tok.kind != tName {
			p.fail("<name> or '...' expected")
		}
		name := p.name()
		p.declare(name)
		fn.ParList.Names = append(fn.ParList.Names, name)
		if !p.accept(",") {
			break
		}
		if p.is(")") {
			p.fail("<name> or '...' expected")
		}
	}
	p.expect(")")
	p.fs.params = len(p.fs.active)
	if fn.ParList.HasVargs {
		p.declare("arg") // as Lua 5.0 had it; PUC still makes room for it
	}
	fn.Stmts = p.chunk()
	fn.SetLastLine(p.tok.line)
	p.match("end", "function", line)
	p.fs = p.fs.outer
	return fn
}
