//go:build unix

package cli

import (
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// suspend stops the process until the shell continues it. It returns soon if there is no shell that
// could: then the system ignores the signal, for example in a container.
func suspend() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	if syscall.Kill(0, syscall.SIGTSTP) == nil {
		select {
		case <-continued:
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func enableEscapes(io.Writer) {}
