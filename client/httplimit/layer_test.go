package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/httplimit"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
)

// wrapped is a layer that adds nothing.
type wrapped struct{ client.Limiter }

func (w *wrapped) Unwrap() client.Limiter { return w.Limiter }

// panicking is a layer whose first call panics.
type panicking struct{ calls int }

func (p *panicking) Take(context.Context, client.Request) (client.Result, error) {
	if p.calls++; p.calls == 1 {
		panic("of a layer")
	}
	return client.Result{Allowed: true}, nil
}

// A panic of a layer ends its request, as a panic of the handler would, and no later one.
func TestALayerPanics(t *testing.T) {
	limit := limitertest.Must[httplimit.Middleware](t)(httplimit.New(&wrapped{&panicking{}}, "api", "5/m", httplimit.Address()))
	served := 0
	handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	serve := func() (of any) {
		defer func() { of = recover() }()
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		return nil
	}
	if of := serve(); of != "of a layer" || served != 0 {
		t.Errorf("the panic is %v, and %d requests were served", of, served)
	}
	if of := serve(); of != nil || served != 1 {
		t.Errorf("the panic is %v, and %d requests were served", of, served)
	}
}

// closed is a layer that denies in place of a server.
type closed struct{ retryAfter time.Duration }

func (c closed) Take(context.Context, client.Request) (client.Result, error) {
	return client.Result{Source: "fallback", RetryAfter: c.retryAfter}, nil
}

func TestDenialsOfLayers(t *testing.T) {
	for retryAfter, want := range map[time.Duration]string{0: "1", client.Never: "1", 3 * time.Second: "3"} {
		limit, err := httplimit.New(closed{retryAfter}, "api", "5/m", httplimit.Address())
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Errorf("%v: the request was served", retryAfter) })).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if got := w.Header().Get("Retry-After"); w.Code != http.StatusServiceUnavailable || got != want {
			t.Errorf("%v: status %d, Retry-After %q, want 503 and %q", retryAfter, w.Code, got, want)
		}
	}
}
