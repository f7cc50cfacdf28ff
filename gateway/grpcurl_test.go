package main

import (
	"context"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	_ "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3" // registers the messages
	_ "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	_ "github.com/ratelimit-functions/ratelimit/gateway/internal/kuadrant"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// grpcurl matches a documented command: its message, and the method.
var grpcurl = regexp.MustCompile(`(?m)^(?:grpcurl -plaintext -d |\(echo )'(\{.*\})'.* 127\.0\.0\.1:8081 (\S+)/(\S+)$`)

// TestGrpcurl sends the requests of the documented commands for grpcurl.
func TestGrpcurl(t *testing.T) {
	var log redistest.Output
	startGatewayLogging(t, &log, "--dev", "--policies", "../examples/policies.yaml")
	conn := must[*grpc.ClientConn](t)(grpc.NewClient(addresses.FindStringSubmatch(log.String())[1], grpc.WithTransportCredentials(insecure.NewCredentials())))
	defer func() { _ = conn.Close() }()
	replies := map[string]string{}
	for _, document := range []string{"../docs/envoy.md", "../docs/reservations.md"} {
		text := string(must[[]byte](t)(os.ReadFile(document)))
		for _, found := range grpcurl.FindAllStringSubmatch(text, -1) {
			message, service, name := found[1], found[2], found[3]
			if made := regexp.MustCompile(`"reservationId":"(\w+)"`).FindStringSubmatch(replies["Reserve"]); made != nil {
				message = strings.Replace(message, "aVC6GQVN5O2LKNB6RFKQ2J7XGTE", made[1], 1)
			}
			replies[name] = send(t, conn, service, name, message)
		}
	}
	for name, want := range map[string]string{
		"ShouldRateLimit": blocks(t, "../docs/envoy.md", "Each service with grpcurl", "json")[0],
		"CheckRateLimit":  `{"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"requestsPerUnit":20,"name":"api"},"limitRemaining":20,"durationUntilReset":"0s"}]}`,
		"Report":          `{"overallCode":"OK"}`,
		"Commit":          `{"reservationReleased":true}`,
	} {
		if !same(t, replies[name], want) {
			t.Errorf("%s returns %s, want %s", name, replies[name], want)
		}
	}
	for name, want := range map[string]string{"Reserve": `"code":"OK"`, "StreamRateLimitQuotas": `"maxTokens":3,`} {
		if !strings.Contains(replies[name], want) {
			t.Errorf("%s returns %s, want %s", name, replies[name], want)
		}
	}
}

// send sends a message in JSON, and returns the first reply.
func send(t *testing.T, conn *grpc.ClientConn, service, name, message string) string {
	t.Helper()
	descriptor := must[protoreflect.Descriptor](t)(protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service)))
	method := descriptor.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(name))
	in, out := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
	require(t, protojson.Unmarshal([]byte(message), in))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream := must[grpc.ClientStream](t)(conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: method.IsStreamingClient(), ServerStreams: method.IsStreamingServer()}, "/"+service+"/"+name))
	require(t, stream.SendMsg(in))
	require(t, stream.RecvMsg(out))
	reply := must[[]byte](t)(protojson.Marshal(out))
	return strings.ReplaceAll(strings.ReplaceAll(string(reply), ": ", ":"), ", ", ",")
}

// same reports whether two texts are the same JSON.
func same(t *testing.T, a, b string) bool {
	var x, y any
	require(t, json.Unmarshal([]byte(a), &x))
	require(t, json.Unmarshal([]byte(b), &y))
	return reflect.DeepEqual(x, y)
}
