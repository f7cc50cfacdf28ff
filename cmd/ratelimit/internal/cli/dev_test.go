package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// ratelimit dev serves any client until it is interrupted, and then exits without an error.
func TestDev(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out, stdout := io.Pipe()
	var stderr strings.Builder
	code := make(chan int, 1)
	go func() {
		c := testApp(nil, stdout, &stderr).execute(ctx, []string{"dev", "--addr", "127.0.0.1:0"})
		_ = stdout.Close()
		code <- c
	}()

	lines := bufio.NewReader(out)
	var greeting strings.Builder
	for !strings.HasSuffix(greeting.String(), "Ctrl-C ends it\n") {
		line, err := lines.ReadString('\n')
		greeting.WriteString(line)
		if err != nil {
			t.Fatalf("%v after %q; stderr %q", err, greeting.String(), stderr.String())
		}
	}
	addr, _, _ := strings.Cut(strings.TrimPrefix(greeting.String(), "listening on "), ": ")
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatalf("no address in %q", greeting.String())
	}
	wantText(t, "greeting", greeting.String(), `listening on `+addr+`: an embedded server, in memory
loaded ratelimit `+functions.Version()+`, build `+functions.BuildID()+`

try, in another terminal:
  redis-cli -p `+port+` FCALL ratelimit_take 1 user:42 5/10s
  ratelimit take user:42 5/10s --redis redis://`+addr+`

Ctrl-C ends it
`)
	run(t, nil, "take", "user:42", "5/10s", "--redis", "redis://"+addr).want(t, exitFine, "allowed  4 of 5 left · full again in 2 s\n", "")
	newMessages(t, "dev", addr, "ADDR").fails(nil, "dev", "--addr", addr)

	interrupt()
	rest := must[[]byte](t)(io.ReadAll(lines))
	outcome{<-code, string(rest), stderr.String()}.want(t, exitFine, "\nstopped; what it held is forgotten\n", "")
	if conn, err := net.Dial("tcp", addr); err == nil {
		_ = conn.Close()
		t.Error("the server still listens")
	}
}

func TestDevGreeting(t *testing.T) {
	a := &app{program: "ratelimit"}
	library := buildReport{Library: "ratelimit", Version: "1.2.3", BuildID: "abc"}
	for _, tt := range []struct{ addr, cli, take, warns string }{
		{"127.0.0.1:6379", "redis-cli FCALL", "user:42 5/10s\n", ""},
		{"127.0.0.1:7000", "redis-cli -p 7000 FCALL", "user:42 5/10s --redis redis://127.0.0.1:7000\n", ""},
		{"[::1]:6379", "redis-cli -h ::1 FCALL", "user:42 5/10s --redis redis://[::1]:6379\n", ""},
		{"[::]:6379", "redis-cli FCALL", "user:42 5/10s\n", "anyone who can reach this address can use it: it asks for no password\n"},
		{"10.0.0.1:6379", "redis-cli -h 10.0.0.1 FCALL", "user:42 5/10s --redis redis://10.0.0.1:6379\n", "anyone who can reach this address can use it: it asks for no password\n"},
	} {
		want := "listening on " + tt.addr + ": an embedded server, in memory\nloaded ratelimit 1.2.3, build abc\n" + tt.warns +
			"\ntry, in another terminal:\n  " + tt.cli + " ratelimit_take 1 user:42 5/10s\n  ratelimit take " + tt.take + "\nCtrl-C ends it\n"
		wantText(t, tt.addr, a.devGreeting(tt.addr, library), want)
	}
}

// built is the directory of the program, or "" if no test has called binary. TestMain removes it.
var built string

var build = sync.OnceValue(func() error {
	var err error
	if built, err = os.MkdirTemp("", "ratelimit-cli-"); err != nil {
		return err
	}
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", built, "../..").CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
})

// binary builds the program, once for all tests, and returns its path.
func binary(t *testing.T) string {
	t.Helper()
	require(t, build())
	return filepath.Join(built, "ratelimit")
}

// TestBinary builds the program, runs it, and checks its exit codes and output, and that an
// interrupt ends it.
func TestBinary(t *testing.T) {
	bin := binary(t)
	program := func(args ...string) *exec.Cmd {
		cmd := exec.Command(bin, args...)
		cmd.Env = []string{"HOME=" + t.TempDir()}
		return cmd
	}
	exec1 := func(env string, args ...string) outcome {
		cmd := program(args...)
		cmd.Env = append(cmd.Env, env)
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_ = cmd.Run()
		return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	}
	srv := embedded.Run(t, embedded.WithTime(began))
	env := redisURL(srv.Addr())

	if got := exec1(env, "deploy", "--timeout", "1m"); got.code != exitFine {
		t.Errorf("deploy: %+v", got)
	}
	exec1(env, "build").want(t, exitFine, functions.Source(), "")
	exec1(env, "take", "k", "1/m", "--timeout", "1m").want(t, exitFine, "allowed  0 of 1 left · full again in 1 min\n", "")
	exec1(env, "take", "k", "1/m", "--timeout", "1m").want(t, exitDiffers, "denied   0 of 1 left · try again in 1 min · full again in 1 min\n", "")
	if got := exec1(env, "take", "k"); got.code != exitError || got.stdout != "" || !strings.HasPrefix(got.stderr, "ratelimit: take ") {
		t.Errorf("%+v", got)
	}

	dev := program("dev", "--addr", "127.0.0.1:0")
	stdout := must[io.ReadCloser](t)(dev.StdoutPipe())
	require(t, dev.Start())
	lines := bufio.NewReader(stdout)
	first, err := lines.ReadString('\n')
	if err != nil || !strings.HasPrefix(first, "listening on 127.0.0.1:") {
		t.Errorf("dev: %v: %q", err, first)
	}
	require(t, dev.Process.Signal(os.Interrupt))
	rest, _ := io.ReadAll(lines)
	if err := dev.Wait(); err != nil || !strings.HasSuffix(string(rest), "\nstopped; what it held is forgotten\n") {
		t.Errorf("dev, interrupted: %v: %q", err, rest)
	}
}
