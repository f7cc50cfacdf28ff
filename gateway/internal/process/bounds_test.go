package process_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	healthapi "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	pb "google.golang.org/protobuf/proto"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/process"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestStreamsAreBounded checks that a gateway refuses more gRPC streams than it has room for, says
// so, and accepts new ones when others end.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	g := start(t, process.Options{Dev: true, Connections: 3, Policies: []string{write(t, "policies.yaml", policyFile)}})
	g.ready(t)
	const most = 6
	conn := g.dial(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	watch := func() error {
		stream, err := healthapi.NewHealthClient(conn).Watch(ctx, &healthapi.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	opened := 0
	var err error
	for ; err == nil && opened <= most; opened++ { // the stream of g.ready may not have ended yet
		err = watch()
	}
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "6 requests are in progress, the most; raise --max-connections") {
		t.Fatalf("after %d streams: %v", opened, err)
	}
	redistest.Eventually(t, "a request for a decision is refused", func() bool {
		_ = watch() // takes the place of a stream that has ended
		_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), question)
		return status.Code(err) == codes.ResourceExhausted
	})
	g.says(t, `level=ERROR msg="no decision" source=grpc error="too many requests in progress" most=6`)
	if _, text := g.get(t, "/metrics"); !strings.Contains(text, `ratelimit_gateway_requests_total{decision="error",name="unknown",source="grpc"}`) {
		t.Errorf("refused requests are not counted:\n%s", text)
	}
	cancel()
	redistest.Eventually(t, "there is room again", func() bool {
		_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), question)
		return err == nil
	})
}

// TestSettings checks the bounds that the gateway tells gRPC clients. A client that keeps to them
// waits before it opens more streams.
func TestSettings(t *testing.T) {
	t.Parallel()
	g := start(t, process.Options{Dev: true})
	conn := must[net.Conn](t)(net.Dial("tcp", g.grpc.String()))
	defer func() { _ = conn.Close() }()
	must[int](t)(io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")) // with an empty SETTINGS frame
	frame := make([]byte, 9)
	must[int](t)(io.ReadFull(conn, frame))
	settings := make([]byte, int(frame[1])<<8|int(frame[2]))
	must[int](t)(io.ReadFull(conn, settings))
	got := map[uint16]uint32{}
	for ; len(settings) >= 6; settings = settings[6:] {
		got[binary.BigEndian.Uint16(settings)] = binary.BigEndian.Uint32(settings[2:])
	}
	const maxConcurrentStreams, initialWindowSize, maxHeaderListSize = 3, 4, 6
	if frame[3] != 4 || got[maxConcurrentStreams] != 1000 || got[initialWindowSize] != 64<<10 || got[maxHeaderListSize] != 64<<10 {
		t.Errorf("frame %v, settings %v", frame, got)
	}
}

// TestConnectionsEnd checks that the gateway closes gRPC connections that are idle or old, the latter with
// their streams, and that its bounds are those of docs/gateway.md.
func TestConnectionsEnd(t *testing.T) {
	t.Parallel()
	if got := process.Lifetimes; got.MaxConnectionIdle != 2*time.Minute || got.MaxConnectionAge != 30*time.Minute || got.MaxConnectionAgeGrace != 10*time.Second || got.Time != time.Minute {
		t.Errorf("%+v", got)
	}
	const soon = 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // without the bounds, the connections would stay
	defer cancel()
	idle := start(t, process.Options{Dev: true}.WithConnections(keepalive.ServerParameters{MaxConnectionIdle: soon})).dial(t, nil)
	must[*healthapi.HealthCheckResponse](t)(healthapi.NewHealthClient(idle).Check(ctx, &healthapi.HealthCheckRequest{}))
	for state := connectivity.Ready; state != connectivity.Idle; state = idle.GetState() {
		if !idle.WaitForStateChange(ctx, state) {
			t.Fatal("an idle connection is not closed")
		}
	}
	old := start(t, process.Options{Dev: true}.WithConnections(keepalive.ServerParameters{MaxConnectionAge: soon, MaxConnectionAgeGrace: soon})).dial(t, nil)
	watch, err := healthapi.NewHealthClient(old).Watch(ctx, &healthapi.HealthCheckRequest{})
	for err == nil {
		_, err = watch.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("the stream of an old connection ends with %v", err)
	}
}

// TestConnectionsAreBounded checks that each port closes connections at once if too many are open.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	g := start(t, process.Options{Dev: true, Connections: 2, Admin: "127.0.0.1:0"})
	for _, addr := range []net.Addr{g.grpc, g.http, g.admin} {
		var open []net.Conn
		redistest.Eventually(t, "a connection is closed at once", func() bool {
			conn := must[net.Conn](t)(net.Dial(addr.Network(), addr.String()))
			open = append(open, conn)
			if len(open) <= 2 {
				return false
			}
			_, err := io.Copy(io.Discard, conn)
			_ = err // an end of file or a reset, depending on the moment
			return true
		})
		if len(open) != 3 {
			t.Errorf("%s: %d connections", addr, len(open))
		}
		for _, conn := range open {
			_ = conn.Close()
		}
	}
	g.says(t, "connections are closed at once, because too many are open")
	redistest.Eventually(t, "the port serves again", func() bool {
		status, _, err := g.request(t.Context(), "GET", "/healthz", "")
		return err == nil && status == http.StatusOK
	})
}

