package syntax

import (
	"fmt"
	"strconv"

	"github.com/yuin/gopher-lua/ast"
)

// Names of the helpers that a chunk calls where gopher-lua's own instruction
// does not behave as Lua 5.1. No Lua program can spell them.
const (
	HelperConcat = "(concat)" // helper(a, b, c, ...) is a .. b .. c ...
	HelperFor    = "(for)"    // helper(init, limit, step) checks a numeric for
	HelperMod    = "(mod)"    // helper(a, b) is a % b
	HelperPow    = "(pow)"    // helper(a, b) is a ^ b
)

// Helpers lists them in the order in which a chunk takes them as arguments.
var Helpers = []string{HelperConcat, HelperFor, HelperMod, HelperPow}

// PUC's limits.
const (
	maxLocals   = 200
	maxUpvalues = 60
	maxDepth    = 200
)

type parser struct {
	lx       *lexer
	tok      token
	ahead    token
	hasAhead bool
	lastLine int // of the token before tok
	depth    int
	fs       *scope
	number   func(string) (float64, bool)
}

// scope is one function being read: what PUC's FuncState keeps for its limits.
type scope struct {
	outer    *scope
	line     int // where it is defined; 0 is the main chunk
	params   int // with self
	vararg   bool
	usesDots bool
	active   []string
	notes    []int // where in info.Locals the active ones are
	upvalues []string
	blocks   []*blockScope // the innermost last
	info     *Function
}

// blockScope is a block of a function. What it keeps is needed for one fault of
// gopher-lua: a break that leaves inner blocks as well as the loop's own does
// not detach the closures that captured variables of those; see detach.
type blockScope struct {
	first    int // of its variables in scope.active
	loop     bool
	captured bool // a closure captured a variable of this block
	inner    bool // or of a block in it, of the same loop
	breaks   bool // the loop has a break
}

// Function tells of one function of a chunk what gopher-lua's own debug
// information does not: which register each local variable is in. Locals and
// nested functions are in the order of the source.
type Function struct {
	Locals  []Local
	Shifted bool // the registers of Locals are not right
	Inner   []*Function
}

// Local is a local variable. Names in parentheses are not the program's.
type Local struct {
	Name     string
	Register int
	LastLine int // where its block ends; 0 is the end of the function
}

// Parse reads a chunk. The tree is that of a function which takes the Helpers
// and returns the chunk as a function; info describes the chunk. number converts
// numerals.
func Parse(src, chunk string, number func(string) (float64, bool)) (stmts []ast.Stmt, info *Function, err error) {
	p := &parser{lx: &lexer{src: src, line: 1, chunk: chunk}, number: number}
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*Error)
			if !ok {
				panic(r)
			}
			stmts, info, err = nil, nil, e
		}
	}()
	p.fs = &scope{vararg: true, info: &Function{}}
	p.advance()
	body := p.chunk()
	if p.tok.kind != tEOF {
		p.expected("<eof>")
	}
	main := &ast.FunctionExpr{ParList: &ast.ParList{HasVargs: p.fs.usesDots}, Stmts: body}
	main.SetLine(1)
	main.SetLastLine(p.lx.line)
	dots := &ast.Comma3Expr{}
	dots.SetLine(1)
	take := &ast.LocalAssignStmt{Names: append([]string(nil), Helpers...), Exprs: []ast.Expr{dots}}
	take.SetLine(1)
	ret := &ast.ReturnStmt{Exprs: []ast.Expr{main}}
	ret.SetLine(1)
	return []ast.Stmt{take, ret}, p.fs.info, nil
}

func (p *parser) advance() {
	p.lastLine = p.tok.line
	if p.hasAhead {
		p.tok, p.hasAhead = p.ahead, false
		return
	}
	p.tok = p.lx.next()
	if p.tok.kind == tNumber {
		if _, ok := p.number(p.tok.text); !ok {
			p.lx.fail("malformed number", p.tok.raw, p.tok.line)
		}
	}
}

func (p *parser) peek() token {
	if !p.hasAhead {
		p.ahead, p.hasAhead = p.lx.next(), true
	}
	return p.ahead
}

func (p *parser) is(text string) bool {
	return (p.tok.kind == tReserved || p.tok.kind == tOperator) && p.tok.text == text
}

func (p *parser) accept(text string) bool {
	if p.is(text) {
		p.advance()
		return true
	}
	return false
}

func (p *parser) fail(msg string) { p.lx.fail(msg, p.tok.raw, p.lx.line) }

func (p *parser) expected(what string) { p.fail(fmt.Sprintf("'%s' expected", what)) }

func (p *parser) expect(text string) {
	if !p.accept(text) {
		p.expected(text)
	}
}

// match demands the end of what began with open in line.
func (p *parser) match(what, open string, line int) {
	if p.accept(what) {
		return
	}
	if line == p.lx.line {
		p.expected(what)
	}
	p.fail(fmt.Sprintf("'%s' expected (to close '%s' at line %d)", what, open, line))
}

func (p *parser) name() string {
	if p.tok.kind != tName {
		p.expected("<name>")
	}
	s := p.tok.text
	p.advance()
	return s
}

func (p *parser) enter() {
	p.depth++
	if p.depth > maxDepth {
		p.lx.fail("chunk has too many syntax levels", "", p.lx.line)
	}
}

func (p *parser) leave() { p.depth-- }

