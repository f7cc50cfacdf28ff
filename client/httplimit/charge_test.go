package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/charge"
	"github.com/ratelimit-functions/ratelimit/client/httplimit"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

const peer = "api|address=192.0.2.1"

// charging returns a handler that charges each request under limit. It then passes the charge to
// the function correct.
func charging(t *testing.T, limiter *client.Client, limit client.Limit, cost int64, correct func(context.Context, *charge.Charge)) http.Handler {
	t.Helper()
	return newHandler(t, limiter, limit, httplimit.Address(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		correct(r.Context(), charge.Of(r.Context(), "api"))
		w.WriteHeader(http.StatusOK)
	}), httplimit.WithRequest(func(_ *http.Request, req *client.Request) error { req.Costs = []int64{cost}; return nil }))
}

func TestRefund(t *testing.T) {
	limiter, _ := newLimiter(t)
	handler := charging(t, limiter, "100/d", 10, func(ctx context.Context, c *charge.Charge) {
		if err := c.Refund(ctx, 7); err != nil || c.Result().Remaining != 97 {
			t.Errorf("%v, %+v", err, c.Result())
		}
		for _, n := range []int64{4, -1} {
			if err := c.Refund(ctx, n); err == nil || !strings.Contains(err.Error(), "where the request is charged 3; give from 0 to that") {
				t.Errorf("a refund of %d: %v", n, err)
			}
		}
	})
	response := serve(handler, get("/"))
	checkField(t, response, "RateLimit", `"api";r=97;t=2592`)
	checkField(t, response, "RateLimit-Policy", `"api";q=100`)
	limitertest.WantUsed(t, limiter, peer, 3)
}

// What remains after a refund of a loan is what the next borrower gets: the pool keeps the part of Floor.
func TestRefundOfALoan(t *testing.T) {
	limiter, _ := newLimiter(t)
	handler := newHandler(t, limiter, "1/s", httplimit.Address(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		limitertest.Check(t, charge.Of(r.Context(), "api").Refund(r.Context(), 1))
	}), httplimit.WithRequest(func(_ *http.Request, req *client.Request) error {
		*req = client.Request{Keys: []string{"{p}:tenant", "{p}"}, Limits: []client.Limit{"2/d", "10/d"}, Costs: []int64{1}, Borrow: true, Floor: 50}
		return nil
	}))
	checkField(t, serve(handler, get("/")), "RateLimit", `"api";r=5;t=0`)
}

// If a key was blocked in the meantime, nothing is refunded. A later refund is still possible.
func TestRefundWhileBlocked(t *testing.T) {
	limiter, _ := newLimiter(t)
	serve(charging(t, limiter, "100/d", 10, func(ctx context.Context, c *charge.Charge) {
		limitertest.Check(t, limiter.Block(ctx, client.Block{For: time.Hour}, peer))
		if err := c.Refund(ctx, 10); err != nil || c.Result().Allowed {
			t.Errorf("%v, %+v", err, c.Result())
		}
		if _, err := limiter.Unblock(ctx, peer); err != nil {
			t.Error(err)
		}
		limitertest.Check(t, c.Refund(ctx, 10))
	}), get("/"))
	limitertest.WantUsed(t, limiter, peer, 0)
}

func TestMore(t *testing.T) {
	limiter, _ := newLimiter(t)
	handler := charging(t, limiter, "100/d", 10, func(ctx context.Context, c *charge.Charge) {
		if taken, err := c.More(ctx, 30); err != nil || taken != 30 {
			t.Errorf("%d, %v", taken, err)
		}
		limitertest.Check(t, c.Refund(ctx, 35))
		if charged, err := c.More(ctx, 145); err != nil || charged != 145 {
			t.Errorf("%d, %v, want 145 although 95 are left", charged, err)
		}
		limitertest.Check(t, limiter.Block(ctx, client.Block{For: time.Hour}, peer))
		if charged, err := c.More(ctx, 1); err != nil || charged != 0 {
			t.Errorf("%d, %v, want none while the key is blocked", charged, err)
		}
		must[int64](t)(limiter.Unblock(ctx, peer))
		limitertest.Check(t, c.Refund(ctx, 20))
		if _, err := c.More(ctx, -1); err == nil || !strings.Contains(err.Error(), "-1 units more; give a number above 0") {
			t.Error(err)
		}
	})
	checkField(t, serve(handler, get("/")), "RateLimit", `"api";r=0;t=112320`) // until 130 units have refilled
	if response := serve(handler, get("/")); response.StatusCode != http.StatusTooManyRequests {
		t.Errorf("status %d of a request in debt", response.StatusCode)
	}
}

