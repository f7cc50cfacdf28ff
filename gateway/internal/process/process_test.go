package process_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	healthapi "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/process"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// question requests one unit under the policy api.
var question = &rls.RateLimitRequest{Domain: "web", Descriptors: []*entries.RateLimitDescriptor{
	{Entries: []*entries.RateLimitDescriptor_Entry{{Key: "policy", Value: "api"}, {Key: "user", Value: "ann"}}},
}}

// TestStartsWithoutRedis checks that the gateway starts without Redis, and is unready until a check
// passes.
func TestStartsWithoutRedis(t *testing.T) {
	t.Parallel()
	port := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	addr := port.Addr().String()
	_ = port.Close()
	g := start(t, process.Options{Redis: "redis://" + addr})
	g.says(t, "not ready")
	if status, body := g.get(t, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "not ready; see the log") {
		t.Errorf("/readyz: %d %s", status, body)
	}
	if status, _ := g.get(t, "/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d", status)
	}
	if status, _ := g.get(t, "/check/api"); status != http.StatusServiceUnavailable {
		t.Errorf("/check: %d", status)
	}
	conn := g.dial(t, nil)
	if _, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), question); status.Code(err) != codes.Unavailable {
		t.Errorf("ShouldRateLimit: %v", err)
	}
	if state, err := healthapi.NewHealthClient(conn).Check(t.Context(), &healthapi.HealthCheckRequest{}); err != nil || state.Status != healthapi.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health: %v, %v", state, err)
	}
	server(t, embedded.WithAddr(addr))
	g.ready(t)
	if status, body := g.get(t, "/check/api"); status != http.StatusOK {
		t.Errorf("/check: %d %s", status, body)
	}
	answer, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), question)
	if err != nil || answer.OverallCode != rls.RateLimitResponse_OK || answer.Statuses[0].LimitRemaining != 2 {
		t.Errorf("ShouldRateLimit: %v, %v", answer, err)
	}
}