// TestBigRequests checks that larger requests and headers than the bounds are refused.
func TestBigRequests(t *testing.T) {
	t.Parallel()
	g := start(t, process.Options{Dev: true, Policies: []string{write(t, "policies.yaml", policyFile)}})
	g.ready(t)
	client := rls.NewRateLimitServiceClient(g.dial(t, nil))
	big := pb.CloneOf(question)
	big.Descriptors[0].Entries[0].Value = strings.Repeat("x", 256<<10)
	if _, err := client.ShouldRateLimit(t.Context(), big); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a large request: %v", err)
	}
	big.Descriptors[0].Entries[0].Value = strings.Repeat("x", 255<<10)
	if _, err := client.ShouldRateLimit(t.Context(), big); status.Code(err) == codes.ResourceExhausted {
		t.Errorf("a request below the bound: %v", err)
	}
	for size, want := range map[int]int{60 << 10: http.StatusOK, 80 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		request := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), "GET", "http://gateway/check/api", nil))
		request.Header.Set("X", strings.Repeat("x", size))
		response := must[*http.Response](t)(g.client(nil).Do(request))
		if _ = response.Body.Close(); response.StatusCode != want {
			t.Errorf("a header of %d bytes: %d, want %d", size, response.StatusCode, want)
		}
	}
}

// TestStreamsWithoutARequest checks that a gRPC stream whose client sends no request is ended in
// time.
func TestStreamsWithoutARequest(t *testing.T) {
	t.Parallel()
	g := start(t, process.Options{Dev: true, Timeout: time.Millisecond})
	stream := must[grpc.ClientStream](t)(g.dial(t, nil).NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, rls.RateLimitService_ShouldRateLimit_FullMethodName))
	if err := stream.RecvMsg(new(rls.RateLimitResponse)); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v", err)
	}
}

// TestSlowDecisions checks that a decision may take as long as --timeout says, which is more than the
// time that a client has to send a request.
func TestSlowDecisions(t *testing.T) {
	t.Parallel()
	r := newRelay(t, server(t).Addr())
	g := start(t, process.Options{Redis: "redis://" + r.addr, Timeout: time.Minute})
	g.ready(t)
	r.hold(true)
	time.AfterFunc(5500*time.Millisecond, func() { r.hold(false) })
	if status, body := g.get(t, "/check/api"); status != http.StatusOK {
		t.Errorf("/check: %d %s", status, body)
	}
}

// rawCodec sends requests that are bytes.
type rawCodec struct{ encoding.CodecV2 }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// TestBytes checks that the gRPC port accepts strings that are not UTF-8.
func TestBytes(t *testing.T) {
	t.Parallel()
	g := start(t, process.Options{Dev: true, Policies: []string{write(t, "policies.yaml", policyFile)}})
	g.ready(t)
	request := bytes.ReplaceAll(must[[]byte](t)(pb.Marshal(question)), []byte("ann"), []byte("a\xffn"))
	response := new(rls.RateLimitResponse)
	err := g.dial(t, nil).Invoke(t.Context(), rls.RateLimitService_ShouldRateLimit_FullMethodName, request, response, grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2(proto.Name)}))
	if err != nil || response.OverallCode != rls.RateLimitResponse_OK || !bytes.Contains(request, []byte("\xff")) {
		t.Errorf("%v, %v", response, err)
	}
}

