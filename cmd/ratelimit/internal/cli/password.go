package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/ratelimit-functions/ratelimit/internal/dialing"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
	"github.com/ratelimit-functions/ratelimit/internal/redisurl"
)

// connectionLife is the maximum age of a connection with a password from --auth-command. A new
// connection uses a password that is at most a few seconds old, so a token that is valid for 6
// minutes does not expire while a connection uses it.
const connectionLife = 5 * time.Minute

// findPassword prompts for the password, or runs --auth-command to get it. It first discards the
// password that an earlier call found.
func (a *app) findPassword(ctx context.Context) (err error) {
	a.password, a.auth = "", nil
	switch {
	case a.servers.askPassword && a.servers.authCommand != "":
		return errors.New("--askpass and --auth-command exclude each other; leave one out")
	case a.servers.askPassword:
		a.password, err = a.askPassword(ctx)
	case a.servers.authCommand != "" && a.servers.timeout > 0: // for other timeouts, parseServers returns an error
		a.auth = &passwords{command: a.servers.authCommand, timeout: a.servers.timeout, reuse: a.reuse, ctx: ctx}
		a.auth.user, _, err = a.auth.get(ctx)
	}
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted before there was a password; nothing was sent")
	}
	return err
}

// setPassword sets the password that comes from --askpass, --auth-command or REDISCLI_AUTH instead
// of the URL. from is the name of the flag or variable that holds the URL.
func (a *app) setPassword(s *redisurl.Servers, from string) error {
	f, password := a.servers, a.password
	if !f.askPassword && f.authCommand == "" {
		if s.Options.Password == "" {
			password = a.env("REDISCLI_AUTH")
		}
	} else if s.Options.Password != "" {
		flag := "--askpass"
		if f.authCommand != "" {
			flag = "--auth-command"
		}
		return fmt.Errorf("%s has a password, and so has %s; leave one out", from, flag)
	}
	switch {
	case a.auth != nil:
		s.SetProvider(a.auth.get)
		s.Options.Username = cmp.Or(s.Options.Username, a.auth.user) // for messages
		s.Options.ConnMaxLifetime = cmp.Or(s.Options.ConnMaxLifetime, connectionLife)
	case password != "":
		s.SetPassword(password)
	}
	return nil
}

// askPassword reads a password from the terminal, which does not show it.
func (a *app) askPassword(ctx context.Context) (string, error) {
	file, ok := a.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return "", errors.New("--askpass needs a terminal; set REDISCLI_AUTH, or give a command with --auth-command")
	}
	fd := int(file.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", fmt.Errorf("--askpass: %w; set REDISCLI_AUTH instead", err)
	}
	fmt.Fprint(a.stderr, "Password: ")
	text, err := interruptible(ctx, func() ([]byte, error) { return term.ReadPassword(fd) })
	_ = term.Restore(fd, before) // otherwise the terminal would not show typed text after an interrupt
	fmt.Fprintln(a.stderr)
	switch {
	case err != nil:
		return "", fmt.Errorf("--askpass: no password was read (%w); set REDISCLI_AUTH instead", err)
	case len(text) == 0:
		return "", errors.New("--askpass: the password is empty; type one, or leave --askpass out")
	}
	return string(text), nil
}

// passwords gets passwords from a command. New connections use the result of the last run, unless
// that run ended more than reuse ago.
type passwords struct {
	command        string
	timeout, reuse time.Duration
	ctx            context.Context // stops the running command when it is done
	user           string          // the user that the first run printed

	mu   sync.Mutex
	last *passwordRun
}

// passwordRun is a run of the command. done is closed after the other fields are set.
type passwordRun struct {
	done           chan struct{}
	ended          time.Time
	user, password string
	err            error
}

