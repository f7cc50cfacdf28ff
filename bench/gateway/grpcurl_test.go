package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fullstorydev/grpcurl"
	"github.com/jhump/protoreflect/grpcreflect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// startGateway builds the gateway, starts it with policies and a server of its own, and returns the address of
// its gRPC server.
func startGateway(t *testing.T, policies string) (addr string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "gateway")
	if out, err := exec.Command("go", "build", "-o", program, "../../gateway").CombinedOutput(); err != nil {
		t.Fatalf("building the gateway: %v\n%s", err, out)
	}
	cmd := exec.Command(program, "--dev", "--policies", policies, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--timeout", "1m", "--reflection")
	logs, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Wait()); err != nil {
			t.Error(err)
		}
	})
	lines := bufio.NewScanner(logs)
	for lines.Scan() {
		if _, rest, found := strings.Cut(lines.Text(), " grpc="); found {
			go func() { _, _ = io.Copy(io.Discard, logs) }()
			addr, _, _ = strings.Cut(rest, " ")
			return addr
		}
		t.Log(lines.Text())
	}
	t.Fatal("the gateway ended before it listened")
	return ""
}

// TestGRPCurl checks that grpcurl, here as a library, finds the services by reflection, and gets
// decisions without a .proto file.
func TestGRPCurl(t *testing.T) {
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(policies, []byte("policies:\n  api:\n    limit: 1/d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(startGateway(t, policies), grpc.WithTransportCredentials(insecure.NewCredentials()))
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