// TestAdmin checks that only the admin port resets limits, that it needs its token, and that a port
// which other machines can reach has one.
func TestAdmin(t *testing.T) {
	t.Parallel()
	const reset = `{"keys":["api|address=127.0.0.1"]}`
	token := write(t, "token", " a secret of operators\n")
	g := start(t, process.Options{Dev: true, Admin: "127.0.0.1:0", AdminTokenFile: token, Policies: []string{write(t, "policies.yaml", policyFile)}})
	g.ready(t)
	if code, body := g.send(t, "POST", "/v1/reset", reset); code != http.StatusForbidden || !strings.Contains(body, "--admin") {
		t.Errorf("on the data port: %d %s", code, body)
	}
	for authorization, want := range map[string]int{"": 401, "Bearer x": 401, "Bearer a secret of operators": 200} {
		request := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), "POST", "http://"+g.admin.String()+"/v1/reset", strings.NewReader(reset)))
		request.Header.Set("Authorization", authorization)
		response := must[*http.Response](t)((&http.Transport{DisableKeepAlives: true}).RoundTrip(request))
		if _ = response.Body.Close(); response.StatusCode != want {
			t.Errorf("on the admin port with %q: %d, want %d", authorization, response.StatusCode, want)
		}
	}
	if start(t, process.Options{Dev: true}).admin != nil {
		t.Error("there is an admin port without --admin")
	}
	start(t, process.Options{Dev: true, Admin: "127.0.0.1:0"}).ready(t)
	start(t, process.Options{Dev: true, Admin: "0.0.0.0:0", AdminToken: "a secret of operators"}).says(t, "the token of the admin port travels unencrypted")
	for _, tt := range []struct {
		options process.Options
		want    string
	}{
		{process.Options{Dev: true, Admin: "0.0.0.0:0"}, "--admin 0.0.0.0:0 can be reached from other machines, and anyone there could reset limits; give --admin-token-file or RATELIMIT_ADMIN_TOKEN, or write 127.0.0.1:"},
		{process.Options{Dev: true, Admin: ":0", AdminToken: " \n"}, "can be reached from other machines"},
		{process.Options{Dev: true, Admin: "nowhere"}, "--admin nowhere: "},
		{process.Options{Dev: true, AdminTokenFile: token}, "--admin-token-file is for the admin port; give --admin"},
		{process.Options{Dev: true, Admin: "127.0.0.1:0", AdminTokenFile: "/none"}, "--admin-token-file: open /none: "},
		{process.Options{Dev: true, Admin: "127.0.0.1:0", AdminTokenFile: write(t, "empty", "\n")}, "empty: the token has 0 characters, which can be guessed; give at least 16"},
		{process.Options{Dev: true, Admin: "127.0.0.1:0", AdminToken: "secret"}, "RATELIMIT_ADMIN_TOKEN: the token has 6 characters"},
		{process.Options{Dev: true, Timeout: time.Minute + 1}, "--timeout 1m0.000000001s is above 1m0s, the most"},
		{process.Options{Dev: true, Connections: -1}, "--max-connections -1 is not above 0"},
	} {
		fails(t, tt.options, tt.want)
	}
}

// TestHosts checks that a page which gives its own name the gateway's address cannot use the API,
// and that proxies may send any name to /check.
func TestHosts(t *testing.T) {
	t.Parallel()
	g := start(t, process.Options{Dev: true, Policies: []string{write(t, "policies.yaml", policyFile)}})
	g.ready(t)
	for _, tt := range []struct {
		method, path, host string
		want               int
	}{
		{"GET", "/check/api", "attacker.example", 200},
		{"POST", "/check/api", "attacker.example", 200},
		{"GET", "/healthz", "attacker.example", 200},
		{"GET", "/metrics", "ratelimit-gateway.default.svc:8080", 200},
		{"POST", "/v1/take", "attacker.example", 403},
		{"POST", "/v1/take", "gateway", 200},
		{"POST", "/v1/take", g.http.String(), 200},
	} {
		request := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), tt.method, "http://"+g.http.String()+tt.path, strings.NewReader(`{"keys":["a"],"limits":["9/m"]}`)))
		request.Host = tt.host
		response := must[*http.Response](t)((&http.Transport{DisableKeepAlives: true}).RoundTrip(request))
		if _ = response.Body.Close(); response.StatusCode != tt.want {
			t.Errorf("%s %s at %s: %d, want %d", tt.method, tt.path, tt.host, response.StatusCode, tt.want)
		}
	}
}

// TestSaidAtStart checks that the log names the port of the embedded server, which asks for no
// password, and that there is no reflection unless it is asked for.
func TestSaidAtStart(t *testing.T) {
	t.Parallel()
	for _, with := range []bool{false, true} {
		g := start(t, process.Options{Dev: true, Reflection: with})
		g.says(t, `the embedded server asks for no password: every process of this machine can connect to it" addr=127.0.0.1:`)
		stream := must[grpc.ClientStream](t)(g.dial(t, nil).NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"))
		_ = stream.CloseSend()
		if err := stream.RecvMsg(new(healthapi.HealthCheckResponse)); (status.Code(err) == codes.Unimplemented) == with {
			t.Error(fmt.Sprint(with, err))
		}
	}
}
