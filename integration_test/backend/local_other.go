//go:build !linux

package backend

import "syscall"

// processAttributes protects a server from Ctrl-C in the terminal, so that the tests can stop it
// themselves.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
