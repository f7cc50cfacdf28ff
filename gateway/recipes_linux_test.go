package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// recipes is the folder with the configurations of proxies.
const recipes = "../examples/gateway/"

// proxy describes how to run a recipe with a proxy from Debian. The tests of recipes need Linux,
// because their clients use several addresses in 127.0.0.0/8, and other systems have only
// 127.0.0.1.
type proxy struct {
	files   []string // files of the recipe to copy
	main    string   // content of main.conf, which includes the recipe; "" for none
	command []string // starts the proxy, in a folder with main.conf and copies of the recipe's files
	debian  string   // Debian packages of the proxy

	fields    bool // responses to allowed requests also have the RateLimit fields
	down      int  // the status while the gateway is down
	undecided int  // the status while the gateway cannot decide
	wrong     int  // the status if the recipe names a policy that the server does not have
}

var proxies = map[string]proxy{
	"nginx": {
		files: []string{"nginx.conf"}, main: nginxMain,
		command: []string{"/usr/sbin/nginx", "-e", "stderr", "-p", ".", "-c", "main.conf"}, debian: "nginx", fields: true, down: 200, undecided: 200, wrong: 500,
	},
	"caddy": {
		files:   []string{"Caddyfile"},
		command: []string{"caddy", "run", "--config", "Caddyfile", "--adapter", "caddyfile"}, debian: "caddy", fields: true, down: 502, undecided: 503, wrong: 400,
	},
	"caddy, short": {
		files:   []string{"Caddyfile.short"},
		command: []string{"caddy", "run", "--config", "Caddyfile.short", "--adapter", "caddyfile"}, debian: "caddy", down: 502, undecided: 503, wrong: 400,
	},
	"haproxy": {
		files:   []string{"haproxy.cfg", "haproxy-limit.lua"},
		command: []string{"/usr/sbin/haproxy", "-db", "-f", "haproxy.cfg"}, debian: "haproxy", fields: true, down: 200, undecided: 200, wrong: 500,
	},
	"apache": {
		files: []string{"apache.conf", "apache-limit.lua"}, main: apacheMain,
		command: []string{"/usr/sbin/apache2", "-d", ".", "-f", "main.conf", "-D", "FOREGROUND"}, debian: "apache2-bin lua-socket", fields: true, down: 200, undecided: 200, wrong: 500,
	},
}

const nginxMain = `daemon off;
pid nginx.pid;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include nginx.conf;
}
`

const apacheMain = `ServerName test
PidFile apache.pid
DefaultRuntimeDir .
ErrorLog /dev/stderr
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule proxy_module /usr/lib/apache2/modules/mod_proxy.so
LoadModule proxy_http_module /usr/lib/apache2/modules/mod_proxy_http.so
LoadModule lua_module /usr/lib/apache2/modules/mod_lua.so
Include apache.conf
`

// freePort returns a free address on 127.0.0.1.
func freePort(t *testing.T) string {
	t.Helper()
	port := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer port.Close()
	return port.Addr().String()
}

// start runs the proxy until the test ends, and returns its address. In the proxy's files, it sets
// the addresses of the gateway and the application.
func (p proxy) start(t *testing.T, gateway, application string) string {
	t.Helper()
	for range 3 { // another program may take the port first
		if addr := p.try(t, gateway, application); addr != "" {
			return addr
		}
	}
	t.Fatalf("%s does not start", p.command[0])
	return ""
}

func (p proxy) try(t *testing.T, gateway, application string) string {
	t.Helper()
	dir, addr := t.TempDir(), freePort(t)
	change := strings.NewReplacer("127.0.0.1:8000", addr, "127.0.0.1:8080", gateway, "127.0.0.1:3000", application,
		"/etc/apache2", dir, "/tmp/try-nginx", filepath.Join(dir, "try-nginx"), "100ms", "1m", "timeout = 100,", "timeout = 60000,", "TIMEOUT = 0.1", "TIMEOUT = 60") // long timeouts, for a busy machine
	put := func(name, text string) {
		require(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for _, name := range p.files {
		text := must[[]byte](t)(os.ReadFile(recipes + name))
		put(name, change.Replace(string(text)))
	}
	put("main.conf", p.main)
	cmd := exec.CommandContext(context.Background(), p.command[0], p.command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	var log redistest.Output
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v (Debian, Ubuntu: apt-get install %s)", err, p.debian)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	stop := sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		if t.Failed() {
			t.Logf("%s said:\n%s", p.command[0], &log)
		}
	})
	t.Cleanup(stop)
	redistest.Eventually(t, p.command[0]+" listens or ends", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
			return true
		}
		select {
		case <-ended:
			t.Logf("%s ended:\n%s", p.command[0], &log)
			addr = ""
			return true
		default:
			return false
		}
	})
	return addr
}

