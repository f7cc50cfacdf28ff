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
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// openTerminal opens a pseudoterminal: the test types at one end, and a program runs at the other.
func openTerminal(t *testing.T, width, height uint16) (person, program *os.File) {
	t.Helper()
	person = must[*os.File](t)(os.OpenFile("/dev/ptmx", os.O_RDWR, 0))
	t.Cleanup(func() { _ = person.Close() })
	fd := int(person.Fd())
	require(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n := must[int](t)(unix.IoctlGetInt(fd, unix.TIOCGPTN))
	require(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width}))
	program = must[*os.File](t)(os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0))
	return person, program
}

// onTerminal is a program that runs on its own terminal.
type onTerminal struct {
	cmd      *exec.Cmd
	person   *os.File // the end at which the test types
	terminal *os.File
	screen   redistest.Output // what the program wrote
	read     chan struct{}    // closed when screen contains all output
}

func startOnTerminal(t *testing.T, width uint16, args ...string) *onTerminal {
	t.Helper()
	return startCommandOnTerminal(t, width, exec.Command(binary(t), args...))
}

func startCommandOnTerminal(t *testing.T, width uint16, cmd *exec.Cmd) *onTerminal {
	t.Helper()
	p := &onTerminal{cmd: cmd, read: make(chan struct{})}
	p.person, p.terminal = openTerminal(t, width, 20)
	p.cmd.Env = []string{"HOME=" + t.TempDir(), "TERM=xterm", "LANG=C.UTF-8"}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = p.terminal, p.terminal, p.terminal
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require(t, p.cmd.Start())
	go func() {
		defer close(p.read)
		_, _ = io.Copy(&p.screen, p.person)
	}()
	return p
}

func (p *onTerminal) shows(t *testing.T, what, text string) {
	t.Helper()
	eventually(t, what, func() bool { return strings.Contains(p.screen.String(), text) })
}

// ended waits for the end of the program, and checks that the terminal was restored. It returns
// everything that the program wrote, and what it left on the screen.
func (p *onTerminal) ended(t *testing.T) (said, after string) {
	t.Helper()
	_ = p.cmd.Wait()
	said = p.leftNormal(t)
	const restored, hidden, shown = "\x1b[?1049l", "\x1b[?25l", "\x1b[?25h"
	if strings.Count(said, alternate) != strings.Count(said, restored) || strings.LastIndex(said, shown) < strings.LastIndex(said, hidden) {
		t.Errorf("the terminal was told %q", said)
	}
	return said, said[strings.LastIndex(said, restored):]
}

// leftNormal checks that the program has restored the terminal's mode, and returns everything that
// the program wrote.
func (p *onTerminal) leftNormal(t *testing.T) string {
	t.Helper()
	if mode, err := unix.IoctlGetTermios(int(p.terminal.Fd()), unix.TCGETS); err != nil || mode.Lflag&unix.ICANON == 0 || mode.Lflag&unix.ECHO == 0 {
		t.Errorf("the terminal is left raw: %+v, %v", mode, err)
	}
	_ = p.terminal.Close()
	<-p.read
	return p.screen.String()
}

const alternate = "\x1b[?1049h"

// top --watch shows changes. When it exits, it restores the terminal, even if it has not shown a
// table yet or the server is dead. It leaves the last table on the screen.
func TestTopWatch(t *testing.T) {
	for name, tt := range map[string]struct {
		end   func(person io.Writer, p *os.Process) error
		early bool
	}{
		"q":              {end: func(person io.Writer, _ *os.Process) error { _, err := person.Write([]byte("q")); return err }},
		"Ctrl-C":         {end: func(person io.Writer, _ *os.Process) error { _, err := person.Write([]byte("\x03")); return err }},
		"Ctrl-C at once": {end: func(person io.Writer, _ *os.Process) error { _, err := person.Write([]byte("\x03")); return err }, early: true},
		"Esc":            {end: func(person io.Writer, _ *os.Process) error { _, err := person.Write([]byte("\x1b")); return err }},
		"Ctrl-\\":        {end: func(person io.Writer, _ *os.Process) error { _, err := person.Write([]byte("\x1c")); return err }},
		"SIGTERM":        {end: func(_ io.Writer, p *os.Process) error { return p.Signal(syscall.SIGTERM) }},
	} {
		t.Run(name, func(t *testing.T) {
			srv := embedded.Run(t, embedded.WithLibrary(functions.Source()))
			counted(t, srv, "user:1", hostile)
			p := startOnTerminal(t, 60, "top", "--watch", "--interval", "10ms", "--redis", srv.Addr())
			if !tt.early {
				p.shows(t, "the first pass", "user:1")
				counted(t, srv, "user:2")
				p.shows(t, "a pass with the new key", "user:2")
				_ = srv.Close()
				p.shows(t, "that the server is dead", "connection refused")
			} else {
				p.shows(t, "the screen", alternate)
			}
			require(t, tt.end(p.person, p.cmd.Process))
			said, after := p.ended(t)
			if strings.Contains(said, "\x1b[2J\x1b[31mred") || !tt.early && (!strings.Contains(after, "cannot reach "+srv.Addr()) || !strings.Contains(after, "user:2 ")) {
				t.Errorf("it ends with %q, %v", after, p.cmd.ProcessState)
			}
		})
	}
}

