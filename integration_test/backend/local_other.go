//go:build !linux

package backend

import "syscall"

// processAttributes protects the servers from Ctrl-C in the terminal, so that the tests can end in
// order.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