func (p *parser) limit(limit int, what string) {
	if p.fs.line == 0 {
		p.lx.fail(fmt.Sprintf("main function has more than %d %s", limit, what), "", p.lx.line)
	}
	p.lx.fail(fmt.Sprintf("function at line %d has more than %d %s", p.fs.line, limit, what), "", p.lx.line)
}

func (p *parser) declare(names ...string) {
	for _, n := range names {
		if len(p.fs.active) >= maxLocals {
			p.limit(maxLocals, "local variables")
		}
		p.fs.notes = append(p.fs.notes, len(p.fs.info.Locals))
		p.fs.info.Locals = append(p.fs.info.Locals, Local{Name: n, Register: len(p.fs.active)})
		p.fs.active = append(p.fs.active, n)
	}
}

// use notes a variable, so that a function's upvalues can be counted.
func (p *parser) use(name string) {
	here := p.fs
	if holds(here.active, name) {
		return
	}
	for fs := here.outer; fs != nil; fs = fs.outer {
		if !holds(fs.active, name) {
			continue
		}
		fs.capture(name)
		for s := here; s != fs; s = s.outer {
			if !holds(s.upvalues, name) {
				if len(s.upvalues) >= maxUpvalues {
					p.fs = s
					p.limit(maxUpvalues, "upvalues")
				}
				s.upvalues = append(s.upvalues, name)
			}
		}
		return
	}
}

// capture notes that a closure uses a variable of this function.
func (fs *scope) capture(name string) {
	i := len(fs.active) - 1
	for fs.active[i] != name {
		i--
	}
	for b := len(fs.blocks) - 1; b >= 0; b-- {
		if fs.blocks[b].first <= i {
			fs.blocks[b].captured = true
			return
		}
	}
}

func holds(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func (p *parser) blockEnd() bool {
	return p.tok.kind == tEOF || p.is("else") || p.is("elseif") || p.is("end") || p.is("until")
}

// chunk reads statements up to the end of the block.
func (p *parser) chunk() []ast.Stmt {
	p.enter()
	defer p.leave()
	stmts := []ast.Stmt{}
	last := false
	for !last && !p.blockEnd() {
		var s ast.Stmt
		s, last = p.statement()
		stmts = append(stmts, s)
		p.accept(";")
	}
	return stmts
}

// block is a chunk with a scope of its own.
func (p *parser) block() []ast.Stmt {
	n := p.begin(false)
	stmts := p.chunk()
	p.end(n)
	return stmts
}

// begin opens a block; end closes it.
func (p *parser) begin(loop bool) int {
	n := len(p.fs.active)
	p.fs.blocks = append(p.fs.blocks, &blockScope{first: n, loop: loop})
	return n
}

// end closes a block: only the first n locals live on.
func (p *parser) end(n int) *blockScope {
	for _, i := range p.fs.notes[n:] {
		p.fs.info.Locals[i].LastLine = p.lastLine
	}
	p.fs.notes, p.fs.active = p.fs.notes[:n], p.fs.active[:n]
	last := len(p.fs.blocks) - 1
	b := p.fs.blocks[last]
	p.fs.blocks = p.fs.blocks[:last]
	if !b.loop && last > 0 && (b.captured || b.inner) {
		p.fs.blocks[last-1].inner = true
	}
	return b
}

// endLoop closes a loop's block and completes its statements.
func (p *parser) endLoop(n int, stmts []ast.Stmt) []ast.Stmt {
	b := p.end(n)
	if !b.breaks || !b.inner {
		return stmts
	}
	// local (mark); do local (f) = function() return (mark) end end: with a
	// variable of its own captured, the loop detaches all closures at a break.
	p.fs.info.Shifted = true
	line := p.lastLine
	mark := &ast.LocalAssignStmt{Names: []string{"(mark)"}}
	mark.SetLine(line)
	ref := &ast.IdentExpr{Value: "(mark)"}
	ref.SetLine(line)
	ret := &ast.ReturnStmt{Exprs: []ast.Expr{ref}}
	ret.SetLine(line)
	fn := &ast.FunctionExpr{ParList: &ast.ParList{}, Stmts: []ast.Stmt{ret}}
	fn.SetLine(line)
	fn.SetLastLine(line)
	keep := &ast.LocalAssignStmt{Names: []string{"(f)"}, Exprs: []ast.Expr{fn}}
	keep.SetLine(line)
	do := &ast.DoBlockStmt{Stmts: []ast.Stmt{keep}}
	do.SetLine(line)
	do.SetLastLine(line)
	return append([]ast.Stmt{mark, do}, stmts...)
}

// innermostLoop is the loop that a break would leave, or nil.
func (fs *scope) innermostLoop() *blockScope {
	for i := len(fs.blocks) - 1; i >= 0; i-- {
		if fs.blocks[i].loop {
			return fs.blocks[i]
		}
	}
	return nil
}

// ident makes a variable node.
func (p *parser) ident(name string, line int) *ast.IdentExpr {
	p.use(name)
	e := &ast.IdentExpr{Value: name}
	e.SetLine(line)
	return e
}

func number(v float64, line int) *ast.NumberExpr {
	e := &ast.NumberExpr{Value: strconv.FormatFloat(v, 'g', -1, 64)}
	e.SetLine(line)
	return e
}

// helper makes a call of a helper.
func helper(name string, line int, args []ast.Expr) *ast.FuncCallExpr {
	fn := &ast.IdentExpr{Value: name}
	fn.SetLine(line)
	call := &ast.FuncCallExpr{Func: fn, Args: args}
	call.SetLine(line)
	call.SetLastLine(line)
	return call
}
