package integration_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redisurl"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/protocol"
)

// deployerEnv is the environment variable that makes this program a deployer. Its value has the URL of
// the servers, the file for the trace, the namespace, the limit of the namespace's policies, what
// happens, and when:
//   - dies: the deployer kills itself before its n-th command under a lease
//   - stops: it waits for a line on its input before its n-th write of a text
//   - loses: the server to which it has made its n-th write loses all libraries
//   - ends: nothing happens
const deployerEnv = "RATELIMIT_TEST_DEPLOYER"

// deployerTimeout is the timeout of each step. Leases last six times as long.
const deployerTimeout = 10 * time.Second

// runDeployer deploys the policies of a namespace if this process is a deployer, and returns the exit
// code and true. Otherwise, it returns false.
func runDeployer() (code int, is bool) {
	words := strings.Fields(os.Getenv(deployerEnv))
	if len(words) != 6 {
		return 0, false
	}
	url, trace, namespace, limit, what := words[0], words[1], words[2], words[3], words[4]
	when, err := strconv.Atoi(words[5])
	servers, urlErr := redisurl.Parse(url)
	build, buildErr := functions.New(functions.WithPolicies(policiesOf(namespace, limit)...))
	if err = cmp.Or(err, urlErr, buildErr); err == nil {
		err = deployAs(servers.Open(), namespace, build, recordTo(trace), what, when)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

func deployAs(rdb redis.UniversalClient, namespace string, build functions.Build, record func(protocol.Step), what string, when int) error {
	var mu sync.Mutex
	leased, count := false, 0
	comes := func() bool {
		count++
		return count == when
	}
	l, err := loader.New(rdb, loader.Config{Namespace: namespace, Timeout: deployerTimeout, Steps: func(s protocol.Step) {
		record(s)
		mu.Lock()
		defer mu.Unlock()
		leased = leased || s.Op == protocol.Lease
		if what == "loses" && s.Op == protocol.Wrote && s.Name == s.Call && comes() {
			server := redis.NewClient(&redis.Options{Addr: s.Addr})
			fmt.Fprintln(os.Stderr, "flushed:", errors.Join(server.FunctionFlush(context.Background()).Err(), server.Close()))
		}
	}, Trace: func(_, command string) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case what == "dies" && leased && comes():
			fmt.Fprintln(os.Stderr, "killed:", syscall.Kill(os.Getpid(), syscall.SIGKILL))
			select {} // until the signal arrives
		case what == "stops" && command == "FUNCTION LOAD REPLACE ratelimit" && comes():
			fmt.Println(stopMe)
			_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		}
	}})
	if err == nil {
		_, err = l.Deploy(context.Background(), build, loader.Options{DenyKeysInUse: true})
	}
	return errors.Join(err, rdb.Close())
}

const stopMe = "stop me"

// policiesOf returns the two policies of a namespace. Both have the same limit.
func policiesOf(namespace, limit string) (list []functions.Policy) {
	for _, name := range []string{"a", "b"} {
		list = append(list, functions.Policy{Name: namespace + "/" + name, Limits: []functions.PolicyLimit{{Limit: limit}}})
	}
	return list
}

// recordTo returns a function that appends steps to a file, one JSON object per line. Each step is in
// the file before the deployer continues, so that a killed deployer leaves its trace.
func recordTo(file string) func(protocol.Step) {
	var mu sync.Mutex
	return func(s protocol.Step) {
		mu.Lock()
		defer mu.Unlock()
		line, err := json.Marshal(s)
		if err == nil {
			var f *os.File
			if f, err = os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
				_, err = f.Write(append(line, '\n'))
				err = errors.Join(err, f.Close())
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// readSteps returns the steps in a file.
func readSteps(t *testing.T, file string) (steps []protocol.Step) {
	t.Helper()
	data, err := os.ReadFile(file)
	require(t, err)
	for line := range strings.Lines(string(data)) {
		var s protocol.Step
		require(t, json.Unmarshal([]byte(line), &s))
		steps = append(steps, s)
	}
	return steps
}

// deployer is a process that deploys.
type deployer struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	errors  bytes.Buffer
	stopped bool
}

func startDeployer(ctx context.Context, t *testing.T, url, trace, namespace, limit, what string, when int) *deployer {
	t.Helper()
	d := &deployer{cmd: exec.CommandContext(ctx, os.Args[0])}
	d.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", fmt.Sprintf("%s=%s %s %s %s %s %d", deployerEnv, url, trace, namespace, limit, what, when))
	d.cmd.Stderr = &d.errors
	d.in = must[io.WriteCloser](t)(d.cmd.StdinPipe())
	d.out = bufio.NewReader(must[io.ReadCloser](t)(d.cmd.StdoutPipe()))
	require(t, d.cmd.Start())
	return d
}

// wait waits until the deployer has ended or stopped. It suspends a deployer that has stopped.
func (d *deployer) wait() error {
	line, _ := d.out.ReadString('\n')
	if d.stopped = line == stopMe+"\n"; d.stopped {
		return d.cmd.Process.Signal(syscall.SIGSTOP)
	}
	err := d.cmd.Wait()
	if d.hasDied() {
		return nil
	}
	if err != nil {
		err = fmt.Errorf("%w: %s", err, d.errors.String())
	}
	return err
}

// resume lets a suspended deployer continue.
func (d *deployer) resume() error {
	_, err := io.WriteString(d.in, "\n")
	return errors.Join(err, d.cmd.Process.Signal(syscall.SIGCONT))
}

// hasDied reports whether the deployer was killed.
func (d *deployer) hasDied() bool {
	status, ok := d.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled()
}
