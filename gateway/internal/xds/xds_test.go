package xds_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/xds"
)

func TestSets(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		time.Sleep(time.Minute) // a server that has nothing for the node says nothing
		if r := b.last(); r.GetNode().GetId() != "me" || r.TypeUrl != xds.TypeURL || r.VersionInfo != "" || b.server.Streams() != 1 {
			t.Fatalf("%d streams, request %v", b.server.Streams(), r)
		}
		b.server.Set("1", config("a"), config("b"))
		time.Sleep(time.Second)
		b.got(t, "a+b")
		if r := b.last(); r.VersionInfo != "1" || r.ResponseNonce != "1" || r.ErrorDetail != nil {
			t.Errorf("%v is no ACK of 1", r)
		}
		b.server.Set("2", config("b")) // a is gone
		time.Sleep(time.Second)
		b.got(t, "a+b", "b")
		b.server.Set("3", config("b")) // nothing changes
		time.Sleep(time.Second)
		b.got(t, "a+b", "b")
		if r := b.last(); r.VersionInfo != "3" || r.ErrorDetail != nil {
			t.Errorf("%v is no ACK of 3", r)
		}
		b.server.Set("4")
		time.Sleep(time.Second)
		b.got(t, "a+b", "b", "")
	})
}

// TestRefused checks that refused resources get a NACK with the reason, once per answer, and that the
// next good ones are used.
func TestRefused(t *testing.T) {
	wrong := func(list ...*anypb.Any) *discovery.DiscoveryResponse {
		return &discovery.DiscoveryResponse{VersionInfo: "bad", TypeUrl: xds.TypeURL, Resources: list}
	}
	for _, tt := range []struct {
		answer *discovery.DiscoveryResponse
		want   string
	}{
		{wrong(&anypb.Any{TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster"}), `resource 1 has the type "type.googleapis.com/envoy.config.cluster.v3.Cluster"; send ` + xds.TypeURL},
		{wrong(&anypb.Any{TypeUrl: xds.TypeURL, Value: []byte("garbage")}), "resource 1 cannot be read: proto"},
		{wrong(&anypb.Any{TypeUrl: xds.TypeURL, Value: []byte{0x0a, 1, 0xff}}), "resource 1 cannot be read: string field contains invalid UTF-8"},
		{wrong(nil, nil), `resource 1 has the type ""`},
	} {
		run(t, func(t *testing.T, b *bed) {
			b.server.Set("1", config("a"))
			time.Sleep(time.Second)
			b.server.Send(tt.answer)
			time.Sleep(time.Minute)
			if r := b.last(); r.VersionInfo != "1" || r.ResponseNonce != "2" || !strings.Contains(r.GetErrorDetail().GetMessage(), tt.want) {
				t.Errorf("%v; want a NACK with %s", r, tt.want)
			}
			if n := len(b.server.Requests()); n != 3 || strings.Count(b.log.String(), "were refused") != 1 {
				t.Errorf("%d requests", n)
			}
			b.got(t, "a")
			b.server.Set("2", config("c"))
			time.Sleep(time.Second)
			b.got(t, "a", "c")
		})
	}
	run(t, func(t *testing.T, b *bed) { // what Use refuses
		b.fail = errors.New(strings.Repeat("x", 1<<20))
		b.server.Set("1", config("a"))
		time.Sleep(time.Second)
		if r := b.last(); r.VersionInfo != "" || len(r.GetErrorDetail().GetMessage()) > 5000 || r.GetErrorDetail().GetCode() == 0 {
			t.Errorf("%d bytes, %s", len(r.GetErrorDetail().GetMessage()), r.VersionInfo)
		}
	})
}

// TestRefusedAgainAndAgain checks that a server that answers each NACK with the same set gets a NACK a
// second, and that the log says it once.
func TestRefusedAgainAndAgain(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.fail = errors.New("no")
		for range 1000 {
			b.server.Set("1", config("a")) // each counts as a change
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		if n := len(b.server.Requests()); n > 13 || strings.Count(b.log.String(), "were refused") != 1 {
			t.Errorf("%d requests in 10 s\n%s", n, b.log)
		}
	})
}

// TestFlapping checks that sets that change all the time are used at a bounded rate, and the last one
// in the end.
func TestFlapping(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		for i := range 10_000 {
			b.server.Set(fmt.Sprint(i), config(fmt.Sprintf("n%d", i%7)))
			time.Sleep(time.Millisecond)
		}
		b.server.Set("last", config("last"))
		time.Sleep(time.Minute)
		if r := b.last(); r.VersionInfo != "last" {
			t.Errorf("%v", r)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if n := len(b.used); n > 110 || b.used[n-1] != "last" {
			t.Errorf("%d sets used, %q in the end", n, b.used[n-1])
		}
	})
}

// TestLargeSet checks that an answer may be larger than gRPC's default of 4 MiB, but not larger than the
// gateway's bound.
func TestLargeSet(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		large := config("large")
		for i := range 100_000 {
			large.Descriptors = append(large.Descriptors, &rlsconf.RateLimitDescriptor{Key: "user", Value: fmt.Sprintf("%050d", i), RateLimit: &rlsconf.RateLimitPolicy{Unit: 1, RequestsPerUnit: 1}})
		}
		b.server.Set("1", large)
		time.Sleep(time.Second)
		b.got(t, "large")
		for range 10 {
			large.Descriptors = append(large.Descriptors, large.Descriptors[:100_000]...)
		}
		b.server.Set("2", large)
		time.Sleep(time.Second)
		b.server.Set("3", config("small"))
		time.Sleep(time.Minute)
		b.got(t, "large", "small")
		if !strings.Contains(b.log.String(), "received message larger than max") {
			t.Errorf("%s", b.log)
		}
	})
}