// If a request has several keys with different costs, at most the smallest cost can be refunded.
// Additional units are counted under the usage key.
func TestChargeOfSeveralKeys(t *testing.T) {
	limiter, _ := newLimiter(t)
	handler := newHandler(t, limiter, "100/d", httplimit.Address(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		c := charge.Of(r.Context(), "api")
		if err := c.Refund(r.Context(), 4); err == nil {
			t.Error("gave back more than one of the keys was charged")
		}
		limitertest.Check(t, c.Refund(r.Context(), 3))
		if taken, err := c.More(r.Context(), 5); err != nil || taken != 5 {
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

// For a request with UpTo, the charge is the number of units that it got.
func TestChargeOfUpTo(t *testing.T) {
	limiter, _ := newLimiter(t)
	handler := newHandler(t, limiter, "100/d", httplimit.Address(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		c := charge.Of(r.Context(), "api")
		if taken := c.Result().Taken; taken != 100 {
			t.Errorf("taken %d", taken)
		}
		if err := c.Refund(r.Context(), 101); err == nil {
			t.Error("gave back more than was taken")
		}
		limitertest.Check(t, c.Refund(r.Context(), 100))
	}), httplimit.WithRequest(func(_ *http.Request, req *client.Request) error {
		req.Costs, req.UpTo = []int64{150}, true
		return nil
	}))
	serve(handler, get("/"))
	limitertest.WantUsed(t, limiter, peer, 0)
}

// Without a middleware, charge.Of returns nil, and the methods of the nil Charge do nothing. With
// two middlewares, charge.Of returns the charge of the one with the given name.
func TestChargeOf(t *testing.T) {
	limiter, _ := newLimiter(t)
	none := charge.Of(t.Context(), "api")
	taken, err := none.More(t.Context(), 5)
	if none != nil || taken != 0 || err != nil || none.Refund(t.Context(), 5) != nil || none.Result().Allowed {
		t.Errorf("%v %d %v", none, taken, err)
	}
	inner := charging(t, limiter, "100/d", 10, func(ctx context.Context, c *charge.Charge) {
		all := charge.Of(ctx, "all")
		if c.Result().Limit != 100 || all.Result().Limit != 50 {
			t.Errorf("%+v, %+v", c.Result(), all.Result())
		}
		limitertest.Check(t, all.Refund(ctx, 1))
	})
	middleware := must[func(http.Handler) http.Handler](t)(httplimit.New(limiter, "all", "50/h", httplimit.Address()))
	response := serve(middleware(inner), get("/"))
	if got := strings.Join(response.Header["Ratelimit"], ", "); got != `"all";r=50;t=0, "api";r=90;t=8640` {
		t.Error(got)
	}
}

// An error from the limiter does not change the charge.
func TestChargeWithoutADecision(t *testing.T) {
	limiter, server := newLimiter(t)
	serve(charging(t, limiter, "100/d", 10, func(ctx context.Context, c *charge.Charge) {
		before := c.Result()
		_ = server.Close()
		if err := c.Refund(ctx, 5); err == nil {
			t.Error("a refund without a server")
		}
		if _, err := c.More(ctx, 5); err == nil {
			t.Error("more without a server")
		}
		if !reflect.DeepEqual(c.Result(), before) {
			t.Errorf("%+v, want %+v", c.Result(), before)
		}
	}), get("/"))
}

// A limiter that stands for one in a test has only Take. The error of a refund says what it lacks.
func TestRefundByTakeAlone(t *testing.T) {
	limit := limitertest.Must[httplimit.Middleware](t)(httplimit.New(always{}, "api", "3/m", httplimit.Address()))
	serve(limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		const want = "a refund of 1, not made, since the limiter httplimit_test.always has no Refund and wraps none that has; give it that method, or Unwrap"
		if err := charge.Of(r.Context(), "api").Refund(r.Context(), 1); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	})), get("/"))
}

type always struct{}

func (always) Take(context.Context, client.Request) (client.Result, error) {
	return client.Result{Allowed: true}, nil
}

// If a handler removes the field RateLimit, a refund does not set it again.
func TestFieldsTakenAway(t *testing.T) {
	limiter, _ := newLimiter(t)
	handler := newHandler(t, limiter, "100/d", httplimit.Address(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Del("RateLimit")
		limitertest.Check(t, charge.Of(r.Context(), "api").Refund(r.Context(), 1))
	}))
	checkField(t, serve(handler, get("/")), "RateLimit", "")
}

