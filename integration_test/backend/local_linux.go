package backend

import "syscall"

// processAttributes protects the servers from Ctrl-C in the terminal, so that the tests can end in
// order, and makes the kernel kill the servers if the tests are killed.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