// TestDrains checks that, during a shutdown, a request in progress finishes, and the port refuses
// new connections.
func TestDrains(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]func(g *gateway) error{
		"http": func(g *gateway) error {
			status, body, err := g.request(t.Context(), "GET", "/check/api", "")
			if err == nil && status != http.StatusOK {
				err = errors.New(body)
			}
			return err
		},
		"grpc": func(g *gateway) error {
			_, err := rls.NewRateLimitServiceClient(g.dial(t, nil)).ShouldRateLimit(t.Context(), question)
			return err
		},
	} {
		r := newRelay(t, server(t).Addr())
		g := start(t, process.Options{Redis: "redis://" + r.addr})
		g.ready(t)
		r.hold(true)
		ended := make(chan error, 1)
		go func() { ended <- request(g) }()
		redistest.Eventually(t, "the request is in progress", func() bool { return r.calls() == 1 })
		g.cancel()
		for _, addr := range []net.Addr{g.grpc, g.http} {
			redistest.Eventually(t, "the port is closed", func() bool {
				conn, err := net.Dial(addr.Network(), addr.String())
				if err == nil {
					_ = conn.Close()
				}
				return err != nil
			})
		}
		r.hold(false)
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := g.stop(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestStreamsEnd checks that the gateway ends streams when the drain begins, because their clients
// never end them.
func TestStreamsEnd(t *testing.T) {
	t.Parallel()
	g := start(t, process.Options{Dev: true})
	g.ready(t)
	watch, err := healthapi.NewHealthClient(g.dial(t, nil)).Watch(t.Context(), &healthapi.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if state, err := watch.Recv(); state.GetStatus() != healthapi.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", state, err)
	}
	g.cancel()
	for err == nil {
		_, err = watch.Recv()
	}
	if status.Code(err) != codes.Canceled { // Unavailable would mean that the connection was cut off
		t.Errorf("the stream ends with %v", err)
	}
}

// TestAnswersWhileRedisHangs checks that, if a server accepts connections but never replies, each
// request fails, and the breaker opens.
func TestAnswersWhileRedisHangs(t *testing.T) {
	t.Parallel()
	r := newRelay(t, server(t).Addr())
	g := start(t, process.Options{Redis: "redis://" + r.addr, Timeout: 50 * time.Millisecond})
	g.ready(t)
	r.hold(true)
	service := rls.NewRateLimitServiceClient(g.dial(t, nil))
	for range 10 {
		if status, body := g.get(t, "/check/api"); status != http.StatusServiceUnavailable {
			t.Errorf("/check: %d %s", status, body)
		}
		if status, body := g.send(t, "POST", "/v1/take", `{"keys":["a"],"limits":["3/m"]}`); status != http.StatusServiceUnavailable {
			t.Errorf("/v1/take: %d %s", status, body)
		}
		if answer, err := service.ShouldRateLimit(t.Context(), question); status.Code(err) != codes.Unavailable {
			t.Errorf("ShouldRateLimit: %v, %v", answer, err)
		}
	}
	breaker := func() string {
		_, text := g.get(t, "/metrics")
		_, value, _ := strings.Cut(text, "ratelimit_gateway_breaker_open{node=\""+r.addr+"\"} ")
		value, _, _ = strings.Cut(value, "\n")
		return value
	}
	if got := breaker(); got != "1" {
		t.Errorf("the breaker is %q, want 1", got)
	}
	if status, _ := g.get(t, "/readyz"); status != http.StatusOK {
		t.Errorf("/readyz: %d; an outage must not take away the gateway, because proxies would wait for another", status)
	}
	r.hold(false)
	redistest.Eventually(t, "decisions again", func() bool { status, _ := g.get(t, "/check/api"); return status == http.StatusOK })
	redistest.Eventually(t, "the breaker is closed", func() bool { return breaker() == "0" })
}

// TestDeploys checks that Deploy loads the library before the first request, and again after the
// server has lost it.
func TestDeploys(t *testing.T) {
	t.Parallel()
	redis := redistest.Run(t)
	g := start(t, process.Options{Redis: "redis://" + redis.Addr, Deploy: true, Policies: []string{write(t, "policies.yaml", policyFile)}})
	g.ready(t)
	if status, body := g.get(t, "/check/api"); status != http.StatusOK {
		t.Errorf("/check: %d %s", status, body)
	}
	conn := must[net.Conn](t)(net.Dial("tcp", redis.Addr))
	defer conn.Close()
	must[int](t)(fmt.Fprint(conn, "FUNCTION FLUSH\r\n"))
	if n, err := conn.Read(make([]byte, 100)); n != len("+OK\r\n") || err != nil {
		t.Fatal(n, err)
	}
	if status, body := g.get(t, "/check/api"); status != http.StatusOK {
		t.Errorf("/check after a loss: %d %s", status, body)
	}
}

// TestDoesNotDeploy checks that, without Deploy, the log says what to do.
func TestDoesNotDeploy(t *testing.T) {
	t.Parallel()
	g := start(t, process.Options{Redis: "redis://" + embedded.Run(t).Addr()})
	g.says(t, "deploy it with ratelimit deploy, or start the gateway with --deploy")
	if status, _ := g.get(t, "/check/api"); status != http.StatusServiceUnavailable {
		t.Errorf("/check: %d", status)
	}
}

func TestDev(t *testing.T) {
	t.Parallel()
	g := start(t, process.Options{Dev: true, Redis: "redis://ignored:1", Policies: []string{write(t, "policies.yaml", policyFile)}})
	g.ready(t)
	for i, want := range []int{200, 200, 200, 429} {
		if status, body := g.get(t, "/check/api"); status != want {
			t.Errorf("request %d: %d %s, want %d", i, status, body, want)
		}
	}
	if _, body := g.get(t, "/v1/info"); !strings.Contains(body, `"policies":["api"]`) {
		t.Error(body)
	}
	if status, _ := g.get(t, "/v1/openapi.yaml"); status != http.StatusOK {
		t.Errorf("openapi.yaml: %d", status)
	}
	if _, text := g.get(t, "/metrics"); !strings.Contains(text, `ratelimit_gateway_requests_total{decision="denied",name="@api",source="check"} 1`) || !strings.Contains(text, "go_goroutines ") {
		t.Error(text)
	}
	if status, _ := g.get(t, "/"); status != http.StatusNotFound {
		t.Errorf("/: %d", status)
	}
}

// TestBatches checks that, with batches, a hot key needs fewer calls than requests.
func TestBatches(t *testing.T) {
	t.Parallel()
	for batches, fewer := range map[string]bool{"": false, "50,1m": true} {
		r := newRelay(t, embedded.Run(t, embedded.WithLibrary(library(t))).Addr())
		g := start(t, process.Options{Redis: "redis://" + r.addr, Batches: batches})
		g.ready(t)
		const requests = 200
		for range requests {
			if status, body := g.send(t, "POST", "/v1/take", `{"keys":["hot"],"limits":["1000000/h"]}`); status != http.StatusOK {
				t.Fatal(status, body)
			}
		}
		if got := r.calls(); (got < requests/2) != fewer {
			t.Errorf("--batches %q: %d calls for %d requests", batches, got, requests)
		}
	}
}

func TestUnixSockets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	grpc, http := "unix:"+filepath.Join(dir, "grpc"), "unix:"+filepath.Join(dir, "http")
	options := process.Options{Dev: true, GRPC: grpc, HTTP: http, Policies: []string{write(t, "policies.yaml", policyFile)}}
	g := start(t, options)
	g.ready(t)
	if status, body := g.get(t, "/check/api/header:X,address"); status != 503 { // no header identifies the caller
		t.Errorf("without X-Forwarded-For: %d %s", status, body)
	}
	if got := forwarded(t, g, "203.0.113.7"); got != 200 {
		t.Errorf("with X-Forwarded-For: %d", got)
	}
	fails(t, process.Options{Dev: true, GRPC: grpc}, "--grpc "+grpc, "address already in use")
	if status, _ := g.get(t, "/healthz"); status != 200 {
		t.Errorf("after another gateway's attempt: %d", status)
	}
	require(t, g.stop())

	// A killed process leaves its socket behind, and a new process replaces it. Any other file is
	// kept.
	address := must[*net.UnixAddr](t)(net.ResolveUnixAddr("unix", filepath.Join(dir, "http")))
	left := must[*net.UnixListener](t)(net.ListenUnix("unix", address))
	left.SetUnlinkOnClose(false)
	_ = left.Close()
	start(t, options).ready(t)
	file := write(t, "notes", "mine")
	fails(t, process.Options{Dev: true, HTTP: "unix:" + file}, "--http unix:"+file, "address already in use; choose another address")
	if text, err := os.ReadFile(file); string(text) != "mine" || err != nil {
		t.Errorf("the file has %q, %v", text, err)
	}
}

// forwarded returns the status of a check for a client's address.
func forwarded(t *testing.T, g *gateway, address string) int {
	t.Helper()
	request := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), "GET", "http://gateway/check/api", nil))
	request.Header.Set("X-Forwarded-For", address)
	response := must[*http.Response](t)(g.client(nil).Do(request))
	_ = response.Body.Close()
	return response.StatusCode
}

