package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/dashboard"
	"github.com/ratelimit-functions/ratelimit/embedded"
)

// The command prints the page's address, reports that it cannot reach the server, and still serves
// the page.
func TestDashboard(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require(t, os.WriteFile(file, []byte("sixteen letters!\n"), 0o600))
	for _, tt := range []struct {
		env   string
		flags []string
		token bool
	}{
		{"", nil, false}, {"", []string{"--token-file", file}, true}, {"RATELIMIT_DASHBOARD_TOKEN=sixteen letters!", nil, true}, {"", []string{"--listen", "0.0.0.0:0"}, true},
	} {
		s := start(t, []string{"REDIS_URL=redis://127.0.0.1:1", tt.env}, append([]string{"dashboard", "--listen", "127.0.0.1:0"}, tt.flags...)...)
		eventually(t, "the greeting", func() bool { return strings.Contains(s.stdout.String(), "Ctrl-C ends it\n") })
		at, rest, _ := strings.Cut(s.stdout.String(), "\n")
		if !regexp.MustCompile(`^http://127\.0\.0\.1:\d+/(\?token=[^ ]{16,})?$`).MatchString(at) || strings.Contains(at, "?token=") != tt.token ||
			!strings.HasPrefix(rest, "shows redis://127.0.0.1:1, and changes nothing\n") {
			t.Errorf("%v: it says %q", tt.flags, s.stdout.String())
		}
		without, _, _ := strings.Cut(at, "?")
		for url, want := range map[string]int{at: 200, without: map[bool]int{true: 401, false: 200}[tt.token]} {
			jar, _ := cookiejar.New(nil)
			reply := must[*http.Response](t)((&http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}).Get(url))
			page, _ := io.ReadAll(reply.Body)
			_ = reply.Body.Close()
			if reply.StatusCode != want || want == 200 && !bytes.Contains(page, []byte("<h1>ratelimit</h1>")) {
				t.Errorf("%s: %s", url, reply.Status)
			}
		}
		eventually(t, "the fault", func() bool { return strings.HasSuffix(s.stderr.String(), "\n") })
		if got := s.end(); got.code != exitFine || !regexp.MustCompile(`^ratelimit: cannot reach 127\.0\.0\.1:1: connection refused.*; the dashboard tries again while a page is open\n$`).MatchString(got.stderr) {
			t.Errorf("%+v", got)
		}
	}
}

// If the server replies, the command prints nothing on stderr.
func TestDashboardOfAServerThatAnswers(t *testing.T) {
	s := start(t, []string{redisURL(withLibrary(t).Addr())}, "dashboard", "--listen", "127.0.0.1:0")
	eventually(t, "the greeting", func() bool { return strings.Contains(s.stdout.String(), "Ctrl-C ends it\n") })
	if got := s.end(); got.code != exitFine || got.stderr != "" {
		t.Errorf("%+v", got)
	}
}

// A server is marked as good if it runs the build that the command line names. If the command line
// names no build, any build of the library is good on a single server.
func TestDashboardNodes(t *testing.T) {
	addr := startRedis(t)
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	require(t, os.WriteFile(policies, []byte("policies:\n  api: 100/m\n"), 0o666))
	nodes := func(flags ...string) (dashboard.Node, string) {
		t.Helper()
		a := testApp([]string{redisURL(addr)}, io.Discard, io.Discard)
		a.servers.timeout = a.timeout
		if len(flags) > 0 {
			a.policies = flags[:1]
		}
		source := must[dashboard.Source](t)(a.dashboardSource())
		nodes, err := source.Nodes(t.Context())
		if len(nodes) != 1 {
			t.Fatalf("%v: %+v", err, nodes)
		}
		if err != nil {
			return nodes[0], source.Explain(err)
		}
		return nodes[0], ""
	}
	if n, _ := nodes(); n.Good || n.State != "not deployed" {
		t.Errorf("without the library: %+v", n)
	}
	fine(t, []string{redisURL(addr)}, "deploy", "--policies", policies)
	if n, _ := nodes(); !n.Good || n.State != "loaded" || n.Role != "primary" || len(n.Digest) != 12 {
		t.Errorf("of whatever build: %+v", n)
	}
	if n, _ := nodes(policies); !n.Good || n.State != "in step" {
		t.Errorf("of the build that was named: %+v", n)
	}
	require(t, os.WriteFile(policies, []byte("policies:\n  api: 200/m\n"), 0o666))
	if n, _ := nodes(policies); n.Good || !strings.HasPrefix(n.State, "differs from build ") {
		t.Errorf("of another build: %+v", n)
	}
	addr = "127.0.0.1:1"
	if n, fault := nodes(); n.Good || !n.Dead || !strings.HasPrefix(fault, "cannot reach 127.0.0.1:1: connection refused") {
		t.Errorf("of a dead server: %+v, %s", n, fault)
	}
}