// get returns a user and a password. The user is "" if the command prints none.
func (p *passwords) get(ctx context.Context) (user, password string, err error) {
	p.mu.Lock()
	run := p.last
	if run == nil || run.over(p.reuse) {
		run = &passwordRun{done: make(chan struct{})}
		p.last = run
		go func() {
			defer close(run.done)
			run.user, run.password, run.err = runForPassword(p.ctx, p.command, p.timeout)
			run.ended = time.Now()
		}()
	}
	p.mu.Unlock()
	select {
	case <-run.done:
		return run.user, run.password, run.err
	case <-ctx.Done():
		if err := p.ctx.Err(); err != nil { // an interrupt
			return "", "", err
		}
		return "", "", &dialing.PasswordError{Problem: "the command of --auth-command has not ended yet", Remedy: "give it more time with --timeout"}
	}
}

// over reports whether the run ended at least d ago.
func (r *passwordRun) over(d time.Duration) bool {
	select {
	case <-r.done:
		return time.Since(r.ended) >= d
	default:
		return false
	}
}

// runForPassword runs a command in a shell, and returns the user and the password that it prints.
// An error contains the command's messages, but neither the command nor its output, which may be
// secret.
func runForPassword(ctx context.Context, command string, timeout time.Duration) (user, password string, err error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	words := []string{"sh", "-c", command}
	if runtime.GOOS == "windows" {
		words = []string{"cmd", "/C", command}
	}
	cmd := exec.CommandContext(limited, words[0], words[1:]...)
	cmd.WaitDelay = time.Second // a program that the shell started may keep the pipes open
	out, messages := &limitedText{max: 64 << 10}, &limitedText{max: 4 << 10}
	cmd.Stdout, cmd.Stderr = out, messages
	err = cmd.Run()
	fail := func(remedy, problem string, args ...any) error {
		return &dialing.PasswordError{Problem: "the command of --auth-command " + fmt.Sprintf(problem, args...), Remedy: remedy}
	}
	const usage = "it must print a password, or a user and, on the next line, a password"
	switch {
	case ctx.Err() != nil:
		return "", "", ctx.Err()
	case limited.Err() != nil:
		return "", "", fail("give it more time with --timeout", "has not ended within %v", timeout)
	case errors.Is(err, exec.ErrWaitDelay):
		return "", "", fail("send the output of that program elsewhere, as in: agent >/dev/null 2>&1 &",
			"has ended, but a program that it left in the background keeps its output open")
	case err != nil:
		return "", "", fail("run it by itself", "failed (%v)%s", err, saidOf(messages.text, out.text))
	case out.full:
		return "", "", fail(usage, "prints more than %d KiB", out.max>>10)
	}
	text := strings.TrimRight(strings.ReplaceAll(out.text, "\r\n", "\n"), "\n")
	lines := strings.Split(text, "\n")
	switch {
	case text == "":
		return "", "", fail(usage, "prints nothing")
	case !utf8.ValidString(text) || strings.ContainsFunc(strings.Join(lines, ""), unicode.IsControl):
		return "", "", fail(usage, "prints something else than text")
	case len(lines) > 2:
		return "", "", fail(usage, "prints %d lines", len(lines))
	case lines[0] == "":
		return "", "", fail(usage, "prints an empty line first")
	case len(lines) == 1:
		return "", lines[0], nil
	}
	return lines[0], lines[1], nil
}

// saidOf returns ": " and the last line that a command wrote to stderr. It masks lines that the
// command printed to stdout, which may be passwords.
func saidOf(messages, output string) string {
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); line != "" {
			messages = strings.ReplaceAll(messages, line, "xxxxx")
		}
	}
	messages = strings.TrimSpace(messages)
	line := messages[strings.LastIndex(messages, "\n")+1:]
	if line == "" {
		return ""
	}
	return ": " + printable.Line(line)
}

// limitedText keeps the first bytes that are written to it, and drops the rest.
type limitedText struct {
	max  int
	text string
	full bool // whether bytes were dropped
}

func (l *limitedText) Write(p []byte) (int, error) {
	kept := p[:min(len(p), l.max-len(l.text))]
	l.text += string(kept)
	l.full = l.full || len(kept) < len(p)
	return len(p), nil
}