func TestWrongUse(t *testing.T) {
	t.Parallel()
	policies := write(t, "policies.yaml", policyFile)
	for _, tt := range []struct {
		options process.Options
		want    string
	}{
		{process.Options{Redis: "http://x"}, "--redis: the URL "},
		{process.Options{Redis: "redis://user:secret@h:x"}, "--redis: the URL "},
		{process.Options{Dev: true, Timeout: -1}, "--timeout -1ns is not above 0; give one such as 15ms"},
		{process.Options{Policies: []string{policies}}, "--policies " + policies + " is for --deploy and --dev; add one of them, or leave it out"},
		{process.Options{Dev: true, Policies: []string{"none.yaml"}}, "none.yaml"},
		{process.Options{Dev: true, Policies: []string{policies, write(t, "second.yaml", policyFile)}}, "second.yaml:"},
		{process.Options{Dev: true, Batches: "100"}, `--batches "100" is not of the form n,ttl; write 2 units or more and a time of 1ms or more, as in 100,100ms`},
		{process.Options{Dev: true, Batches: "x,1s"}, `--batches "x,1s" is not`},
		{process.Options{Dev: true, Batches: "10,1"}, `--batches "10,1" is not`},
		{process.Options{Dev: true, Batches: "1,1s"}, `--batches "1,1s" is not`},
		{process.Options{Dev: true, Batches: "2,1us"}, `--batches "2,1us" is not`},
		{process.Options{Dev: true, TrustedProxies: []string{"10.0.0"}}, `--trusted-proxies: `},
		{process.Options{Dev: true, EnvoyConfig: "/none"}, "/none"},
		{process.Options{Dev: true, GRPC: "nowhere"}, "--grpc nowhere: "},
		{process.Options{Dev: true, HTTP: "127.0.0.1:99999"}, "--http 127.0.0.1:99999: "},
		{process.Options{Dev: true, HTTP: "unix:"}, `--http "unix:" names no port; write an address such as 127.0.0.1:8080, or unix:/path`},
		{process.Options{Dev: true, HTTP: "unix:/none/socket"}, "--http unix:/none/socket: "},
	} {
		fails(t, tt.options, tt.want)
	}
	t.Run("secret", func(t *testing.T) {
		err := process.Run(t.Context(), process.Options{Redis: "redis://user:secret@h:x", Timeout: 1}, nil)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v", err)
		}
	})
}

