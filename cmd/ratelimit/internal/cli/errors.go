package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/dialing"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/policies"
)

// exitCode is the error from a command that has already printed everything. report prints nothing
// for it, and returns the code.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// differs returns the error for exit code 2 if the command's answer is negative: servers differ, a
// check found a problem, or a call was denied.
func differs(negative bool) error {
	if negative {
		return exitCode(exitDiffers)
	}
	return nil
}

// report writes err as one line and returns the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return exitFine
	}
	if code, ok := errors.AsType[exitCode](err); ok {
		return int(code)
	}
	fmt.Fprintln(a.stderr, "ratelimit: "+oneLine(a.explained(err)))
	return exitError
}

// explained returns the text of err for users of the command: hints replace the remedies for Go
// programs.
func (a *app) explained(err error) string {
	text := err.Error()
	if own := a.reworded(err); own != "" {
		return own
	}
	var inner []error
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		inner = []error{e.Unwrap()}
	case interface{ Unwrap() []error }:
		inner = e.Unwrap()
	}
	for _, err := range inner {
		if err != nil {
			text = strings.Replace(text, err.Error(), a.explained(err), 1)
		}
	}
	return text
}

// reworded returns the text that the command prints for some types of errors, or "" for all others.
func (a *app) reworded(err error) string {
	switch e := err.(type) {
	case *usageError:
		return e.problem + "; for example: " + a.program + " " + e.example
	case *loader.PartialError:
		copied := *e
		copied.Nodes = slices.Clone(e.Nodes)
		for i := range copied.Nodes {
			a.explain(&copied.Nodes[i])
		}
		copied.Notes = a.notes(e.Notes)
		return copied.Error()
	case *nodes.Error:
		copied := *e
		copied.Remedy = a.remedy(e, e.Remedy)
		return copied.Error()
	case *dialing.Error:
		copied := *e
		copied.Remedy = a.remedy(e, e.Remedy)
		return copied.Error()
	case *atNode:
		return e.text(a.explained(e.err))
	case *client.Error:
		copied := *e
		copied.Remedy = a.remedy(e, e.Remedy)
		return copied.Error()
	case policies.Mistakes: // Mistakes.Error returns only the first problem
		var all []string
		for _, problem := range e {
			all = append(all, problem.Error())
		}
		return strings.Join(all, "; ")
	}
	return ""
}

// remedy returns the hint that replaces the remedy of err, or the remedy itself if there is no
// hint.
func (a *app) remedy(err error, remedy string) string {
	if remedy == "" {
		return ""
	}
	return cmp.Or(a.hint(err), remedy)
}

// explain replaces a node's error with an error for users of the command.
func (a *app) explain(n *loader.Node) {
	if n.Err != nil {
		n.Err = errors.New(a.explained(n.Err))
	}
}

// notes returns the notes, reworded for users of the command.
func (a *app) notes(list []*nodes.Error) (notes []*nodes.Error) {
	for _, note := range list {
		notes = append(notes, &nodes.Error{Problem: a.explained(note)})
	}
	return notes
}

// oneLine returns text as a single line, without the prefix "ratelimit: ". Control characters are
// made visible.
func oneLine(text string) string {
	text = strings.TrimPrefix(text, "ratelimit: ")
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	return printable.Line(strings.Join(lines, " "))
}

type usageError struct {
	problem string
	example string // a valid command line, without the program's name
}

func (e *usageError) Error() string { return e.problem + "; for example: ratelimit " + e.example }

// example returns the first line of a command's examples.
func example(cmd *cobra.Command) string {
	line, _, _ := strings.Cut(strings.TrimSpace(cmd.Example), "\n")
	return line
}

func wrongUse(example, format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...), strings.TrimPrefix(example, "ratelimit ")}
}
