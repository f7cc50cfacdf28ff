package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// counter counts the instructions of a server that runs under callgrind. Unlike times, these counts
// hardly depend on the machine's load.
type counter struct {
	pid, dir string
	dumps    int
}

func startCounted(ctx context.Context) (*server, *counter, error) {
	dir, err := os.MkdirTemp("", "bench-callgrind-")
	if err != nil {
		return nil, nil, err
	}
	process, err := redistest.Start("valgrind", "--tool=callgrind", "--callgrind-out-file="+filepath.Join(dir, "out"), "redis-server")
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, nil, fmt.Errorf("--instructions: %w", err)
	}
	s, err := own(ctx, process)
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, nil, err
	}
	s.stop = func() {
		process.Stop()
		_ = os.RemoveAll(dir)
	}
	return s, &counter{dir: dir, pid: s.info["process_id"]}, nil
}

func (c *counter) control(ctx context.Context, command string) error {
	if out, err := exec.CommandContext(ctx, "callgrind_control", command, c.pid).CombinedOutput(); err != nil {
		return fmt.Errorf("callgrind_control %s: %w: %s", command, err, out)
	}
	return nil
}

func (c *counter) start(ctx context.Context) error { return c.control(ctx, "--zero") }

// read returns the number of instructions since start.
func (c *counter) read(ctx context.Context) (float64, error) {
	if err := c.control(ctx, "--dump"); err != nil {
		return 0, err
	}
	c.dumps++
	text, err := os.ReadFile(filepath.Join(c.dir, "out."+strconv.Itoa(c.dumps)))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(text), "\nsummary: ")
	line, _, _ := strings.Cut(after, "\n")
	return strconv.ParseFloat(line, 64)
}
