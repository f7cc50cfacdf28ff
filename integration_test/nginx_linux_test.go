package integration_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
)

// TestNginxWithTheService runs nginx with a service that uses the middleware. The test needs Linux,
// because Linux lets clients use every address in 127.0.0.0/8.
func TestNginxWithTheService(t *testing.T) {
	built := goBuild(t, "build", "./examples/nginx")
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		loadLibrary(testContext(t), t, b) // the service checks its limit at start
		service, stop := startLimitService(t, must[string](t)(built()), "redis://"+strings.Join(b.Addrs(), ","))
		get := startNginx(t, "auth_request.conf", "127.0.0.1:8081", service)
		wantLimits(t, b, get)
		stop()
		get("127.0.0.2", "").want(t, http.StatusOK, "/ from 127.0.0.2")
	}, withClock, prepared(built))
}

// TestNginxWithLua runs nginx with a Lua script that calls Redis directly.
func TestNginxWithLua(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		host, port, err := net.SplitHostPort(b.Addrs()[0])
		if err != nil {
			t.Fatal(err)
		}
		wantLimits(t, b, startNginx(t, "lua.conf",
			`"127.0.0.1", 6379`, fmt.Sprintf("%q, %s", host, port), `"100/m"`, `"3/m"`, "set_timeout(500)", "set_timeout(60000)"))
	}, standalone, withClock)
}

// startLimitService starts the service of examples/nginx with a limit of 3/m. It returns the
// service's address and a function that stops the service.
func startLimitService(t *testing.T, program, redisURL string) (addr string, stop func()) {
	t.Helper()
	cmd := exec.CommandContext(testContext(t), program, "-listen", "127.0.0.1:0", "-limit", "3/m", "-timeout", "1m")
	cmd.Env = append(os.Environ(), "REDIS_URL="+redisURL)
	output := must[io.ReadCloser](t)(cmd.StderrPipe())
	require(t, cmd.Start())
	lines := bufio.NewReader(output)
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		if rest, err := io.ReadAll(lines); t.Failed() {
			t.Logf("the service said, and then %v:\n%s", err, rest)
		}
		_ = cmd.Wait() // the error is always that the service was killed
	})
	t.Cleanup(stop)
	first, err := lines.ReadString('\n')
	_, addr, found := strings.Cut(strings.TrimSpace(first), "listening on ")
	if !found {
		t.Fatalf("the service says %q, and then %v", first, err)
	}
	return addr, stop
}

// wantLimits checks that nginx applies the limit 3/m to each address.
func wantLimits(t *testing.T, b *backend.Backend, get func(from, path string) response) {
	t.Helper()
	ctx := testContext(t)
	loadLibrary(ctx, t, b)
	require(t, b.SetTime(time.Now().UnixMicro()))
	const policy = `RateLimit-Policy="nginx";q=3`
	get("127.0.0.2", "").want(t, http.StatusOK, "/ from 127.0.0.2", policy, `RateLimit="nginx";r=2;t=20`, "Retry-After=")
	get("127.0.0.2", "forbidden").want(t, http.StatusForbidden, "not yours", policy, `RateLimit="nginx";r=1;t=40`)
	get("127.0.0.2", "").want(t, http.StatusOK, "/ from 127.0.0.2", policy, `RateLimit="nginx";r=0;t=60`)
	get("127.0.0.2", "").want(t, http.StatusTooManyRequests, "429", policy, `RateLimit="nginx";r=0;t=20`, "Retry-After=20")
	get("127.0.0.3", "").want(t, http.StatusOK, "/ from 127.0.0.3", policy, `RateLimit="nginx";r=2;t=20`)

	if err := b.Restore(ctx); err != nil { // without the library, nginx allows requests
		t.Fatal(err)
	}
	get("127.0.0.2", "").want(t, http.StatusOK, "/ from 127.0.0.2", "RateLimit=", "RateLimit-Policy=")
}

type response struct {
	status int
	header http.Header
	body   string
	err    error
}

// want checks the status, part of the body, and header fields. Each field is written as name=value.
func (r response) want(t *testing.T, status int, body string, fields ...string) {
	t.Helper()
	if r.err != nil || r.status != status || !strings.Contains(r.body, body) {
		t.Errorf("%d %q, %v; want %d %q", r.status, r.body, r.err, status, body)
	}
	for _, field := range fields {
		name, value, _ := strings.Cut(field, "=")
		if got := strings.Join(r.header.Values(name), ", "); got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
}

// startNginx starts nginx in front of a test application, with the configuration file conf of
// examples/nginx. replace contains pairs: a string in conf and its replacement. The returned
// function sends a request from a local address.
func startNginx(t *testing.T, conf string, replace ...string) func(from, path string) response {
	t.Helper()
	application := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/forbidden" {
			http.Error(w, "not yours", http.StatusForbidden)
			return
		}
		fmt.Fprintf(w, "%s from %s", r.URL.Path, r.Header.Get("X-Test-From"))
	}))
	t.Cleanup(application.Close)
	// nginx inherits the listening socket, as in a binary upgrade, so that no other program can
	// take the port.
	listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	socket := must[*os.File](t)(listener.(*net.TCPListener).File())
	defer socket.Close()
	address := listener.Addr().String()

	text := must[[]byte](t)(os.ReadFile("../examples/nginx/" + conf))
	server := string(text)
	replace = append(replace, "127.0.0.1:8080", address, "127.0.0.1:3000", application.Listener.Addr().String())
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(server, replace[i]) {
			t.Fatalf("%s has no %s", conf, replace[i])
		}
		server = strings.ReplaceAll(server, replace[i], replace[i+1])
	}
	dir := t.TempDir()
	// main replaces Debian's /etc/nginx/nginx.conf.
	main := `daemon off;
pid nginx.pid;
load_module /usr/lib/nginx/modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
` + server + "}\n"
	require(t, os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(main), 0o644))
	cmd := exec.CommandContext(context.Background(), "/usr/sbin/nginx", "-e", "stderr", "-p", dir, "-c", "nginx.conf")
	cmd.Env = append(os.Environ(), "NGINX=3;")
	cmd.ExtraFiles = []*os.File{socket}
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v (Debian, Ubuntu: apt-get install lua-nginx-redis)", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("nginx: %v; it said:\n%s", err, log.String())
		}
	})
	return func(from, path string) response {
		transport := &http.Transport{
			DialContext:       (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext,
			DisableKeepAlives: true,
		}
		request, err := http.NewRequestWithContext(testContext(t), http.MethodPost, "http://"+address+"/"+path, strings.NewReader("text"))
		if err != nil {
			return response{err: err}
		}
		request.Header.Set("X-Forwarded-For", "203.0.113.7") // must not be trusted, because the client sends it
		request.Header.Set("X-Test-From", from)
		answer, err := transport.RoundTrip(request)
		if err != nil {
			return response{err: err}
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		return response{answer.StatusCode, answer.Header, string(body), err}
	}
}
