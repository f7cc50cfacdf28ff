//go:build !unix

package cli

import "io"

// terminalSize returns 0, 0, because the size is unknown on this system.
func terminalSize(io.Writer) (width, height int) { return 0, 0 }

// onStop does nothing: no key stops a program on this system.
func onStop(func(stop func())) (end func()) { return func() {} }
