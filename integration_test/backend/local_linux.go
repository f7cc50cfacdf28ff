package backend

import "syscall"

// processAttributes keeps Ctrl-C in the terminal from the servers, so that the tests can end in order, and has
// the kernel end them should the tests be killed.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
