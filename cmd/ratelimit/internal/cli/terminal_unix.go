//go:build unix

package cli

import (
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// terminalSize is how large the terminal that w writes to is, in characters: 0, 0 if that is unknown.
func terminalSize(w io.Writer) (width, height int) {
	file, ok := w.(*os.File)
	if !ok {
		return 0, 0
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}

// onStop has f called when Ctrl-Z asks the program to stop, until end is called; f stops it with stop, which returns once it
// goes on.
func onStop(f func(stop func())) (end func()) {
	asked, done, ended := make(chan os.Signal, 1), make(chan struct{}), make(chan struct{})
	signal.Notify(asked, unix.SIGTSTP)
	go func() {
		defer close(ended)
		for {
			select {
			case <-asked:
				f(stop)
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(asked)
		close(done)
		<-ended
	}
}

// stop stops this program until it is told to go on. The Go runtime does not give SIGTSTP its own effect back, so that SIGSTOP
// stands in for it; but nothing would end that where no shell of our session started us.
func stop() {
	parent := os.Getppid()
	own, err := unix.Getsid(0)
	theirs, err2 := unix.Getsid(parent)
	if parent == 0 || err != nil || err2 != nil || own != theirs {
		return
	}
	goOn := make(chan os.Signal, 1)
	signal.Notify(goOn, unix.SIGCONT)
	defer signal.Stop(goOn)
	if unix.Kill(unix.Getpid(), unix.SIGSTOP) == nil {
		<-goOn
	}
}
