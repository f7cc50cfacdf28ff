package grpclimit_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/grpclimit"
	"github.com/ratelimit-functions/ratelimit/client/grpclimit/internal/grpctest"
)

const method = "/shop.Orders/List"

// from returns the context of a call from an address, with metadata. pairs alternates names and
// values.
func from(t testing.TB, address string, pairs ...string) context.Context {
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(pairs...))
	addr := net.Addr(&net.UnixAddr{Net: "unix"})
	if address != "" {
		addr = must[*net.TCPAddr](t)(net.ResolveTCPAddr("tcp", address))
	}
	return peer.NewContext(ctx, &peer.Peer{Addr: addr})
}

func TestKeys(t *testing.T) {
	tenant := func(value string) grpclimit.Key {
		return grpclimit.Func("tenant", func(context.Context, string) (string, error) { return value, nil })
	}
	failing := grpclimit.Func("tenant", func(context.Context, string) (string, error) { return "", errors.New("no database") })
	for _, tt := range []struct {
		name string
		key  grpclimit.Key
		ctx  context.Context
		want string // "" if the call has no key and is denied, "error" if it is allowed without a decision
	}{
		{"IPv4", grpclimit.Peer(), from(t, "203.0.113.7:1234"), "peer=203.0.113.7"},
		{"IPv4 as IPv6", grpclimit.Peer(), from(t, "[::ffff:203.0.113.7]:1234"), "peer=203.0.113.7"},
		{"IPv6", grpclimit.Peer(), from(t, "[2001:db8::1]:1234"), "peer=2001:db8::/64"},
		{"IPv6 zone", grpclimit.Peer(), from(t, "[fe80::1%lo]:1234"), "peer=fe80::/64"},
		{"IPv6 address", grpclimit.PeerNetwork(128), from(t, "[2001:db8::1]:1234"), "peer=2001:db8::1"},
		{"IPv6 network", grpclimit.PeerNetwork(48), from(t, "[2001:db8:1:2::1]:1234"), "peer=2001:db8:1::/48"},
		{"IPv4, IPv6 network", grpclimit.PeerNetwork(64), from(t, "203.0.113.7:1234"), "peer=203.0.113.7"},
		{"no address", grpclimit.Peer(), from(t, ""), "peer=unix"},
		{"method", grpclimit.Method(), from(t, ""), "method=" + method},
		{"metadata", grpclimit.Metadata("X-Api-Key"), from(t, "", "x-api-key", "secret", "x-api-key", "secret"), "metadata:x-api-key~2bb80d537b1da3e38bd30361aa855686"},
		{"different metadata", grpclimit.FirstOf(grpclimit.Metadata("x-api-key"), grpclimit.Peer()), from(t, "", "x-api-key", "secret", "x-api-key", "other"), "differ"},
		{"authorization", grpclimit.Metadata("authorization"), from(t, "", "authorization", "Bearer  T"), "metadata:authorization~21b3ee3f557da4f13da0f2d43f5bc77d"},
		{"no metadata", grpclimit.Metadata("x-api-key"), from(t, ""), ""},
		{"empty metadata", grpclimit.Metadata("x-api-key"), from(t, "", "x-api-key", ""), ""},
		{"function", tenant("a|b{c}%"), from(t, ""), "tenant=a%7Cb%7Bc%7D%25"},
		{"empty", tenant(""), from(t, ""), ""},
		{"long", tenant(strings.Repeat("x", 129)), from(t, ""), "tenant~0ec9eb33e74510bcdd1f2ea55206e82f"},
		{"join", grpclimit.Join(grpclimit.Method(), tenant("a")), from(t, ""), "method=" + method + "|tenant=a"},
		{"join without one", grpclimit.Join(grpclimit.Method(), tenant("")), from(t, ""), ""},
		{"first", grpclimit.FirstOf(tenant(""), tenant("b"), tenant("c")), from(t, ""), "tenant=b"},
		{"first of none", grpclimit.FirstOf(tenant("")), from(t, ""), ""},
		{"first fails", grpclimit.FirstOf(failing, tenant("b")), from(t, ""), "error"},
		{"no peer", grpclimit.Peer(), t.Context(), "error"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limiter, _ := grpctest.NewLimiter(t)
			var asked []string
			failed := false
			s := must[*grpclimit.Interceptor](t)(grpclimit.New(limiter, "api", "1/m", tt.key,
				grpclimit.WithRequest(func(_ context.Context, _ string, req *client.Request) error {
					asked = req.Keys
					return nil
				}),
				grpclimit.WithOnError(func(context.Context, string, error) { failed = true })))
			_, err := s.Unary(tt.ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, nil })
			switch tt.want {
			case "":
				if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "lacks what it is limited by: no ") {
					t.Errorf("error %v, want INVALID_ARGUMENT", err)
				}
			case "differ":
				if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "several different values for the metadata x-api-key; send one") {
					t.Errorf("error %v, want INVALID_ARGUMENT", err)
				}
			case "error":
				if err != nil || !failed {
					t.Errorf("error %v, heard of %v; want a call that is let through without a decision", err, failed)
				}
			default:
				if err != nil || len(asked) != 1 || asked[0] != "api|"+tt.want {
					t.Errorf("asked for %q, error %v; want %q", asked, err, "api|"+tt.want)
				}
			}
		})
	}
}
