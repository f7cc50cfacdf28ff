//go:build unix

package cli

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// onStop calls f when Ctrl-Z asks the program to stop, until end is called. f stops the program by
// calling stop, which returns when the program continues.
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

// stop stops this program until it is continued. The Go runtime does not restore the default action
// of SIGTSTP, so stop uses SIGSTOP. It does nothing if the program was not started by a shell of
// its session, because nothing would then continue it.
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
