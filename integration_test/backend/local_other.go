//go:build !linux

package backend

import "syscall"

// processAttributes keeps Ctrl-C in the terminal from the servers, so that the tests can end in order.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
