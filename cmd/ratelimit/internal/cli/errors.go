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
	"github.com/ratelimit-functions/ratelimit/policies"
)

// exitCode ends a command whose output already says everything.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// differs returns the exit code of a command that asked a question: 2 if the answer is no.
func differs(no bool) error {
	if no {
		return exitCode(exitDiffers)
	}
	return nil
}

// report writes err as one line and returns the exit code.
func (a *app) report(err error) int {
	var code exitCode
	switch {
	case err == nil:
		return exitFine
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(a.stderr, "ratelimit: "+oneLine(a.explained(err)))
	return exitError
}

// explained returns the text of err for output: with the hints of this command in place of the
// remedies for Go programs.
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

// reworded returns the text of an error that has its own wording here, or "".
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
	case *loader.Error:
		copied := *e
		copied.Remedy = a.remedy(e, e.Remedy)
		return copied.Error()
	case *dialing.Error:
		copied := *e
		copied.Remedy = a.remedy(e, e.Remedy)
		return copied.Error()
	case *client.Error:
		copied := *e
		copied.Remedy = a.remedy(e, e.Remedy)
		return copied.Error()
	case policies.Problems: // Problems.Error returns only the first
		var all []string
		for _, problem := range e {
			all = append(all, problem.Error())
		}
		return strings.Join(all, "; ")
	}
	return ""
}

// remedy returns the hint for err in place of its remedy, if it has one.
func (a *app) remedy(err error, remedy string) string {
	if remedy == "" {
		return ""
	}
	return cmp.Or(a.hint(err), remedy)
}

// explain replaces the error of a node with its text for output.
func (a *app) explain(n *loader.Node) {
	if n.Err != nil {
		n.Err = errors.New(a.explained(n.Err))
	}
}

// notes returns notes with their texts for output.
func (a *app) notes(list []*loader.Error) (notes []*loader.Error) {
	for _, note := range list {
		notes = append(notes, &loader.Error{Problem: a.explained(note)})
	}
	return notes
}

// oneLine returns text without "ratelimit: " before it, and with line ends and other control
// characters made visible.
func oneLine(text string) string {
	text = strings.TrimPrefix(text, "ratelimit: ")
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	return printable.Line(strings.Join(lines, " "))
}

// usageError is the error for an invalid command line.
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
