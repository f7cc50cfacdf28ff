//go:build unix

package docs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// shells holds two things for each shell: the arguments that start it interactively without the
// user's start-up files, and a prompt that shows the exit status of the previous command. The
// shells are interactive, like a reader's. In an interactive zsh, for example, # does not start a
// comment by default.
var shells = map[string]struct {
	args   []string
	prompt string
}{
	"bash": {[]string{"--noprofile", "--norc", "-i"}, "[status=$?]"},
	"zsh":  {[]string{"-f", "-i", "-s"}, "[status=%?]"},
	"sh":   {[]string{"-i"}, "[status=$?]"},
}

var status = regexp.MustCompile(`\[status=(\d+)\]`)

// paste types the example's code into a shell, and checks the exit status of each command. If
// e.until is set, it types Ctrl-C once the output contains that text.
func (c *Clone) paste(ctx context.Context, name, code string, e Example, redisURL string) (stdout, stderr string, err error) {
	shell := shells[name]
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, shell.args...)
	cmd.Dir, cmd.Env = filepath.Join(c.Dir, e.in), append(c.environ(redisURL), "PS1="+shell.prompt, "PS2=", "ENV=", "HISTFILE=")
	// In its own session, the shell has no terminal, and a signal reaches all processes that it
	// starts.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Minute
	commands := strings.Count(code, "\n")
	out := newOutput(func(text string) bool { return e.until != "" && strings.Contains(text, e.until) })
	prompts := newOutput(func(text string) bool { return len(statuses(text)) == commands })
	cmd.Stdout, cmd.Stderr = out, prompts
	keyboard, err := cmd.StdinPipe()
	if err != nil {
		return "", "", err
	}
	if err := cmd.Start(); err != nil {
		return "", "", fmt.Errorf("%w; the documents are tried in bash, zsh and sh (Debian, Ubuntu: apt-get install zsh)", err)
	}
	_, err = io.WriteString(keyboard, code)
	if e.until != "" && err == nil {
		select {
		case <-out.seen:
			err = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
		case <-prompts.seen:
			err = fmt.Errorf("it ended, and has not printed %q", e.until)
		case <-ctx.Done():
			err = fmt.Errorf("it has not printed %q: %w", e.until, ctx.Err())
		}
	}
	err = errors.Join(err, keyboard.Close())
	waitErr := cmd.Wait() // not an error in itself, because a shell exits with the status of its last command
	switch {
	case ctx.Err() != nil:
		err = errors.Join(err, waitErr)
	case err == nil && e.until == "":
		err = checkStatuses(statuses(prompts.String()), e.statuses)
	}
	return out.String(), prompts.String(), err
}

// statuses returns the exit statuses in the prompts, except the first, which precedes all commands.
func statuses(prompts string) []string {
	var found []string
	for i, match := range status.FindAllStringSubmatch(prompts, -1) {
		if i > 0 {
			found = append(found, match[1])
		}
	}
	return found
}

func checkStatuses(got, want []string) error {
	if len(got) == 0 {
		return errors.New("the shell ran no command")
	}
	if len(want) == 0 {
		want = slices.Repeat([]string{"0"}, len(got))
	}
	if !matches(strings.Join(got, " "), strings.Join(want, " ")) {
		return fmt.Errorf("its commands ended with the exit statuses %s, want %s", strings.Join(got, " "), strings.Join(want, " "))
	}
	return nil
}

// output collects the bytes written to it. It closes seen when complete returns true.
type output struct {
	mu       sync.Mutex
	all      strings.Builder
	complete func(text string) bool
	seen     chan struct{}
	done     bool
}

func newOutput(complete func(string) bool) *output {
	return &output{complete: complete, seen: make(chan struct{})}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all.Write(p)
	if !o.done && o.complete(o.all.String()) {
		o.done = true
		close(o.seen)
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}
