package cli

import (
	"io"
	"os"

	"golang.org/x/sys/windows"
)

func suspend() {}

// enableEscapes makes a console obey escape sequences.
func enableEscapes(w io.Writer) {
	if file, ok := w.(*os.File); ok {
		var mode uint32
		if console := windows.Handle(file.Fd()); windows.GetConsoleMode(console, &mode) == nil {
			_ = windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING)
		}
	}
}