// The screen follows the terminal's size. An arrow is not the key Esc. Ctrl-Z restores the terminal
// until the shell continues the command. Where no shell could, the screen comes back.
func TestTopWatchOnAnotherSize(t *testing.T) {
	srv := embedded.Run(t, embedded.WithLibrary(functions.Source()))
	counted(t, srv, "user:1", "user:2")
	const shell = `"$@"; read line; fg`
	p := startCommandOnTerminal(t, 120, exec.Command("sh", "-mc", shell, "sh", binary(t), "top", "--watch", "--interval", "1h", "--redis", srv.Addr()))
	p.shows(t, "all columns", "FIRST USE")
	shown := func(what, text string, then func()) {
		t.Helper()
		before := strings.Count(p.screen.String(), text)
		then()
		eventually(t, what, func() bool { return strings.Count(p.screen.String(), text) > before })
	}
	shown("fewer columns", "KEY     ALLOWED  DENIED\x1b[0m", func() {
		require(t, unix.IoctlSetWinsize(int(p.person.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 20, Col: 31}))
	})
	shown("the other order", "by denied", func() { must[int](t)(p.person.Write([]byte("\x1b[A"))); must[int](t)(p.person.Write([]byte("b"))) })
	shown("the terminal of before", "\x1b[?1049l", func() { must[int](t)(p.person.Write([]byte("\x1a"))) })
	eventually(t, "the mode of before", func() bool {
		mode, err := unix.IoctlGetTermios(int(p.terminal.Fd()), unix.TCGETS)
		return err == nil && mode.Lflag&unix.ICANON != 0
	})
	shown("the screen again", "by denied", func() { must[int](t)(p.person.Write([]byte("\n"))) })
	must[int](t)(p.person.Write([]byte("q")))
	p.ended(t)

	p = startOnTerminal(t, 120, "top", "--watch", "--interval", "1h", "--redis", srv.Addr())
	p.shows(t, "all columns", "FIRST USE")
	shown("the screen again, without a shell", alternate, func() { must[int](t)(p.person.Write([]byte("\x1a"))) })
	must[int](t)(p.person.Write([]byte("q")))
	p.ended(t)
}

// A panic restores the terminal.
func TestFullScreenAfterAPanic(t *testing.T) {
	person, program := openTerminal(t, 80, 20)
	s := newFullScreen(program, program)
	require(t, s.enter())
	func() {
		defer func() {
			if cause := recover(); cause != "the cause" {
				t.Errorf("it panics with %v", cause)
			}
		}()
		defer s.restoreOnPanic()
		panic("the cause")
	}()
	p := &onTerminal{person: person, terminal: program, read: make(chan struct{})}
	close(p.read)
	p.leftNormal(t)
}

// policies --watch shows changes. When it exits, it leaves the last table and the last error on the
// screen.
func TestPoliciesWatch(t *testing.T) {
	srv, _ := withPolicies(t)
	p := startOnTerminal(t, 100, "policies", "--watch", "--interval", "10ms", "--redis", srv.Addr())
	p.shows(t, "a pass with rates", "ALLOWED/S")
	took(t, srv, 1002, "@api", "k")
	p.shows(t, "the denials", "1,000")
	_ = srv.Close()
	p.shows(t, "that the server is dead", "connection refused")
	must[int](t)(p.person.Write([]byte("q")))
	if _, after := p.ended(t); !strings.Contains(after, "@export") || !strings.Contains(after, "1,000") || !strings.Contains(after, "cannot reach "+srv.Addr()) {
		t.Errorf("it ends with %q, %v", after, p.cmd.ProcessState)
	}
}
