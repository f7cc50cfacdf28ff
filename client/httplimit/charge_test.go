package httplimit_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/httplimit"
)

const peer = "api|address=192.0.2.1"

// charging is a handler that is charged cost and corrects that.
func charging(t *testing.T, limiter *client.Client, limit client.Limit, cost int64, correct func(context.Context, *httplimit.Charge)) http.Handler {
	t.Helper()
	return newHandler(t, limiter, limit, httplimit.Address(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		correct(r.Context(), httplimit.ChargeOf(r.Context(), "api"))
		w.WriteHeader(http.StatusOK)
	}), httplimit.WithRequest(func(_ *http.Request, req *client.Request) error { req.Costs = []int64{cost}; return nil }))
}

func TestRefund(t *testing.T) {
	limiter, _ := newLimiter(t)
	handler := charging(t, limiter, "100/d", 10, func(ctx context.Context, charge *httplimit.Charge) {
		if err := charge.Refund(ctx, 7); err != nil || charge.Result().Remaining != 97 {
			t.Errorf("%v, %+v", err, charge.Result())
		}
		for _, n := range []int64{4, -1} {
			if err := charge.Refund(ctx, n); err == nil || !strings.Contains(err.Error(), "where the request is charged 3; give from 0 to that") {
				t.Errorf("a refund of %d: %v", n, err)
			}
		}
	})
	response := serve(handler, get("/"))
	checkField(t, response, "RateLimit", `"api";r=97;t=2592`)
	checkField(t, response, "RateLimit-Policy", `"api";q=100`)
	if got := used(t, limiter, peer); got != 3 {
		t.Errorf("%d are taken, want 3", got)
	}
}

// A key that was blocked meanwhile gets nothing back, and what was not given back may still be.
func TestRefundWhileBlocked(t *testing.T) {
	limiter, _ := newLimiter(t)
	serve(charging(t, limiter, "100/d", 10, func(ctx context.Context, charge *httplimit.Charge) {
		if err := limiter.Block(ctx, time.Hour, peer); err != nil {
			t.Error(err)
		}
		if err := charge.Refund(ctx, 10); err != nil || charge.Result().Allowed {
			t.Errorf("%v, %+v", err, charge.Result())
		}
		if _, err := limiter.Unblock(ctx, peer); err != nil {
			t.Error(err)
		}
		if err := charge.Refund(ctx, 10); err != nil {
			t.Error(err)
		}
	}), get("/"))
	if got := used(t, limiter, peer); got != 0 {
		t.Errorf("%d are taken, want 0", got)
	}
}

func TestMore(t *testing.T) {
	limiter, _ := newLimiter(t)
	handler := charging(t, limiter, "100/d", 10, func(ctx context.Context, charge *httplimit.Charge) {
		if taken, err := charge.More(ctx, 30); err != nil || taken != 30 {
			t.Errorf("%d, %v", taken, err)
		}
		if err := charge.Refund(ctx, 35); err != nil {
			t.Error(err)
		}
		if taken, err := charge.More(ctx, 1000); err != nil || taken != 95 {
			t.Errorf("%d, %v, want the 95 that are left", taken, err)
		}
		if taken, err := charge.More(ctx, 1); err != nil || taken != 0 {
			t.Errorf("%d, %v, want none", taken, err)
		}
		if _, err := charge.More(ctx, -1); err == nil || !strings.Contains(err.Error(), "-1 units more; give a number above 0") {
			t.Error(err)
		}
	})
	checkField(t, serve(handler, get("/")), "RateLimit", `"api";r=0;t=864`)
}