// TestRestarts checks that the client comes back to a server that restarts, and asks without a version:
// a new server may count from 1 again.
func TestRestarts(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.server.Set("1", config("a"))
		time.Sleep(time.Second)
		b.stop()
		time.Sleep(10 * time.Minute)
		b.got(t, "a")
		b.mu.Lock()
		dials := b.dials
		b.mu.Unlock()
		if dials < 15 || dials > 60 { // 15 to 30 s apart
			t.Errorf("%d connections in 10 minutes", dials)
		}
		if n := strings.Count(b.log.String(), "no stream from the xDS server"); n > 3 {
			t.Errorf("the log says %d times that there is no stream", n)
		}
		asked := len(b.server.Requests())
		b.server.Set("1", config("b"))
		b.start()
		time.Sleep(31 * time.Second)
		b.got(t, "a", "b")
		if r := b.server.Requests()[asked]; r.VersionInfo != "" || r.ResponseNonce != "" {
			t.Errorf("%v; want no version", r)
		}
		for range 100 { // a stream that ends after each answer
			b.server.End()
			time.Sleep(time.Second)
		}
		if n := b.server.Streams(); n < 50 || n > 210 {
			t.Errorf("%d streams in 100 s", n)
		}
		b.got(t, "a", "b") // the same set is not loaded again
	})
}

// TestHalfOpen checks that a connection on which nothing arrives any more is given up within the time
// that docs/envoy.md names.
func TestHalfOpen(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.server.Set("1", config("a"))
		time.Sleep(time.Second)
		b.mu.Lock()
		close(b.conns[0].frozen)
		b.mu.Unlock()
		b.server.Set("2", config("b"))
		time.Sleep(5 * time.Minute)
		b.got(t, "a")
		time.Sleep(2 * time.Minute)
		b.got(t, "a", "b")
	})
}

// TestSilentPort checks that a port that accepts connections and says nothing is left after 5 s.
func TestSilentPort(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.stop()
		b.mu.Lock()
		b.port = bufconn.Listen(1 << 10)
		silent := b.port
		b.mu.Unlock()
		go func() {
			for {
				if _, err := silent.Accept(); err != nil {
					return
				}
			}
		}()
		time.Sleep(time.Minute)
		b.server.Set("1", config("a"))
		b.start()
		time.Sleep(40 * time.Second)
		b.got(t, "a")
		_ = silent.Close()
	})
}

func TestOtherTypesAreIgnored(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.server.Send(&discovery.DiscoveryResponse{TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster"})
		time.Sleep(10 * time.Second)
		if n := len(b.server.Requests()); n != 1 {
			t.Errorf("%d requests", n)
		}
		b.server.Set("1", config("a"))
		time.Sleep(2 * time.Second)
		b.got(t, "a")
	})
}

func TestOptions(t *testing.T) {
	empty := t.TempDir() + "/empty.pem"
	for _, tt := range []struct {
		options xds.Options
		want    string
	}{
		{xds.Options{Server: "control", Node: "me"}, `--xds "control" is not HOST:PORT; write an address such as`},
		{xds.Options{Server: ":18001", Node: "me"}, `--xds ":18001" is not HOST:PORT`},
		{xds.Options{Server: "http://control:18001", Node: "me"}, `is not HOST:PORT`},
		{xds.Options{Server: "control:xds", Node: "me"}, `is not HOST:PORT`},
		{xds.Options{Server: "control:18001"}, "--xds-node is empty"},
		{xds.Options{Server: "control:18001", Node: "me", TLS: xds.TLS{CA: empty}}, "are for --xds-tls; add it"},
		{xds.Options{Server: "control:18001", Node: "me", TLS: xds.TLS{On: true, Cert: empty}}, "--xds-tls-cert and --xds-tls-key belong together"},
		{xds.Options{Server: "control:18001", Node: "me", TLS: xds.TLS{On: true, Cert: empty, Key: empty}}, "--xds-tls-cert and --xds-tls-key: open " + empty},
		{xds.Options{Server: "control:18001", Node: "me", TLS: xds.TLS{On: true, CA: empty}}, "--xds-tls-ca: open " + empty},
	} {
		if _, err := xds.New(tt.options); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v; want %s", err, tt.want)
		}
	}
	if _, err := xds.New(xds.Options{Server: "[::1]:18001", Node: "me", TLS: xds.TLS{On: true}}); err != nil {
		t.Error(err)
	}
}