// TestSlowClients checks that slow clients, and clients that stop in the middle of a request, are
// cut off in time, and that other clients are served meanwhile.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	g := start(t, process.Options{Dev: true, Policies: []string{write(t, "policies.yaml", policyFile)}})
	g.ready(t)
	var wait sync.WaitGroup
	for _, begun := range []struct {
		addr net.Addr
		text string
	}{
		{g.http, ""},
		{g.http, "GET /check/api HTTP/1.1\r\nHost: x\r\nX: "},
		{g.http, "POST /v1/take HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"},
		{g.grpc, ""},
		{g.grpc, "PRI * HTTP/2.0\r\n"},
	} {
		conn := must[net.Conn](t)(net.Dial(begun.addr.Network(), begun.addr.String()))
		t.Cleanup(func() { _ = conn.Close() })
		must[int](t)(fmt.Fprint(conn, begun.text))
		wait.Go(func() { _, _ = io.Copy(io.Discard, conn) }) // reads until the gateway ends the connection
	}
	if status, body := g.get(t, "/check/api"); status != http.StatusOK {
		t.Errorf("/check: %d %s", status, body)
	}
	wait.Wait()
}

// TestNoRedirects checks that no path is redirected: a proxy needs a decision or an error.
func TestNoRedirects(t *testing.T) {
	g := start(t, process.Options{Redis: "redis://" + server(t).Addr()})
	for path, want := range map[string]int{
		"//check/api/address": 404, "/./check/api": 404, "/check/../x": 400, "/check/./api": 400, "/check/api/../x": 400, "/x/../check/api": 404,
		"/check": 404, "/deny403/check": 404, "/deny403//check/api": 404, "/v1": 404, "/v1//take": 404, "/v1/../check/api": 404, "/healthz/": 404, "/": 404,
		"/check//api": 400, "/check/api//address": 200, "/%63heck/api": 400,
	} {
		conn := must[net.Conn](t)(net.Dial("tcp", g.http.String()))
		if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n"); err != nil { // written by hand, because package http would clean the path
			t.Fatal(err)
		}
		answer := must[[]byte](t)(io.ReadAll(conn))
		if !strings.HasPrefix(string(answer), fmt.Sprintf("HTTP/1.1 %d ", want)) {
			t.Errorf("%s: %s, want %d", path, answer, want)
		}
		_ = conn.Close()
	}
}
