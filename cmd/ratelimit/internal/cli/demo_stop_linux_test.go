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

// Ctrl-Z shows the cursor again. When the demo continues, it hides the cursor and draws the chart
// again.
func TestDemoThatIsStopped(t *testing.T) {
	person, terminal := openTerminal(t, 80, 40)
	cmd := exec.Command("bash", "-c", `set -m; "$0" demo --duration 25s; echo "stopped: $?"; read; fg; echo "ended: $?"`, binary(t))
	cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "TERM=xterm", "LANG=C.UTF-8"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = terminal.Close()
	var shown lockedBuffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&shown, person) // until no program uses the terminal
	}()
	// after returns the output after the last occurrence of text.
	after := func(text string) string {
		parts := strings.Split(shown.String(), text)
		return strings.Join(parts[max(1, len(parts)-1):], "") // empty if text never occurred
	}
	const hide, show, over = "\x1b[?25l", "\x1b[?7h\x1b[?25h", "\x1b[16A"
	types := func(keys string) {
		t.Helper()
		if _, err := person.WriteString(keys); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the chart moves", func() bool { return strings.Count(after(hide), over) >= 2 })
	types("\x1a")
	eventually(t, "the shell is back", func() bool { return strings.Contains(shown.String(), "stopped: ") })
	if said := after(hide); !strings.Contains(said, show) || strings.Contains(after(show), over) {
		t.Errorf("stopped, the terminal was told %q", said)
	}
	types("\n")
	eventually(t, "the chart moves again", func() bool {
		return strings.Contains(after("stopped: "), hide) && strings.Count(after(hide), over) >= 2
	})
	if first, _, _ := strings.Cut(after(hide), over); !strings.Contains(first, "alice") || !strings.Contains(first, "frank") {
		t.Errorf("the chart is not drawn anew: %q", first)
	}
	types("\x03")
	eventually(t, "the demo ends", func() bool { return strings.Contains(shown.String(), "ended: ") })
	if said := after(hide); !strings.Contains(said, show+"\r\nratelimit: interrupted after ") || !strings.Contains(said, "ended: 1\r\n") {
		t.Errorf("interrupted, the terminal was told %q", said)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	<-read
}

// The demo shows the cursor again if it ends in another way: by Ctrl-\\, or because the session
// ends.
func TestDemoThatIsEnded(t *testing.T) {
	for _, ending := range []syscall.Signal{syscall.SIGQUIT, syscall.SIGHUP} {
		person, terminal := openTerminal(t, 80, 40)
		cmd := exec.Command(binary(t), "demo", "--duration", "25s")
		cmd.Stdout, cmd.Stderr = terminal, terminal
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = terminal.Close()
		var shown lockedBuffer
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = io.Copy(&shown, person)
		}()
		eventually(t, "the chart moves", func() bool { return strings.Contains(shown.String(), "\x1b[16A") })
		if err := cmd.Process.Signal(ending); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		<-read
		if _, said, _ := strings.Cut(shown.String(), "\x1b[?25l"); !strings.Contains(said, "\x1b[?7h\x1b[?25h\r\nratelimit: interrupted after ") || cmd.ProcessState.ExitCode() != exitError {
			t.Errorf("%v: %v, the terminal was told %q", ending, cmd.ProcessState, said)
		}
	}
}
