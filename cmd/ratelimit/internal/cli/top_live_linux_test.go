package cli

import (
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// openTerminal opens a pseudoterminal: the test types at one end, and a program runs at the other.
func openTerminal(t *testing.T, width, height uint16) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() })
	fd := int(person.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width}); err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return person, program
}

// top --watch shows changes. However the command ends, it restores the terminal and leaves the last
// pass on the screen. This holds even if there is nothing to show yet, or if the server is dead.
func TestTopWatch(t *testing.T) {
	program := binary(t)
	const alternate, restored, hidden, shown = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25l", "\x1b[?25h"
	for name, tt := range map[string]struct {
		end   func(person io.Writer, p *os.Process) error
		early bool
	}{
		"q":              {end: func(person io.Writer, _ *os.Process) error { _, err := person.Write([]byte("q")); return err }},
		"Ctrl-C":         {end: func(person io.Writer, _ *os.Process) error { _, err := person.Write([]byte("\x03")); return err }},
		"Ctrl-C at once": {end: func(person io.Writer, _ *os.Process) error { _, err := person.Write([]byte("\x03")); return err }, early: true},
		"SIGTERM":        {end: func(_ io.Writer, p *os.Process) error { return p.Signal(syscall.SIGTERM) }},
	} {
		t.Run(name, func(t *testing.T) {
			srv := embedded.Run(t, embedded.WithLibrary(functions.Source()))
			counted(t, srv, "user:1", hostile)
			person, terminal := openTerminal(t, 60, 20)
			cmd := exec.Command(program, "top", "--watch", "--interval", "10ms", "--redis", srv.Addr())
			cmd.Env = []string{"HOME=" + t.TempDir(), "TERM=xterm", "LANG=C.UTF-8"}
			cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var screen lockedBuffer
			read := make(chan struct{})
			go func() {
				defer close(read)
				_, _ = io.Copy(&screen, person)
			}()
			if !tt.early {
				eventually(t, "the first pass", func() bool { return strings.Contains(screen.String(), "user:1") })
				counted(t, srv, "user:2")
				eventually(t, "a pass with the new key", func() bool { return strings.Contains(screen.String(), "user:2") })
				_ = srv.Close()
				eventually(t, "that the server is dead", func() bool { return strings.Contains(screen.String(), "connection refused") })
			} else {
				eventually(t, "the screen", func() bool { return strings.Contains(screen.String(), alternate) })
			}
			if err := tt.end(person, cmd.Process); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if mode, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS); err != nil || mode.Lflag&unix.ICANON == 0 || mode.Lflag&unix.ECHO == 0 {
				t.Errorf("the terminal is left raw: %+v, %v", mode, err)
			}
			_ = terminal.Close()
			<-read
			said := screen.String()
			if strings.Count(said, alternate) != strings.Count(said, restored) || strings.LastIndex(said, shown) < strings.LastIndex(said, hidden) {
				t.Errorf("the terminal was told %q", said)
			}
			after := said[strings.LastIndex(said, restored):]
			if strings.Contains(said, "\x1b[2J\x1b[31mred") || !tt.early && (!strings.Contains(after, "cannot reach "+srv.Addr()) || !strings.Contains(after, "user:2 ")) {
				t.Errorf("it ends with %q, %v", after, cmd.ProcessState)
			}
		})
	}
}
