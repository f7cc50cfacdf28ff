package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/httplimit"
)

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
