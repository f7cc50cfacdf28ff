package integration_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
)

// languages lists the logins in examples/languages, and says whether each program's client
// supports clusters.
var languages = []struct {
	file    string
	cluster bool
}{
	{"login.c", false},
	{"login.js", true},
	{"login.php", true},
	{"login.pl", false},
	{"login.py", true},
	{"login.rb", true},
	{"login.sh", true},
}

// loginPrints is the output of each example on a server with the policies. It is the same if the
// reply to the first call is lost.
const loginPrints = `first: allowed, 4 of 5 left
asked again: allowed, 4 of 5 left
five later: denied, try again in 60 s
`

const loginAdvice = "run: ratelimit deploy --policies examples/policies.yaml\n"

// TestLanguages runs each example with the command in its first lines, in four situations: without
// the library, without the policy, on a server with both (in a cluster, through every primary), and
// through a proxy that drops a reply.
func TestLanguages(t *testing.T) {
	files := must[[]string](t)(filepath.Glob("../examples/languages/login.*"))
	if len(files) != len(languages) {
		t.Errorf("examples/languages has %v; the table in this test has %d of them", files, len(languages))
	}
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		primaries := primariesOf(ctx, t, b)
		dir := t.TempDir()
		require(t, os.CopyFS(filepath.Join(dir, "examples"), os.DirFS("../examples")))
		each := func(name string, f func(t *testing.T, login func(addr string) (stdout, stderr string, err error))) {
			for _, language := range languages {
				if b.Cluster && !language.cluster {
					continue
				}
				t.Run(name+"/"+language.file, func(t *testing.T) {
					require(t, b.FlushAll(ctx))
					f(t, func(addr string) (stdout, stderr string, err error) {
						return runLogin(ctx, t, dir, language.file, addr, b.Cluster)
					})
				})
			}
		}
		refused := func(reason string) func(*testing.T, func(string) (string, string, error)) {
			return func(t *testing.T, login func(string) (string, string, error)) {
				stdout, stderr, err := login(primaries[0].Addr)
				if err == nil || stdout != "" || !strings.Contains(stderr, reason) || !strings.HasSuffix(stderr, loginAdvice) {
					t.Errorf("%v; it printed %q and, as an error, %q", err, stdout, stderr)
				}
			}
		}

		each("without the library", refused("Function not found"))
		loadLibrary(ctx, t, b)
		each("without the policy", refused(`RATELIMIT NOPOLICY "@login"`))
		deployPolicies(ctx, t, b, "../examples/policies.yaml")
		require(t, b.SetTime(time.Now().UnixMicro()))
		each("deployed", func(t *testing.T, login func(string) (string, string, error)) {
			for _, n := range primaries {
				require(t, b.FlushAll(ctx))
				stdout, stderr, err := login(n.Addr)
				if err != nil || stdout != loginPrints || stderr != "" {
					t.Errorf("%s: %v; it printed %q and, as an error, %q", n, err, stdout, stderr)
				}
			}
		})
		if b.Cluster {
			return // the nodes of a cluster announce their own addresses, so clients would bypass a proxy
		}
		each("a lost reply", func(t *testing.T, login func(string) (string, string, error)) {
			proxy := startLosingProxy(t, b.Addrs()[0])
			stdout, stderr, err := login(proxy.listener.Addr().String())
			if err != nil || stdout != loginPrints {
				t.Errorf("%v; it printed %q and, as an error, %q", err, stdout, stderr)
			}
			if calls := proxy.passed(); calls < 8 {
				t.Errorf("the server had %d calls, want 8 or more: 7, and one of them again", calls)
			}
		})
	}, withClock)
}

// runLogin runs the command that a comment in the example states. The working directory is dir,
// which contains a copy of the folder examples.
func runLogin(ctx context.Context, t *testing.T, dir, file, addr string, cluster bool) (stdout, stderr string, err error) {
	t.Helper()
	const server = "redis://localhost:6379"
	text := must[[]byte](t)(os.ReadFile(filepath.Join(dir, "examples", "languages", file)))
	if deploy := "ratelimit deploy --redis " + server + " --policies examples/policies.yaml\n"; !strings.Contains(string(text), deploy) {
		t.Errorf("%s does not say %q", file, deploy)
	}
	command := regexp.MustCompile(`(?m)^\W*(.*REDIS_URL=` + server + ` .*)$`).FindSubmatch(text)
	if command == nil {
		t.Fatalf("%s does not say how it is run: no line of it has REDIS_URL=%s", file, server)
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", strings.ReplaceAll(string(command[1]), server, "redis://"+addr))
	cmd.Dir = dir
	cmd.Env = append(slices.Clone(os.Environ()),
		"PATH=/usr/bin:"+os.Getenv("PATH"), // the distribution's client packages work with the distribution's interpreters
		"NODE_PATH=/usr/share/nodejs:"+os.Getenv("NODE_PATH"))
	if cluster {
		cmd.Env = append(cmd.Env, "REDIS_CLUSTER=1")
	}
	var out, failure strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &failure
	err = cmd.Run()
	return out.String(), failure.String(), err
}

// losingProxy forwards connections to a server. It drops the reply to the first take and closes the
// connection instead.
type losingProxy struct {
	listener net.Listener
	open     sync.WaitGroup

	mu    sync.Mutex
	lost  bool
	takes int
}

func startLosingProxy(t *testing.T, server string) *losingProxy {
	t.Helper()
	listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	p := &losingProxy{listener: listener}
	t.Cleanup(func() {
		_ = listener.Close()
		p.open.Wait() // the example and its connections have ended, so this returns
	})
	p.open.Go(func() {
		for {
			caller, err := listener.Accept()
			if err != nil {
				return
			}
			behind, err := net.Dial("tcp", server)
			if err != nil {
				t.Error(err)
				_ = caller.Close()
				continue
			}
			p.pass(caller, behind)
		}
	})
	return p
}

// pass copies data in both directions until one side closes.
func (p *losingProxy) pass(caller, behind net.Conn) {
	closeBoth := func() {
		_ = caller.Close()
		_ = behind.Close()
	}
	p.open.Go(func() {
		defer closeBoth()
		var asked []byte
		takes := 0
		copyUntil(caller, behind, func(data []byte) bool {
			asked = append(asked, data...)
			now := bytes.Count(asked, []byte("ratelimit_take"))
			p.mu.Lock()
			defer p.mu.Unlock()
			p.takes += now - takes
			takes = now
			return false
		})
	})
	p.open.Go(func() {
		defer closeBoth()
		copyUntil(behind, caller, func([]byte) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			lose := p.takes > 0 && !p.lost
			p.lost = p.lost || lose
			return lose
		})
	})
}

// copyUntil copies data until a connection ends, or until stop returns true for the data just read.
func copyUntil(from, to net.Conn, stop func(data []byte) bool) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		if n > 0 && stop(buffer[:n]) {
			return
		}
		if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

// passed returns the number of takes that reached the server through the proxy.
func (p *losingProxy) passed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.takes
}
