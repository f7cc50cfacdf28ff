package grpclimit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/charge"
	"github.com/ratelimit-functions/ratelimit/client/grpclimit"
	"github.com/ratelimit-functions/ratelimit/client/grpclimit/internal/grpctest"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
)

// acme is a Key that counts all calls under "tenant=acme".
var acme = grpclimit.Func("tenant", func(context.Context, string) (string, error) { return "acme", nil })

var unary = &grpc.UnaryServerInfo{FullMethod: method}

// serve serves a call on s. The handler passes the call's charge to the function correct.
func serve(t *testing.T, s *grpclimit.Interceptor, correct func(context.Context, *charge.Charge)) error {
	t.Helper()
	_, err := s.Unary(t.Context(), nil, unary, func(ctx context.Context, _ any) (any, error) {
		correct(ctx, charge.Of(ctx, "api"))
		return nil, nil
	})
	return err
}

// ten charges each call 10 units.
var ten = grpclimit.WithRequest(func(_ context.Context, _ string, req *client.Request) error {
	req.Costs = []int64{10}
	return nil
})

// A handler gives back unused units, and charges additional ones, even beyond the limit. The next
// calls are denied until the additional units are paid off.
func TestCharge(t *testing.T) {
	limiter, server := grpctest.NewLimiter(t)
	s := must[*grpclimit.Interceptor](t)(grpclimit.New(limiter, "api", "100/d", acme, ten))
	limitertest.Check(t, serve(t, s, func(ctx context.Context, c *charge.Charge) {
		if err := c.Refund(ctx, 11); err == nil {
			t.Error("gave back more than the call was charged")
		}
		limitertest.Check(t, c.Refund(ctx, 7))
		if left := c.Result().Remaining; left != 97 {
			t.Errorf("%d units are left, want 97", left)
		}
		if charged, err := c.More(limitertest.Cancelled(ctx), 147); charged != 147 || err != nil {
			t.Errorf("%d, %v, want 147 although 97 are left, and the caller has given up", charged, err)
		}
	}))
	err := serve(t, s, func(context.Context, *charge.Charge) { t.Error("a call in debt is served") })
	grpctest.CheckStatus(t, err, codes.ResourceExhausted, 60*24*time.Hour/100) // until 10 units are available
	server.SetTime(noon.Add(60 * 24 * time.Hour / 100))
	limitertest.Check(t, serve(t, s, func(context.Context, *charge.Charge) {}))
}

// The handler of a stream corrects the charge of its opening. WithPerMessage charges the messages
// separately.
func TestChargeOfStream(t *testing.T) {
	limiter, _ := grpctest.NewLimiter(t)
	s := must[*grpclimit.Interceptor](t)(grpclimit.New(limiter, "api", "100/d", acme, ten, grpclimit.WithPerMessage()))
	limitertest.Check(t, s.Stream(nil, received{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: method}, func(_ any, stream grpc.ServerStream) error {
		c := charge.Of(stream.Context(), "api")
		for range 3 {
			limitertest.Check(t, stream.RecvMsg(nil))
		}
		if err := c.Refund(stream.Context(), 11); err == nil {
			t.Error("gave back more than the opening was charged")
		}
		return c.Refund(stream.Context(), 8)
	}))
	limitertest.WantUsed(t, limiter, "api|tenant=acme", 22)
}

// A call that was not charged on a Redis server has no Charge. Each grpclimit.Interceptor has its own
// Charge.
func TestChargeOf(t *testing.T) {
	limiter, server := grpctest.NewLimiter(t)
	other := must[*grpclimit.Interceptor](t)(grpclimit.New(limiter, "other", "100/d", acme))
	s := must[*grpclimit.Interceptor](t)(grpclimit.New(limiter, "api", "100/d", acme, ten))
	must[any](t)(other.Unary(t.Context(), nil, unary, func(ctx context.Context, _ any) (any, error) {
		return s.Unary(ctx, nil, unary, func(ctx context.Context, _ any) (any, error) {
			limitertest.Check(t, charge.Of(ctx, "other").Refund(ctx, 1))
			return true, nil
		})
	}))
	limitertest.WantUsed(t, limiter, "other|tenant=acme", 0)
	limitertest.WantUsed(t, limiter, "api|tenant=acme", 10)

	uncharged := func(_ context.Context, c *charge.Charge) {
		charged, err := c.More(t.Context(), 5)
		if err := errors.Join(err, c.Refund(t.Context(), 5)); c != nil || charged != 0 || err != nil || c.Result().Allowed {
			t.Errorf("%+v, %d, %v", c, charged, err)
		}
	}
	skipping := must[*grpclimit.Interceptor](t)(grpclimit.New(limiter, "api", "100/d", acme, grpclimit.WithSkip(func(context.Context, string) bool { return true })))
	limitertest.Check(t, serve(t, skipping, uncharged))
	limitertest.Check(t, server.Close())
	limitertest.Check(t, serve(t, s, uncharged))
}