// Of several keys with costs of their own, what every one was charged can be given back; and what is taken more is counted
// under the usage key.
func TestChargeOfSeveralKeys(t *testing.T) {
	limiter, _ := newLimiter(t)
	handler := newHandler(t, limiter, "100/d", httplimit.Address(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		charge := httplimit.ChargeOf(r.Context(), "api")
		if err := charge.Refund(r.Context(), 4); err == nil {
			t.Error("gave back more than one of the keys was charged")
		}
		if err := charge.Refund(r.Context(), 3); err != nil {
			t.Error(err)
		}
		if taken, err := charge.More(r.Context(), 5); err != nil || taken != 5 {
			t.Errorf("%d, %v", taken, err)
		}
	}), httplimit.WithRequest(func(_ *http.Request, req *client.Request) error {
		req.Keys, req.Limits = append(req.Keys, "bytes"), append(req.Limits, "100/d")
		req.Costs, req.UsageKey = []int64{3, 10}, "usage"
		return nil
	}))
	serve(handler, get("/"))
	if requests, bytes := used(t, limiter, peer), used(t, limiter, "bytes"); requests != 5 || bytes != 12 {
		t.Errorf("%d and %d are taken, want 5 and 12", requests, bytes)
	}
	if usage := must[client.Usage](t)(limiter.Usage(t.Context(), "usage")); usage.Allowed != 2 {
		t.Errorf("%+v, want 2 calls", usage)
	}
}

// With UpTo the request is charged what it got.
func TestChargeOfUpTo(t *testing.T) {
	limiter, _ := newLimiter(t)
	handler := newHandler(t, limiter, "100/d", httplimit.Address(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		charge := httplimit.ChargeOf(r.Context(), "api")
		if taken := charge.Result().Taken; taken != 100 {
			t.Errorf("taken %d", taken)
		}
		if err := charge.Refund(r.Context(), 101); err == nil {
			t.Error("gave back more than was taken")
		}
		if err := charge.Refund(r.Context(), 100); err != nil {
			t.Error(err)
		}
	}), httplimit.WithRequest(func(_ *http.Request, req *client.Request) error {
		req.Costs, req.UpTo = []int64{150}, true
		return nil
	}))
	serve(handler, get("/"))
	if got := used(t, limiter, peer); got != 0 {
		t.Errorf("%d are taken, want 0", got)
	}
}

// A handler works the same where nothing limits it, and each of two middlewares has its own charge.
func TestChargeOf(t *testing.T) {
	limiter, _ := newLimiter(t)
	none := httplimit.ChargeOf(t.Context(), "api")
	taken, err := none.More(t.Context(), 5)
	if none != nil || taken != 0 || err != nil || none.Refund(t.Context(), 5) != nil || none.Result().Allowed {
		t.Errorf("%v %d %v", none, taken, err)
	}
	inner := charging(t, limiter, "100/d", 10, func(ctx context.Context, charge *httplimit.Charge) {
		all := httplimit.ChargeOf(ctx, "all")
		if charge.Result().Limit != 100 || all.Result().Limit != 50 {
			t.Errorf("%+v, %+v", charge.Result(), all.Result())
		}
		if err := all.Refund(ctx, 1); err != nil {
			t.Error(err)
		}
	})
	middleware := must[func(http.Handler) http.Handler](t)(httplimit.New(limiter, "all", "50/h", httplimit.Address()))
	response := serve(middleware(inner), get("/"))
	if got := strings.Join(response.Header["Ratelimit"], ", "); got != `"all";r=50;t=0, "api";r=90;t=8640` {
		t.Error(got)
	}
}

// An error of the limiter changes nothing of the charge.
func TestChargeWithoutADecision(t *testing.T) {
	limiter, server := newLimiter(t)
	serve(charging(t, limiter, "100/d", 10, func(ctx context.Context, charge *httplimit.Charge) {
		before := charge.Result()
		_ = server.Close()
		if err := charge.Refund(ctx, 5); err == nil {
			t.Error("a refund without a server")
		}
		if _, err := charge.More(ctx, 5); err == nil {
			t.Error("more without a server")
		}
		if charge.Result() != before {
			t.Errorf("%+v, want %+v", charge.Result(), before)
		}
	}), get("/"))
}

// A handler that takes the fields away has its way.
func TestFieldsTakenAway(t *testing.T) {
	limiter, _ := newLimiter(t)
	handler := newHandler(t, limiter, "100/d", httplimit.Address(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Del("RateLimit")
		if err := httplimit.ChargeOf(r.Context(), "api").Refund(r.Context(), 1); err != nil {
			t.Error(err)
		}
	}))
	checkField(t, serve(handler, get("/")), "RateLimit", "")
}
