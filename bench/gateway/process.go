package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// process is a running rate limit service.
type process struct {
	name  string
	cmd   *exec.Cmd
	http  string // port of the HTTP server
	redis server
	ask   func(context.Context, load) error
}

// startPeer builds and starts envoyproxy/ratelimit, in the version that go.mod names. The build is
// static and without debugging information, like the builds of the gateway and of the peer's image.
func startPeer(ctx context.Context, dir, redis string) (*process, error) {
	program := filepath.Join(dir, "peer")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "github.com/envoyproxy/ratelimit/src/service_cmd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building envoyproxy/ratelimit: %w\n%s", err, out)
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis, "RUNTIME_ROOT="+dir, "RUNTIME_SUBDIRECTORY=.",
		"RUNTIME_WATCH_ROOT=false", "DISABLE_STATS=true", "LOG_LEVEL=error", "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1",
		"DEBUG_HOST=127.0.0.1", "GRPC_PORT="+ports[0], "PORT="+ports[1], "DEBUG_PORT="+ports[2])
	return start(ctx, "envoyproxy/ratelimit", cmd, ports[0], redis)
}

// startOurs builds the gateway like a release, and starts it with the given flags, too.
func startOurs(ctx context.Context, dir, redis string, flags ...string) (*process, error) {
	program := filepath.Join(dir, "ratelimit-gateway")
	build := exec.CommandContext(ctx, "../../tools/build.sh", runtime.GOOS, runtime.GOARCH, program, "gateway")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the gateway: %w\n%s", err, out)
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	flags = append(flags, "--redis", "redis://"+redis, "--deploy", "--policies", filepath.Join(dir, "policies.yaml"),
		"--envoy-config", filepath.Join(dir, "config"), "--trusted-proxies", "127.0.0.1",
		"--grpc", "127.0.0.1:"+ports[0], "--http", "127.0.0.1:"+ports[1], "--timeout", "5s", "--log", "error")
	cmd := exec.CommandContext(ctx, program, flags...)
	p, err := start(ctx, "gateway", cmd, ports[0], redis)
	if err == nil {
		p.http = ports[1]
	}
	return p, err
}

func start(ctx context.Context, name string, cmd *exec.Cmd, port, redis string) (*process, error) {
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	connection, err := grpc.NewClient("127.0.0.1:"+port, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	p := &process{name: name, cmd: cmd, redis: server(redis), ask: askGRPC(rls.NewRateLimitServiceClient(connection))}
	return p, p.answers(ctx)
}

func (p *process) answers(ctx context.Context) error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := p.ask(ctx, load{descriptors: 1})
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			p.stop()
			return fmt.Errorf("%s did not answer within 30 s: %w", p.name, errors.Join(err, ctx.Err()))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (p *process) stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// memory returns the maximum resident memory of the process so far, in MB.
func (p *process) memory() int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmHWM:" {
			kb, _ := strconv.Atoi(fields[1])
			return kb / 1024
		}
	}
	return 0
}

func (p *process) used() time.Duration {
	const tick = 10 * time.Millisecond
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // fields 3 and later; the second is in parentheses
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * tick
}

type server string

// ask sends a command and returns the reply.
func (s server) ask(command string) (string, error) {
	conn, err := net.Dial("tcp", string(s))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, command+"\r\nQUIT\r\n"); err != nil {
		return "", err
	}
	reply, err := io.ReadAll(conn)
	return string(reply), err
}

// withoutSnapshots turns off snapshots, because writing one would take processor time from the
// service that is being measured.
func (s server) withoutSnapshots() error {
	reply, err := s.ask(`CONFIG SET save ""`)
	if err == nil && !strings.HasPrefix(reply, "+OK") {
		err = fmt.Errorf("CONFIG SET save: %s", strings.TrimSpace(reply))
	}
	return err
}

func (s server) used() time.Duration {
	text, _ := s.ask("INFO cpu")
	total := 0.0
	for line := range strings.Lines(text) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name == "used_cpu_sys" || name == "used_cpu_user" {
			seconds, _ := strconv.ParseFloat(value, 64)
			total += seconds
		}
	}
	return time.Duration(total * float64(time.Second))
}

// freePorts returns ports that were free a moment ago.
func freePorts(n int) ([]string, error) {
	var ports []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		ports = append(ports, port)
	}
	return ports, nil
}