// The page gets the same data that the commands print.
func TestDashboardAsks(t *testing.T) {
	srv := embedded.Run(t, embedded.WithTime(began))
	get := serveDashboard(t, srv.Addr())
	asks := func(path, want string) {
		t.Helper()
		reply := get(path)
		body, err := io.ReadAll(reply.Body)
		_ = reply.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%s: %v, %s, want in it %s", path, err, body, want)
		}
	}
	asks("/peek?key=k&limit=5/m", "with: ratelimit deploy --policies FILE;")
	fine(t, []string{redisURL(srv.Addr())}, "deploy")
	counted(t, srv, "user:1", "user:2")
	asks("/peek?key=kuser:2&key=kuser:1&limit=3/d", `{"allowed":false,"limit":3,`)
	asks("/peek?key=kuser:2&key=kuser:1&limit=3/d", `"key":"kuser:2"`)
	asks("/usage?key="+base64.RawURLEncoding.EncodeToString([]byte("user:2")), `{"allowed":3,"denied":1,`)
	asks("/peek?key=k&limit=@none", "NOPOLICY")
}

// The page shows no part of a value that does not belong to a limiter, so viewers cannot read other
// keys.
func TestDashboardHidesValues(t *testing.T) {
	const secret = "5ecret"
	srv := withLibrary(t)
	rdb := admin(t, srv.Addr())
	for _, text := range []string{"", "gcra:", "token_bucket:", "once:1,3,2,0,1000,", "blocked:1700000060000:0:", "sliding_log:"} {
		do(t, rdb, "SET", "text:"+text, text+secret, "PX", 60000)
	}
	do(t, rdb, "RPUSH", "list", secret)
	do(t, rdb, "SADD", "set", secret)
	do(t, rdb, "ZADD", "leases", began.UnixMilli()+60000, "lease:"+secret)
	do(t, rdb, "HSET", "hash", "user", secret)
	do(t, rdb, "HSET", "record", "first", began.UnixMilli(), "last", began.UnixMilli(), "cost", 1, "allowed", 1, "user", secret)
	do(t, rdb, "FCALL", "ratelimit_take", 2, "limiter", "request", "5/m", "ONCE", 60000)
	get := serveDashboard(t, srv.Addr())
	keys := rdb.Keys(t.Context(), "*").Val()
	if len(keys) != 13 {
		t.Fatalf("the server holds %q", keys)
	}
	for _, key := range keys {
		for _, path := range []string{
			"/peek?limit=1/s&key=" + url.QueryEscape(key), "/peek?limit=token_bucket+5/m&key=" + url.QueryEscape(key),
			"/peek?limit=sliding_log+5/m&key=other&key=" + url.QueryEscape(key), "/usage?key=" + base64.RawURLEncoding.EncodeToString([]byte(key)),
		} {
			reply := get(path)
			body, err := io.ReadAll(reply.Body)
			_ = reply.Body.Close()
			if err != nil || len(body) == 0 || bytes.Contains(body, []byte(secret)) || key == "request" && bytes.Contains(body, []byte("once:")) {
				t.Errorf("%s: %s, %v", path, body, err)
			}
		}
	}
	do(t, rdb, "SET", "number", "483920", "PX", 60000)
	reply := get("/peek?limit=fixed_window+9007199254740992/d&key=number")
	body, err := io.ReadAll(reply.Body)
	_ = reply.Body.Close()
	if err != nil || !bytes.Contains(body, []byte("BADSTATE")) || bytes.Contains(body, []byte("remaining")) {
		t.Errorf("a number of another program: %s, %v", body, err)
	}
	if event := firstLook(t, get, `"shown":"record"`); strings.Contains(event, secret) {
		t.Errorf("an event shows a value: %s", event)
	}
}

// If a server's replies have an unexpected shape, the page shows a fault, and the dashboard
// continues.
func TestDashboardOfAServerThatRepliesNonsense(t *testing.T) {
	srv := withLibrary(t)
	counted(t, srv, "user:1")
	addr := standIn(t, srv, false, func(words []string) string {
		if strings.EqualFold(words[0], "HMGET") {
			return resp(slices.Repeat([]any{"1"}, 10))
		}
		return ""
	})
	firstLook(t, serveDashboard(t, addr), `"faults":["cannot reach `+addr+`: it does not speak the Redis protocol (redis: got \"[1 1 1`)
}

// serveDashboard serves the dashboard of a server until the test ends, and returns a function that
// requests a path.
func serveDashboard(t *testing.T, addr string) (get func(path string) *http.Response) {
	t.Helper()
	a := testApp([]string{redisURL(addr)}, io.Discard, io.Discard)
	a.servers.timeout = a.timeout
	source := must[dashboard.Source](t)(a.dashboardSource())
	board := dashboard.New(source)
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		board.Run(ctx)
	}()
	server := httptest.NewServer(board.Handler("", false))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		stop()
		<-over
	})
	return func(path string) *http.Response {
		t.Helper()
		reply := must[*http.Response](t)(server.Client().Get(server.URL + path))
		return reply
	}
}

// firstLook returns the events of a dashboard up to the first that contains text.
func firstLook(t *testing.T, get func(path string) *http.Response, text string) string {
	t.Helper()
	reply := get("/events")
	defer func() { _ = reply.Body.Close() }()
	var seen strings.Builder
	for lines := bufio.NewReader(reply.Body); ; {
		line, err := lines.ReadString('\n')
		seen.WriteString(line)
		if strings.Contains(line, text) {
			return seen.String()
		}
		if err != nil || strings.Count(seen.String(), "data: ") > 10 {
			t.Fatalf("no event has %s: %v\n%s", text, err, seen.String())
		}
	}
}
