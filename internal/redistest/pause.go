//go:build unix

package redistest

import "syscall"

// Pause suspends the server as if its machine hung: the server's connections stay open, but it does
// not reply.
func (s *Server) Pause() error { return s.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume lets a paused server continue.
func (s *Server) Resume() error { return s.cmd.Process.Signal(syscall.SIGCONT) }
