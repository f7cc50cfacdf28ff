package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/charge"
	"github.com/ratelimit-functions/ratelimit/client/httplimit"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// exampleLimiter returns a client for a server with the library. The server's clock is stopped.
var exampleLimiter = limitertest.Example

// ask sends a request, and prints the response.
func ask(h http.Handler, from, forwardedFor string) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = from
	if forwardedFor != "" {
		r.Header.Set("X-Forwarded-For", forwardedFor)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("RateLimit"), "Retry-After:"+w.Header().Get("Retry-After"))
}

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }

func ExampleNew() {
	limiter, stop := exampleLimiter()
	defer stop()
	limit, err := httplimit.New(limiter, "api", "2/m", httplimit.Address())
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := limit.Check(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/", limit(http.HandlerFunc(hello)))
	for range 3 {
		ask(mux, "203.0.113.7:1234", "")
	}
	// Output:
	// 200 "api";r=1;t=30 Retry-After:
	// 200 "api";r=0;t=60 Retry-After:
	// 429 "api";r=0;t=30 Retry-After:30
}

// Behind a proxy the client's address is in X-Forwarded-For. Text that the client itself wrote
// there is ignored. IPv6 addresses of the same /64 count as one client.
func ExampleAddress() {
	limiter, stop := exampleLimiter()
	defer stop()
	key := httplimit.Address(httplimit.WithTrustedProxies("X-Forwarded-For", "10.0.0.0/8"))
	limit, err := httplimit.New(limiter, "api", "2/m", key)
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := limit(http.HandlerFunc(hello))
	ask(handler, "10.0.0.1:1234", "2001:db8::1")
	ask(handler, "10.0.0.1:1234", "198.51.100.1, 2001:db8::2")
	ask(handler, "10.0.0.1:1234", "203.0.113.7")
	// Output:
	// 200 "api";r=1;t=30 Retry-After:
	// 200 "api";r=0;t=60 Retry-After:
	// 200 "api";r=1;t=30 Retry-After:
}

// Exports are batch jobs: they leave half of the limit to other requests. A request without a class belongs
// to the policy's class "default".
func ExampleWithRequest_class() {
	limiter, stop := exampleLimiter(functions.Policy{
		Name: "api", Limits: []functions.PolicyLimit{{Limit: "4/m"}}, Classes: map[string]int{"default": 0, "batch": 50},
	})
	defer stop()
	classOf := func(r *http.Request) string {
		if r.URL.Path == "/export" {
			return "batch"
		}
		return ""
	}
	limit, err := httplimit.New(limiter, "api", "@api", httplimit.Address(),
		httplimit.WithRequest(func(r *http.Request, req *client.Request) error { req.Class = classOf(r); return nil }))
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := limit(http.HandlerFunc(hello))
	for _, path := range []string{"/export", "/export", "/export", "/"} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Println(path, w.Code)
	}
	// Output:
	// /export 200
	// /export 200
	// /export 429
	// / 200
}

// The cost of a request is known after it is served: charge the maximum first, then refund.
func Example_charge() {
	limiter, stop := exampleLimiter()
	defer stop()
	limit, err := httplimit.New(limiter, "rows", "10000/h", httplimit.Address(),
		httplimit.WithRequest(func(_ *http.Request, req *client.Request) error {
			req.Costs = []int64{1000} // the maximum number of rows per page
			return nil
		}))
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rows := int64(120)
		if err := charge.Of(r.Context(), "rows").Refund(r.Context(), 1000-rows); err != nil {
			fmt.Println(err)
		}
		fmt.Fprintln(w, rows, "rows")
	}))
	ask(handler, "203.0.113.7:1234", "")
	// Output:
	// 200 "rows";r=9880;t=44 Retry-After:
}

// The limit depends on the tenant. The response includes the limit's window, so that clients can
// spread their requests.
func ExampleWithPolicies() {
	limiter, stop := exampleLimiter()
	defer stop()
	tenant := httplimit.Func("tenant", func(r *http.Request) (string, error) {
		name, _ := r.Context().Value(tenantKey{}).(string)
		return name, nil
	})
	limit, err := httplimit.New(limiter, "free", "60/m", tenant,
		httplimit.WithRequest(func(r *http.Request, req *client.Request) error {
			if r.Context().Value(tenantKey{}) == "acme" {
				req.Limits = []client.Limit{"1000/m"}
			}
			return nil
		}),
		httplimit.WithPolicies(
			httplimit.Policy{Name: "free", Limit: "60/m", Quota: 60, Window: time.Minute},
			httplimit.Policy{Name: "paid", Limit: "1000/m", Quota: 1000, Window: time.Minute},
		))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, name := range []string{"smith", "acme"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		w := httptest.NewRecorder()
		limit(http.HandlerFunc(hello)).ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantKey{}, name)))
		fmt.Println(name, w.Header().Get("RateLimit-Policy"), w.Header().Get("RateLimit"))
	}
	// Output:
	// smith "free";q=60;w=60 "free";r=59;t=59
	// acme "paid";q=1000;w=60 "paid";r=999;t=60
}

type tenantKey struct{}
