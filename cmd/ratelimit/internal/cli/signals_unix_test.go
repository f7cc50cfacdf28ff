//go:build unix

package cli

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A second Ctrl-C ends a command that cannot be canceled, such as one that reads from a pipe into
// which nobody writes.
func TestSecondInterrupt(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "library.lua")
	require(t, unix.Mkfifo(fifo, 0o600))
	cmd := exec.Command(binary(t), "verify", "--library", fifo)
	require(t, cmd.Start())
	writer := must[*os.File](t)(os.OpenFile(fifo, os.O_WRONLY, 0)) // blocks until the program has opened the pipe
	defer func() { _ = writer.Close() }()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	eventually(t, "the program ends", func() bool {
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	if status := cmd.ProcessState.Sys().(interface{ Signaled() bool }); !status.Signaled() {
		t.Errorf("it ended by itself: %v", cmd.ProcessState)
	}
}

// Ctrl-C ends a backtest that waits for a named pipe without a writer.
func TestBacktestOfAPipeThatNobodyWritesTo(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require(t, unix.Mkfifo(pipe, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	code := testApp(nil, &stdout, &stderr).execute(ctx, []string{"backtest", pipe})
	if code != exitError || stdout.Len() > 0 || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
	}
	eventually(t, "what waits for the pipe, to let it go", func() bool {
		writer, err := unix.Open(pipe, unix.O_WRONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return false
		}
		return unix.Close(writer) == nil
	})
}

// An invalid limit is refused before a log is opened, because opening a named pipe can block.
func TestBacktestRefusesALimitBeforeItOpensALog(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require(t, unix.Mkfifo(pipe, 0o600))
	if got := run(t, nil, "backtest", pipe, "--limit", "10/zz"); got.code != exitError || !strings.HasPrefix(got.stderr, `ratelimit: limit "10/zz": `) {
		t.Errorf("%+v", got)
	}
}