// answer is the response to a request.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request from a local address, with a header that must not be trusted.
func ask(t *testing.T, from, method, url string) answer {
	t.Helper()
	transport := &http.Transport{
		DialContext:       (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext,
		DisableKeepAlives: true,
	}
	request := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("the body")))
	request.Header.Set("X-Forwarded-For", "203.0.113.7")
	response := must[*http.Response](t)(transport.RoundTrip(request))
	defer response.Body.Close()
	body := must[[]byte](t)(io.ReadAll(response.Body))
	return answer{response.StatusCode, response.Header, string(body)}
}

// want checks the status, a part of the body, and header fields, which are written as name=pattern.
func (a answer) want(t *testing.T, status int, body string, fields ...string) {
	t.Helper()
	if a.status != status || !strings.Contains(a.body, body) {
		t.Errorf("%d %q, want %d %q", a.status, a.body, status, body)
	}
	for _, field := range fields {
		name, pattern, _ := strings.Cut(field, "=")
		if got := strings.Join(a.header.Values(name), ", "); !regexp.MustCompile("^(" + pattern + ")$").MatchString(got) {
			t.Errorf("%s is %q, want %q", name, got, pattern)
		}
	}
}

// TestRecipes checks each recipe. It must count requests by the client's address, deny with 429 and
// the header fields RateLimit, RateLimit-Policy and Retry-After, and forward other requests to the
// application unchanged. While the gateway is down, it must behave as its comments say.
func TestRecipes(t *testing.T) {
	application := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if r.URL.Path == "/forbidden" {
			w.WriteHeader(http.StatusForbidden)
		}
		fmt.Fprintf(w, "%s %s %s %v", r.Method, r.RequestURI, body, err)
	}))
	defer application.Close()
	for name, p := range proxies {
		t.Run(name, func(t *testing.T) {
			gateway, stop := startGateway(t, "--dev", "--policies", policies(t, "3/h"), "--trusted-proxies", "127.0.0.1")
			url := "http://" + p.start(t, gateway, application.Listener.Addr().String())

			left := func(n int) []string {
				if !p.fields {
					return []string{"RateLimit=", "RateLimit-Policy=", "Retry-After="}
				}
				return []string{fmt.Sprintf(`RateLimit="api";r=%d;t=\d+`, n), `RateLimit-Policy="api";q=3`, "Retry-After="}
			}
			ask(t, "127.0.0.2", "GET", url+"/a?limit=1").want(t, 200, "GET /a?limit=1 the body <nil>", left(2)...)
			ask(t, "127.0.0.2", "POST", url+"/b").want(t, 200, "POST /b the body <nil>", left(1)...)
			ask(t, "127.0.0.2", "PUT", url+"/forbidden").want(t, 403, "PUT /forbidden the body <nil>", left(0)...)
			for range 2 {
				ask(t, "127.0.0.2", "POST", url+"/c?a=1").want(t, 429, `"status":429`, `RateLimit="api";r=0;t=\d+`, `RateLimit-Policy="api";q=3`,
					`Retry-After=1[12]\d\d`, `Content-Type=application/problem\+json`)
			}
			ask(t, "127.0.0.3", "DELETE", url+"/d").want(t, 200, "DELETE /d the body <nil>", left(2)...)

			page, _, _ := strings.Cut(name, ", ")
			try := blocks(t, pages+page+".md", "Try it", "sh")[1]
			if shown := shell(t, try, gateway, strings.TrimPrefix(url, "http://")); strings.Count(shown, "200\n") != 3 || strings.Count(shown, "429\n") != 37 ||
				!strings.Contains(shown, "HTTP/1.1 429 ") || !strings.Contains(strings.ToLower(shown), "\nratelimit: ") {
				t.Errorf("the commands of the page print\n%s", shown)
			}

			stop()
			ask(t, "127.0.0.2", "GET", url+"/e").want(t, p.down, "", "RateLimit=", "Retry-After=")

			for _, tt := range []struct {
				args   []string
				status int
			}{
				{[]string{"--dev"}, p.wrong}, // without the policy
				{[]string{"--redis", "redis://" + freePort(t)}, p.undecided},
			} {
				gateway, stop = startGateway(t, tt.args...)
				url = "http://" + p.start(t, gateway, application.Listener.Addr().String())
				ask(t, "127.0.0.2", "GET", url+"/f").want(t, tt.status, "", "RateLimit=")
				stop()
			}
		})
	}
}

// TestSecurityTable checks that the table in SECURITY.md says which requests pass without a
// decision, as TestRecipes observes it.
func TestSecurityTable(t *testing.T) {
	text := must[[]byte](t)(os.ReadFile("../SECURITY.md"))
	for name, p := range proxies {
		name, _, _ := strings.Cut(name, ",")
		undecided := fmt.Sprintf("%d, or %d if the gateway is down", p.undecided, p.down)
		if p.undecided == 200 && p.down == 200 {
			undecided = "**passes**"
		}
		row := fmt.Sprintf(`(?mi)^\| [^|]*\b%s\b[^|]* \| %s \| %d \|$`, name, regexp.QuoteMeta(undecided), p.wrong)
		if !regexp.MustCompile(row).Match(text) {
			t.Errorf("SECURITY.md has no row with %s: %s: %d", name, undecided, p.wrong)
		}
	}
}
