package backend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/ratelimit-functions/ratelimit/integration_test/clock"
)

type local struct {
	dir     string // contains a directory for each server
	library string // the clock shim, or "" if there is none

	// work sends functions to one goroutine that is locked to its thread and starts all servers. On
	// Linux the kernel kills a server when the thread that started it ends, so no server outlives
	// this process.
	work chan func()
	done chan struct{}
}

func newLocal(dir, library string) *local {
	l := &local{dir: dir, library: library, work: make(chan func()), done: make(chan struct{})}
	go func() {
		runtime.LockOSThread()
		defer close(l.done)
		for f := range l.work {
			f()
		}
	}()
	return l
}

func (l *local) close() error {
	close(l.work)
	<-l.done
	return nil
}

func (l *local) launch(_ context.Context, s spec, options []string) (instance, error) {
	program, err := exec.LookPath(s.program)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(l.dir, s.name+"-")
	if err != nil {
		return nil, err
	}
	p := &process{local: l, program: program, dir: dir, options: options}
	if s.clock != nil {
		p.env = []string{"LD_PRELOAD=" + l.library, clock.Env + "=" + s.clock.Path()}
	}
	if err := p.start(); err != nil {
		return nil, err
	}
	return p, nil
}

// process is a server that runs as a process. Only one method may be called at a time.
type process struct {
	local        *local
	program, dir string
	options, env []string

	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd has ended
}

func (p *process) logFile() string { return filepath.Join(p.dir, "log") }

func (p *process) start() error {
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.program, p.options...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = processAttributes()
	started := make(chan error)
	p.local.work <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return fmt.Errorf("starting %s: %w", p.program, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the server's log shows why it exited
	}()
	p.cmd, p.ended = cmd, ended
	return nil
}

func (p *process) kill(context.Context) error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	return nil
}

func (p *process) pause(context.Context) error  { return p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *process) resume(context.Context) error { return p.cmd.Process.Signal(syscall.SIGCONT) }

func (p *process) restart(ctx context.Context) error {
	if !p.exited(ctx) {
		return errRunning
	}
	return p.start()
}

func (p *process) remove() error {
	return errors.Join(p.kill(context.Background()), os.RemoveAll(p.dir))
}

func (p *process) exited(context.Context) bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (p *process) log() string {
	text, err := os.ReadFile(p.logFile())
	if err != nil {
		return err.Error()
	}
	return string(text)
}
