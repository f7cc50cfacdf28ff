package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/yuin/gopher-lua/parse"
)

// A mutant is a change to a source file. It replaces the Nth occurrence of some lines; the first
// has number 0.
type mutant struct {
	File string // as in the build, such as src/45_limits.lua
	Old  string
	Nth  int
	New  string

	function string // the function with the change; "" outside of functions
	line     int
	was, now string // the code before and after the change, for display
}

func (m mutant) String() string {
	return fmt.Sprintf("functions/%s:%d: %s -> %s in: %s", m.File, m.line, m.was, m.now, flat(m.Old))
}

// An id identifies a mutant. It stays valid as long as the function contains the first changed
// line. The line's comment may change.
type id struct {
	place    string // file and function
	old, new string
}

func (m mutant) id() id {
	return id{strings.TrimSpace(m.File + " " + m.function), firstLine(m.Old), firstLine(m.New)}
}

// String returns the mutant's line in equivalent.tsv, up to the reason.
func (i id) String() string { return i.place + "\t" + i.old + "\t" + i.new }

// firstLine returns the first line of text, without its comment.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	for _, at := range token.FindAllStringIndex(line, -1) {
		if strings.HasPrefix(line[at[0]:], "--") {
			line = line[:at[0]]
			break
		}
	}
	return flat(line)
}

var comments = regexp.MustCompile(`(?m)^[ \t]*--.*\n|[ \t]+-- [^'"\n]*$`)

// uncommented returns text as the build has it, without comments.
func uncommented(text string) string { return comments.ReplaceAllString(text, "") }

func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

// token matches the next token of Lua: a comment, a string, a number, a name or an operator.
var token = regexp.MustCompile(`--[^\n]*|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|\d+|\w+|[<>=~]=|\.\.|\S`)

var swapped = map[string]string{
	"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "~=", "~=": "==", "and": "or", "or": "and", "true": "false", "false": "true",
	"min": "max", "max": "min",
}

// functionHead matches the first line of a function that is not nested in another.
var functionHead = regexp.MustCompile(`(?m)^(?:local )?function ([\w.]+)\(`)

func find(file, text string) []mutant {
	var all []mutant
	// change adds a mutant that has replacement instead of text[from:to]. Its description is
	// "before -> after".
	change := func(from, to int, before, after, replacement string) {
		first := strings.LastIndexByte(text[:from], '\n') + 1
		last := to + strings.IndexByte(text[to:]+"\n", '\n')
		m := mutant{File: file, Old: uncommented(text[first:last]), New: uncommented(text[first:from] + replacement + text[to:last]), was: before, now: after}
		earlier := uncommented(text[:first]) + m.Old
		m.Nth = appearances(earlier[:max(0, len(earlier)-1)], m.Old)
		m.line = 1 + strings.Count(text[:from], "\n")
		if heads := functionHead.FindAllStringSubmatch(text[:last], -1); heads != nil {
			m.function = heads[len(heads)-1][1]
		}
		all = append(all, m)
	}
	condition := -1 // start of the current condition, or -1
	for _, at := range token.FindAllStringIndex(text, -1) {
		word := text[at[0]:at[1]]
		if with, ok := swapped[word]; ok {
			change(at[0], at[1], word, with, with)
		} else if n, err := strconv.ParseInt(word, 10, 64); err == nil {
			for _, n := range []int64{n + 1, n - 1} {
				with := strconv.FormatInt(n, 10)
				change(at[0], at[1], word, with, with)
			}
		}
		switch word {
		case "if", "elseif", "while":
			condition = at[1] + 1
		case "then", "do":
			if condition > 0 {
				was := strings.TrimSpace(text[condition:at[0]])
				change(condition, at[0], "condition", "not", "not ("+was+") ")
			}
			condition = -1
		}
	}
	lines := strings.SplitAfter(text, "\n")
	from := 0
	for i, line := range lines {
		if length := statement(lines[i:]); length > 0 {
			change(from, from+length, "statement", "nothing", "")
		}
		from += len(line)
	}
	return all
}

// appearances counts how often lines occur in text. The occurrences may overlap.
func appearances(text, lines string) (count int) {
	for at := 0; ; count++ {
		found := strings.Index("\n"+text[at:]+"\n", "\n"+lines+"\n")
		if found < 0 {
			return count
		}
		at += found + 1
	}
}

var (
	dropped     = regexp.MustCompile(`^[a-zA-Z_]`)
	undroppable = regexp.MustCompile(`^(local|function|else|elseif|end|return nil$)\b`)
)

// statement returns the length in bytes of the statement that begins with lines[0], or 0 if there
// is no statement worth dropping. Dropping a declaration breaks the code, and dropping a final
// `return nil` changes nothing. In the sources, each statement has its own lines.
func statement(lines []string) int {
	first := strings.TrimSpace(lines[0])
	if !dropped.MatchString(first) || undroppable.MatchString(first) {
		return 0
	}
	text := ""
	for _, line := range lines[:min(len(lines), 40)] {
		text += line
		if _, err := parse.Parse(strings.NewReader(text), ""); err == nil {
			return len(strings.TrimRight(text, "\n"))
		}
	}
	return 0
}
