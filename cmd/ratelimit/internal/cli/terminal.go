package cli

import (
	"context"
	"io"
	"os"

	"github.com/clipperhouse/displaywidth"
	"golang.org/x/term"
)

// interruptible returns the results of f, or ctx.Err() if ctx is done first. In the second case, f
// continues in the background, because it cannot be canceled.
func interruptible[T any](ctx context.Context, f func() (T, error)) (result T, err error) {
	type results struct {
		value T
		err   error
	}
	done := make(chan results, 1)
	go func() {
		value, err := f()
		done <- results{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return result, ctx.Err()
	}
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// terminalSize returns the size of the terminal that w writes to, in characters, or 0, 0 if it is
// unknown.
func terminalSize(w io.Writer) (width, height int) {
	if file, ok := w.(*os.File); ok {
		width, height, _ = term.GetSize(int(file.Fd()))
	}
	return width, height
}

// onScreen measures text as a terminal shows it: escape sequences have no width.
var onScreen = displaywidth.Options{ControlSequences: true}

// textWidth returns the number of a terminal's columns that text takes.
func textWidth(text string) int { return onScreen.String(text) }

// truncate returns text, or its beginning and "…", in at most width columns.
func truncate(text string, width int) string { return onScreen.TruncateString(text, width, "…") }
