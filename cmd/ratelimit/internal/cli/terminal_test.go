package cli

import (
	"os"
	"testing"
)

// The null device is a character device, but not a terminal.
func TestNullDeviceIsNoTerminal(t *testing.T) {
	null := must[*os.File](t)(os.OpenFile(os.DevNull, os.O_RDWR, 0))
	defer func() { _ = null.Close() }()
	a := newApp(func(string) string { return "" }, null, null)
	if a.terminal || a.newBar().w != nil {
		t.Errorf("%s: a terminal: %v, with a bar: %v", os.DevNull, a.terminal, a.newBar().w != nil)
	}
	if width, height := a.size(); width != 0 || height != 0 {
		t.Errorf("%s has %d columns and %d lines", os.DevNull, width, height)
	}
}