// After the handler has returned, Charge must not touch the header, because the server may be
// writing it.
func TestChargeAfterTheHandler(t *testing.T) {
	limiter, _ := newLimiter(t)
	var c *charge.Charge
	handler := newHandler(t, limiter, "100/d", httplimit.Address(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		c = charge.Of(r.Context(), "api")
	}), httplimit.WithXHeaders())
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, get("/"))
	before := w.Header().Clone()
	if err := c.Refund(t.Context(), 1); err != nil || c.Result().Remaining != 100 {
		t.Errorf("%v, %+v", err, c.Result())
	}
	if !reflect.DeepEqual(w.Header(), before) {
		t.Errorf("%v, want %v", w.Header(), before)
	}
}

// A request with an OnceKey cannot be refunded, because it may be a repeat, which was not charged.
func TestChargeOfOnceKey(t *testing.T) {
	limiter, _ := newLimiter(t)
	handler := newHandler(t, limiter, "100/d", httplimit.Address(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := charge.Of(r.Context(), "api").Refund(r.Context(), 9); !errors.Is(err, client.ErrMisconfigured) {
			t.Error(err)
		}
	}), httplimit.WithRequest(func(r *http.Request, req *client.Request) error {
		req.Costs, req.OnceKey, req.OnceTTL = []int64{10}, "once:"+r.Header.Get("Idempotency-Key"), time.Minute
		return nil
	}))
	for range 5 {
		serve(handler, get("/", "Idempotency-Key", "a"))
	}
	limitertest.WantUsed(t, limiter, peer, 10)
}

// newLocal returns a client that has taken one unit for peer from its server. The server has
// then lost the library, so the client uses a LocalFallback.
func newLocal(t *testing.T) (*client.Client, *embedded.Server) {
	t.Helper()
	_, server := newLimiter(t)
	limiter := limitertest.Open(t, server, client.WithFallback(client.LocalFallback(1)))
	must[client.Result](t)(limiter.AllowN(t.Context(), peer, "100/d", 1))
	must[any](t)(server.Do("FUNCTION", "FLUSH"))
	return limiter, server
}

// Units that a LocalFallback allowed are not given back, because they were not charged on a server.
// Units that a server has charged since then are given back.
func TestChargeOfLocalFallback(t *testing.T) {
	limiter, server := newLocal(t)
	var before int64
	serve(charging(t, limiter, "100/d", 10, func(ctx context.Context, c *charge.Charge) {
		load(t, server)
		before = used(t, limiter, peer)
		if err := c.Refund(ctx, 1); err != nil || c.Result().Source != "local" {
			t.Errorf("%v, %+v", err, c.Result())
		}
		if taken, err := c.More(ctx, 5); err != nil || taken != 5 {
			t.Errorf("%d, %v", taken, err)
		}
		limitertest.Check(t, c.Refund(ctx, 2))
		if got := used(t, limiter, peer); got != 4 {
			t.Errorf("%d are taken, want 4", got)
		}
		limitertest.Check(t, c.Refund(ctx, 3))
		limitertest.Check(t, c.Refund(ctx, 9))
		if err := c.Refund(ctx, 1); err == nil {
			t.Error("gave back more than was charged")
		}
	}), get("/"))
	if got := used(t, limiter, peer); before != 1 || got != 1 {
		t.Errorf("%d are taken after %d, want 1 after 1", got, before)
	}
}

// A refund of more units than the server charged gives back these, and of the others those that a
// LocalFallback allowed.
func TestRefundOfMoreThanTheServerTook(t *testing.T) {
	limiter, server := newLocal(t)
	load(t, server)
	serve(charging(t, limiter, "100/d", 10, func(ctx context.Context, c *charge.Charge) {
		must[any](t)(server.Do("FUNCTION", "FLUSH"))
		if taken, err := c.More(ctx, 5); err != nil || taken != 5 || c.Result().Source != "local" {
			t.Errorf("%d, %v, %+v", taken, err, c.Result())
		}
		load(t, server)
		if err := c.Refund(ctx, 16); err == nil || !strings.Contains(err.Error(), "where the request is charged 15; give from 0 to that") {
			t.Errorf("a refund of 16: %v", err)
		}
		limitertest.Check(t, c.Refund(ctx, 12))
		limitertest.Check(t, c.Refund(ctx, 3))
		if err := c.Refund(ctx, 1); err == nil {
			t.Error("gave back more than was charged")
		}
	}), get("/"))
	limitertest.WantUsed(t, limiter, peer, 1)
}

func load(t *testing.T, server *embedded.Server) {
	t.Helper()
	limitertest.Check(t, server.Load(functions.Source()))
}
