package cli

import (
	"io"
	"os"

	"golang.org/x/term"
)

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
