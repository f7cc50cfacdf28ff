package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func must[T any](t testing.TB) func(T, error) T { return redistest.Must[T](t) }

var require = redistest.Require

// runMain is an environment variable that makes the test program run the command instead of tests.
const runMain = "RATELIMIT_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// addresses matches the log line that contains the two addresses.
var addresses = regexp.MustCompile(`msg=listening grpc=(\S+) http=(\S+)`)

// startGateway runs the command until the test ends, on ports that it chooses. It returns the address
// of the HTTP port, and a function that stops the command.
func startGateway(t *testing.T, args ...string) (addr string, stop func()) {
	t.Helper()
	return startGatewayLogging(t, &redistest.Output{}, args...)
}

func startGatewayLogging(t *testing.T, log *redistest.Output, args ...string) (addr string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := command()
	cmd.SetErr(log)
	cmd.SetArgs(append(args, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--timeout", "1m"))
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil || t.Failed() {
			t.Errorf("the gateway: %v; its log:\n%s", err, log)
		}
	})
	t.Cleanup(stop)
	redistest.Eventually(t, "the gateway listens", func() bool {
		found := addresses.FindStringSubmatch(log.String())
		if found != nil {
			addr = found[2]
		}
		return found != nil
	})
	return addr, stop
}

// policies writes a file with the policy api, and returns its path.
func policies(t *testing.T, limit string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policies.yaml")
	require(t, os.WriteFile(path, []byte("policies:\n  api:\n    limit: "+limit+"\n"), 0o600))
	return path
}

