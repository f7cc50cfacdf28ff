//go:build unix

package cli

import (
	"io"
	"os"
	"os/signal"
	"syscall"
)

// suspend stops the process until the shell continues it.
func suspend() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	if syscall.Kill(0, syscall.SIGTSTP) == nil {
		<-continued
	}
}

func enableEscapes(io.Writer) {}
