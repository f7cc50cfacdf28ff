package grpclimit_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/grpclimit"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// closed is a layer that denies in place of a server, and does not say for how long.
type closed struct{}

func (closed) Take(context.Context, client.Request) (client.Result, error) {
	return client.Result{Source: "fallback"}, nil
}

func TestDenialsOfLayers(t *testing.T) {
	limit := redistest.Must[*grpclimit.Interceptor](t)(grpclimit.New(closed{}, "api", "5/m", grpclimit.Peer()))
	_, err := limit.Unary(from(t, "192.0.2.1:1234"), nil, &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}, func(context.Context, any) (any, error) {
		t.Error("the call was handled")
		return nil, nil
	})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("%v, want Unavailable", err)
	}
}
