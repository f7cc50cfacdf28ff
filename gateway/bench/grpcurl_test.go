package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fullstorydev/grpcurl"
	"github.com/jhump/protoreflect/grpcreflect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	gateway "github.com/ratelimit-functions/ratelimit/gateway/internal/process"
)

// TestGRPCurl checks that grpcurl, here as a library, finds the services by reflection, and gets
// decisions without a .proto file.
func TestGRPCurl(t *testing.T) {
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(policies, []byte("policies:\n  api:\n    limit: 1/d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	listening, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		ended <- gateway.Run(ctx, gateway.Options{
			Dev: true, Policies: []string{policies}, Timeout: time.Minute, IPv6Prefix: 64, Connections: 10, Reflection: true, GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler),
		}, func(grpc, _, _ net.Addr) { listening <- grpc })
	}()
	var addr net.Addr
	select {
	case addr = <-listening:
	case err := <-ended:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient(addr.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	reflection := grpcreflect.NewClientAuto(t.Context(), conn)
	defer reflection.Reset()
	source := grpcurl.DescriptorSourceFromServer(t.Context(), reflection)
	const service = "envoy.service.ratelimit.v3.RateLimitService"
	if got, err := grpcurl.ListServices(source); err != nil || !slices.Contains(got, service) || !slices.Contains(got, "grpc.health.v1.Health") {
		t.Errorf("the services are %q, %v", got, err)
	}
	ask := func(question string) string {
		t.Helper()
		var out strings.Builder
		parser, formatter, err := grpcurl.RequestParserAndFormatter(grpcurl.FormatJSON, source, strings.NewReader(question), grpcurl.FormatOptions{})
		if err != nil {
			t.Fatal(err)
		}
		handler := &grpcurl.DefaultEventHandler{Out: &out, Formatter: formatter}
		err = grpcurl.InvokeRPC(t.Context(), source, conn, service+"/ShouldRateLimit", nil, handler, parser.Next)
		if err == nil {
			err = handler.Status.Err()
		}
		if err != nil {
			t.Fatalf("%s: %v", question, err)
		}
		return out.String()
	}
	question := `{"domain":"web","descriptors":[{"entries":[{"key":"policy","value":"api"},{"key":"user","value":"ann"}]}]}`
	for _, want := range []string{"OK", "OVER_LIMIT"} {
		var got struct {
			OverallCode string
			Statuses    []struct {
				Code         string
				CurrentLimit struct {
					Name            string
					RequestsPerUnit int
				}
				DurationUntilReset string
			}
		}
		text := ask(question)
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.OverallCode != want || len(got.Statuses) != 1 || got.Statuses[0].Code != want ||
			got.Statuses[0].CurrentLimit.Name != "api" || got.Statuses[0].CurrentLimit.RequestsPerUnit != 1 || !strings.HasSuffix(got.Statuses[0].DurationUntilReset, "s") {
			t.Errorf("%v\n%s", err, text)
		}
	}
}