func TestWrongUse(t *testing.T) {
	for args, want := range map[string]string{
		"--dev --redis redis://h": "[dev redis]",
		"--dev --log loud":        `--log "loud" is not a level; write debug, info, warn or error`,
		"--dev more":              `unknown command "more"`,
		"--dev --timeout x":       `"--timeout"`,
		"--dev --http 127.0.0.1:0 --grpc 127.0.0.1:99999999": "--grpc 127.0.0.1:99999999: ",
		"--dev --ipv6-prefix 129":                            "--ipv6-prefix 129 is not the length of an IPv6 prefix; write 1 to 128",
		"--dev --trusted-proxies 10.0.0.0/8,x":               `"x" is not a network`,
		"--rediss x":                                         "unknown flag: --rediss; was --redis meant?",
		"-redis x":                                           "unknown shorthand flag: 'r' in -redis; was --redis meant?",
		"--polices x":                                        "unknown flag: --polices; was --policies meant?",
		"--config x":                                         "unknown flag: --config; --help lists all",
		"--check-config":                                     "--check-config has nothing to check; name what the gateway gets, such as --envoy-config DIR or --policies FILE",
		"--check-config --log debug":                         "--check-config has nothing to check",
	} {
		cmd := command()
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SetArgs(strings.Fields(args))
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// TestShown checks that each line of an error has the name of the program, and that lines of
// --check-config have none, so that they begin with the file.
func TestShown(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"a.yaml", "b.yaml"} {
		require(t, os.WriteFile(filepath.Join(folder, name), []byte("domain: "+name+"\ndescriptors: [{key: a, wrong: 1}]\n"), 0o600))
	}
	for _, prefix := range []string{"", "ratelimit-gateway: "} {
		args := []string{"--envoy-config", folder}
		if prefix == "" {
			args = append(args, "--check-config")
		}
		cmd := command()
		cmd.SetErr(io.Discard)
		cmd.SetArgs(args)
		err := cmd.ExecuteContext(t.Context())
		if err == nil {
			t.Fatal("no error")
		}
		lines := strings.Split(shown(err), "\n")
		if len(lines) != 2 {
			t.Fatalf("%d lines: %s", len(lines), err)
		}
		for i, line := range lines {
			if want := prefix + filepath.Join(folder, []string{"a.yaml", "b.yaml"}[i]) + ":2:"; !strings.HasPrefix(line, want) {
				t.Errorf("%q; want it to begin with %s", line, want)
			}
		}
	}
}

// TestHealth checks that --health asks a running gateway, and fails if there is none.
func TestHealth(t *testing.T) {
	ask := func(args ...string) error {
		cmd := command()
		cmd.SetArgs(append([]string{"--health"}, args...))
		return cmd.ExecuteContext(t.Context())
	}
	addr, stop := startGateway(t, "--dev")
	_, port, _ := net.SplitHostPort(addr)
	for _, at := range []string{addr, ":" + port} {
		if err := ask("--http", at); err != nil {
			t.Error(err)
		}
	}
	stop()
	if err := ask("--http", addr); err == nil || !strings.Contains(err.Error(), "no gateway answers at --http "+addr) {
		t.Errorf("%v", err)
	}
	if err := ask("--http", "unix:/none/socket"); err == nil || !strings.Contains(err.Error(), "/none/socket") {
		t.Errorf("%v", err)
	}
}

// TestLogOfTheDriver checks that what go-redis writes is in lines of the log, and only with --log debug.
func TestLogOfTheDriver(t *testing.T) {
	for level, want := range map[string]int{"info": 0, "debug": 1} {
		cmd := exec.Command(os.Args[0], "--redis", "redis-sentinel://127.0.0.1:1/main", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log", level)
		cmd.Env = append(os.Environ(), runMain+"=1")
		log := &redistest.Output{}
		cmd.Stderr = log
		require(t, cmd.Start())
		redistest.Eventually(t, "the gateway asks the Sentinel", func() bool { return strings.Contains(log.String(), "not ready") })
		require(t, cmd.Process.Signal(os.Interrupt))
		require(t, cmd.Wait())
		if got := min(1, strings.Count(log.String(), "msg=go-redis")); got != want || strings.Contains("\n"+log.String(), "\nredis: ") {
			t.Errorf("with --log %s:\n%s", level, log)
		}
	}
}

// TestAdviceOfTheMiddleware checks that the log advises the operator, also in errors that package httplimit
// logs.
func TestAdviceOfTheMiddleware(t *testing.T) {
	server := redistest.Run(t)
	file := filepath.Join(t.TempDir(), "policies.yaml")
	require(t, os.WriteFile(file, []byte("policies: {api: {limit: 1/h, penalty: 1m..1h, forget: 1d}}"), 0o600))
	var log redistest.Output
	addr, stop := startGatewayLogging(t, &log, "--deploy", "--policies", file, "--redis", "redis://"+server.Addr)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer rdb.Close()
	redistest.Eventually(t, "the gateway is ready", func() bool { return strings.Contains(log.String(), "msg=ready") })
	require(t, rdb.Do(t.Context(), "ACL", "SETUSER", "default", "-fcall", "+fcall|ratelimit_take", "+fcall|ratelimit_info").Err())
	for range 2 {
		must[*http.Response](t)(http.Get("http://" + addr + "/check/api")).Body.Close()
	}
	stop()
	if !strings.Contains(log.String(), "a denial got no penalty") || !strings.Contains(log.String(), "; and grant it +fcall|ratelimit_block") {
		t.Error(log.String())
	}
}

// TestFlagsOfKubernetes checks that the command has the flags that the Kubernetes manifest uses.
func TestFlagsOfKubernetes(t *testing.T) {
	file := must[[]byte](t)(os.ReadFile("../examples/gateway/kubernetes.yaml"))
	_, line, found := strings.Cut(string(file), "args: [--http, ")
	line, _, _ = strings.Cut(line, "]")
	args := append([]string{"--http"}, strings.Split(strings.ReplaceAll(line, `"`, ""), ", ")...)
	cmd := command()
	if err := cmd.ParseFlags(args); err != nil || !found || cmd.Flags().Lookup("grpc").Value.String() != ":8081" {
		t.Errorf("%q: %v", args, err)
	}
}
