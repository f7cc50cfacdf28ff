// Package luasource parses a library's source code with gopher-lua's parser, and makes gopher-lua's
// compiled code behave as in Redis's Lua 5.1. It rewrites the parts of the syntax tree that
// gopher-lua compiles wrongly. It rejects parts that cannot be rewritten or that Redis would
// reject, and reports their line.
package luasource

import (
	"errors"
	"fmt"
	"strings"

	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// Name is the name of a library's source code in messages, as in Redis.
const Name = "user_function"

// Limits of a library's source code. gopher-lua uses about a hundred bytes of memory per byte of
// code, and about 13 kB per function.
const (
	maxText      = 3 << 20 // bytes: 1.5 times the largest build of the library
	maxTokens    = 1 << 20
	maxFunctions = 1 << 13
)

// Refusal is the error for a line of source code that would not run as it does in Redis.
type Refusal struct {
	Line int
	Says string
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s:%d: %s", Name, r.Line, r.Says) }

// Read parses a library's source code and returns the syntax tree to compile. The compiled chunk
// takes Concat and Modulo of package lualib as arguments, and returns a function that runs the
// library. If visit is not nil, Read calls visit with every statement, expression and table field as
// written, outer nodes first. The error is a *Refusal.
func Read(text string, visit func(node any)) (tree []ast.Stmt, err error) {
	if err := tooMuch(len(text), maxText, "bytes"); err != nil {
		return nil, err
	}
	if strings.HasPrefix(text, "#!") {
		text = "--" + text[2:] // line 1 is not Lua; turn it into a comment, to keep the line numbers
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
	w := &walker{visit: visit, fn: &function{vararg: true, constants: map[string]int{}}}
	body := &ast.FunctionExpr{Stmts: w.block(stmts)}
	if err := tooMuch(w.functions, maxFunctions, "functions"); err != nil {
		return nil, err
	}
	body.ParList = &ast.ParList{HasVargs: w.fn.dots}
	body.SetLine(1)
	body.SetLastLine(1 + strings.Count(text, "\n"))
	take := &ast.LocalAssignStmt{Names: []string{concatName, moduloName}, Exprs: []ast.Expr{&ast.Comma3Expr{}}}
	return []ast.Stmt{take, &ast.ReturnStmt{Exprs: []ast.Expr{body}}}, nil
}

// tooMuch returns an error if n exceeds most. unit is the unit of both, such as "bytes".
func tooMuch(n, most int, unit string) error {
	if n <= most {
		return nil
	}
	return &Refusal{1, fmt.Sprintf("the text has %d %s, and the embedded server takes at most %d; split it into several libraries", n, unit, most)}
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

// maxWaiting is the maximum number of operators that may wait for their right operand. With more,
// the expression's tree would be too deep, and the parser needs 1 KiB of memory for each operator.
const maxWaiting = 1 << 12

// checkTokens rejects code that gopher-lua's parser accepts but Lua 5.1 does not. It looks only for
// errors that leave no trace in the syntax tree. It also rejects code for which the parser would
// need too much memory.
func checkTokens(text string) error {
	scanner := parse.NewScanner(strings.NewReader(text), Name)
	lexer := &parse.Lexer{}
	var before, last ast.Token
	end := ast.Position{} // where the previous token ends
	parameters := false   // between the keyword function and the end of its parameters
	open := true          // whether a semicolon here would be an empty statement
	waiting := 0          // upper bound on the number of operators that wait for an operand
	outside := []int{0}   // the value of waiting before each open bracket and block; the first element is 0
	for tokens := 0; ; tokens++ {
		token, err := scanner.Scan(lexer)
		if err != nil {
			return refusal(text, err)
		}
		switch {
		case token.Type == parse.EOF:
			return tooMuch(tokens, maxTokens, "tokens")
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
		case '=', ',', ';', parse.TReturn, parse.TIf, parse.TElseIf, parse.TWhile, parse.TRepeat, parse.TDo: // tokens that end the previous expression
			waiting = outside[len(outside)-1]
		}
		switch token.Type {
		case '(', '{', '[', parse.TFunction, parse.TIf, parse.TDo, parse.TRepeat:
			if outside = append(outside, waiting); len(outside) > 1+maxDepth {
				return tooDeep(token.Pos.Line)
			}
		case ')', '}', ']', parse.TEnd, parse.TUntil:
			if inner := len(outside) - 1; inner > 0 {
				waiting, outside = outside[inner], outside[:inner]
			}
		case '-', '#', '^', parse.TNot, parse.T2Comma:
			if waiting++; waiting > maxWaiting {
				return tooDeep(token.Pos.Line)
			}
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
