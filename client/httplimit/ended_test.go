package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/charge"
	"github.com/ratelimit-functions/ratelimit/client/httplimit"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
)

func withFallback(f client.Fallback) httplimit.Option {
	return httplimit.WithRequest(func(_ *http.Request, req *client.Request) error { req.Fallback = f; return nil })
}

// endedContexts returns, by name, contexts that have ended and one that is about to end.
func endedContexts(t *testing.T) map[string]context.Context {
	expired, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	t.Cleanup(cancel)
	return map[string]context.Context{"cancelled": limitertest.Cancelled(t.Context()), "expired": expired, "about to expire": limitertest.AboutToExpire{Context: t.Context()}}
}

// requestContext is a context key. Its value, in the context of a call to the limiter, is the
// context of the HTTP request.
type requestContext struct{}

// A client that hangs up, or resets its stream, before the decision is charged like any other, and
// cannot avoid the limit.
func TestClientsThatHangUp(t *testing.T) {
	const limit, requests = 3, 12
	for fallbackName, fallback := range limitertest.Fallbacks {
		for protocol, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
			t.Run(protocol+" "+fallbackName, func(t *testing.T) {
				peeking, server := newLimiter(t)
				deciding := make(chan bool)
				limiter := limitertest.Hooked(t, server, limitertest.Before("ratelimit_take", func(ctx context.Context) {
					deciding <- true
					request, ok := ctx.Value(requestContext{}).(context.Context)
					if !ok {
						t.Error("the call lacks the values of the request's context")
						return
					}
					<-request.Done()
				}))

				var handled atomic.Int64
				count := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handled.Add(1) })
				limited := newHandler(t, limiter, "3/h", httplimit.Func("all", func(*http.Request) (string, error) { return "x", nil }), count,
					withFallback(fallback), httplimit.WithOnError(func(_ *http.Request, err error) { t.Error(err) }))
				var serving sync.WaitGroup
				site := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					serving.Add(1)
					defer serving.Done()
					limited.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestContext{}, r.Context())))
				}))
				site.EnableHTTP2 = http2
				site.StartTLS()
				defer site.Close()

				for range requests {
					ctx, hangUp := context.WithCancel(t.Context())
					r := must[*http.Request](t)(http.NewRequestWithContext(ctx, http.MethodGet, site.URL, nil))
					ended := make(chan bool)
					go func() {
						defer close(ended)
						if response, err := site.Client().Do(r); err == nil { // the response may arrive while the connection closes
							_ = response.Body.Close()
						}
					}()
					<-deciding
					hangUp()
					<-ended
					serving.Wait()
				}
				left := must[client.Result](t)(peeking.Peek(t.Context(), client.For("api|all=x", "3/h", 0))).Remaining
				if handled.Load() != limit || left != 0 {
					t.Errorf("the handler ran %d times, and %d units are left; want %d times, and none", handled.Load(), left, limit)
				}
			})
		}
	}
}

// If a context ends before the decision, its request is allowed or denied as usual.
func TestEndedContexts(t *testing.T) {
	for name, ctx := range endedContexts(t) {
		for fallbackName, fallback := range limitertest.Fallbacks {
			t.Run(name+" "+fallbackName, func(t *testing.T) {
				limiter, _ := newLimiter(t)
				handled := 0
				handler := newHandler(t, limiter, "2/h", httplimit.Address(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handled++ }), withFallback(fallback))
				for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
					checkStatus(t, serve(handler, get("/").WithContext(ctx)), want)
					if handled != min(i+1, 2) {
						t.Errorf("after %d requests the handler has run %d times", i+1, handled)
					}
				}
			})
		}
	}
}

// Without a decision, a request whose context is done is not served. WithOnError receives errors from
// the server and from the Key, but not the error of the context.
func TestEndedContextsWithoutADecision(t *testing.T) {
	const text = "no database"
	for name, ctx := range endedContexts(t) {
		for _, tt := range []struct {
			name  string
			key   error // error from the Key
			opt   httplimit.Option
			heard bool
			after string
		}{
			{"outage", nil, withFallback(client.ReturnError), true, ""},
			{"outage and FailOpen", nil, withFallback(client.FailOpen), true, ""},
			{"outage and FailClosed", nil, withFallback(client.FailClosed), true, "1"},
			{"outage and WithRefuseOnError", nil, httplimit.WithRefuseOnError(30 * time.Second), true, "30"},
			{"the key fails", errors.New(text), httplimit.WithSkip(func(*http.Request) bool { return false }), true, ""},
			{"the key fails and WithRefuseOnError", errors.New(text), httplimit.WithRefuseOnError(30 * time.Second), true, "30"},
			{"the key ends", ctx.Err(), httplimit.WithSkip(func(*http.Request) bool { return false }), false, ""},
		} {
			if tt.name == "the key ends" && ctx.Err() == nil {
				continue
			}
			t.Run(name+" "+tt.name, func(t *testing.T) {
				limiter, server := newLimiter(t)
				_ = server.Close()
				key := httplimit.Func("tenant", func(*http.Request) (string, error) { return "acme", tt.key })
				never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") })
				var heard []error
				response := serve(newHandler(t, limiter, "2/h", key, never, tt.opt, httplimit.WithOnError(func(_ *http.Request, err error) { heard = append(heard, err) })), get("/").WithContext(ctx))
				checkStatus(t, response, http.StatusServiceUnavailable)
				checkField(t, response, "Retry-After", tt.after)
				body(t, response)
				if (len(heard) == 1) != tt.heard || len(heard) > 1 {
					t.Errorf("WithOnError heard %v, want an error: %t", heard, tt.heard)
				}
				for _, err := range heard {
					if tt.key == nil && !errors.Is(err, client.ErrUnavailable) || tt.key != nil && !errors.Is(err, tt.key) {
						t.Errorf("WithOnError heard %v", err)
					}
				}
			})
		}
	}
}

// Additional units are charged, and unused units are given back, even if the client has hung up.
func TestChargeOfAClientThatHungUp(t *testing.T) {
	for name, ctx := range endedContexts(t) {
		limiter, _ := newLimiter(t)
		handler := charging(t, limiter, "100/d", 10, func(ctx context.Context, c *charge.Charge) {
			if taken, err := c.More(ctx, 30); err != nil || taken != 30 {
				t.Errorf("%s: %d more, %v, want 30", name, taken, err)
			}
			if err := c.Refund(ctx, 5); err != nil {
				t.Errorf("%s: a refund: %v", name, err)
			}
		})
		checkStatus(t, serve(handler, get("/").WithContext(ctx)), http.StatusOK)
		limitertest.WantUsed(t, limiter, peer, 35)
	}
}
