package backend

import "syscall"

// processAttributes protects a server from Ctrl-C in the terminal, so that the tests can stop it
// themselves, and makes the kernel kill it if the tests are killed.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
