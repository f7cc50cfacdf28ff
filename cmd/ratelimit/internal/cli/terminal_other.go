//go:build !unix

package cli

import "io"

// terminalSize does not know how large a terminal is.
func terminalSize(io.Writer) (width, height int) { return 0, 0 }

// onStop does nothing: no key stops a program here.
func onStop(func(stop func())) (end func()) { return func() {} }
