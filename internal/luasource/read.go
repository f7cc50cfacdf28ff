// Package luasource reads the Lua of a library with gopher-lua's parser, and makes sure that what gopher-lua compiles from
// it does what Redis's Lua 5.1 does: what gopher-lua is known to compile wrongly is put right on the tree, and what
// cannot be put right, or what Redis would not take, is refused with its line.
package luasource

import (
	"errors"
	"fmt"
	"strings"

	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// Name is how messages name a library's text, as Redis names it.
const Name = "user_function"

// maxText is how long a text may be, in bytes: half as much again as the largest build of the library. gopher-lua takes some
// hundred bytes of memory for a byte of text.
const maxText = 3 << 20

// Refusal is a place in a library's text that cannot be run as Redis would run it.
type Refusal struct {
	Line int
	Says string
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s:%d: %s", Name, r.Line, r.Says) }

// Read returns the tree of a library's text, to be compiled: that of a function which takes Concat and Modulo of package
// lualib and returns the text as a function. visit, if not nil, is called for every statement, expression and table
// field as it is written, each before those in it. The error is a *Refusal.
func Read(text string, visit func(node any)) (tree []ast.Stmt, err error) {
	if len(text) > maxText {
		return nil, &Refusal{1, fmt.Sprintf("the text has %d bytes, and the embedded server takes at most %d; split it into several libraries", len(text), maxText)}
	}
	if strings.HasPrefix(text, "#!") {
		text = "--" + text[2:] // line 1 is not Lua, and keeps its place
	}
	if err := checkTokens(text); err != nil {
		return nil, err
	}
	stmts, err := parse.Parse(strings.NewReader(text), Name)
	if err != nil {
		return nil, refusal(text, err)
	}
	defer func() {
		if r := recover(); r != nil {
			refused, ok := r.(*Refusal)
			if !ok {
				panic(r)
			}
			tree, err = nil, refused
		}
	}()
	if visit == nil {
		visit = func(any) {}
	}
	w := &walker{visit: visit, fn: &function{vararg: true, constants: map[string]bool{}}}
	body := &ast.FunctionExpr{Stmts: w.block(stmts)}
	body.ParList = &ast.ParList{HasVargs: w.fn.dots}
	body.SetLine(1)
	body.SetLastLine(1 + strings.Count(text, "\n"))
	take := &ast.LocalAssignStmt{Names: []string{concatName, moduloName}, Exprs: []ast.Expr{&ast.Comma3Expr{}}}
	return []ast.Stmt{take, &ast.ReturnStmt{Exprs: []ast.Expr{body}}}, nil
}

func refusal(text string, err error) error {
	var bad *parse.Error
	if !errors.As(err, &bad) {
		return &Refusal{1, err.Error()}
	}
	line, near := bad.Pos.Line, fmt.Sprintf("near '%.80s'", bad.Token)
	if line == parse.EOF {
		line, near = 1+strings.Count(text, "\n"), "at the end"
	}
	return &Refusal{line, strings.TrimSpace(bad.Message) + " " + near}
}

// checkTokens refuses what gopher-lua's parser takes and Lua 5.1 does not, where the tree no longer shows it.
func checkTokens(text string) error {
	scanner := parse.NewScanner(strings.NewReader(text), Name)
	lexer := &parse.Lexer{}
	var before, last ast.Token
	end := ast.Position{} // of last
	depth := 0            // of brackets and blocks
	parameters := false   // between the word function and the end of its parameters
	open := true          // a statement may begin here, but no semicolon stand
	for {
		token, err := scanner.Scan(lexer)
		if err != nil {
			return refusal(text, err)
		}
		switch {
		case token.Type == parse.EOF:
			return nil
		case last.Type == parse.TNumber && token.Pos.Line == end.Line && token.Pos.Column == end.Column+1 &&
			(token.Type == parse.TIdent || token.Type == parse.TNumber || token.Name != "" && token.Str != "" && isLetter(token.Str[0])):
			return &Refusal{token.Pos.Line, fmt.Sprintf("malformed number near '%s%s'", last.Str, token.Str)}
		case token.Type == ';' && open:
			return &Refusal{token.Pos.Line, "unexpected ';': Lua 5.1 has no empty statement"}
		case token.Type == '(' && token.Pos.Line != end.Line && !parameters && before.Type != parse.TLocal &&
			(last.Type == parse.TIdent || last.Type == parse.TString || last.Type == ')' || last.Type == ']'):
			return &Refusal{token.Pos.Line, "ambiguous syntax: a call, or a new statement? End the line before with a semicolon, or put '(' there"}
		}
		switch token.Type {
		case '(', '{', '[', parse.TFunction, parse.TIf, parse.TDo, parse.TRepeat:
			if depth++; depth > maxDepth {
				return tooDeep(token.Pos.Line)
			}
		case ')', '}', ']', parse.TEnd, parse.TUntil:
			depth--
		}
		switch token.Type {
		case parse.TFunction:
			parameters, open = true, false
		case ';', parse.TThen, parse.TDo, parse.TElse, parse.TRepeat:
			open = true
		default:
			open = parameters && token.Type == ')'
			parameters = parameters && token.Type != ')'
		}
		before, last, end = last, token, scanner.Pos
	}
}

func isLetter(c byte) bool { return c == '_' || c|32 >= 'a' && c|32 <= 'z' }
