package httplimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/charge"
	"github.com/ratelimit-functions/ratelimit/client/httplimit"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
	"github.com/ratelimit-functions/ratelimit/client/key"
	"github.com/ratelimit-functions/ratelimit/functions"
)

func TestAllowedAndDenied(t *testing.T) {
	limiter, server := newLimiter(t)
	handler := newHandler(t, limiter, "2/m", httplimit.Address(), ok)
	for i, want := range []string{`"api";r=1;t=30`, `"api";r=0;t=60`} {
		response := serve(handler, get("/"))
		checkStatus(t, response, http.StatusOK)
		checkField(t, response, "RateLimit-Policy", `"api";q=2`)
		checkField(t, response, "RateLimit", want)
		checkField(t, response, "Retry-After", "")
		if i == 0 {
			checkField(t, response, "X-RateLimit-Limit", "")
		}
	}
	server.Advance(500 * time.Millisecond) // 29.5 s are left, which rounds up to 30
	response := serve(handler, get("/"))
	checkStatus(t, response, http.StatusTooManyRequests)
	checkField(t, response, "RateLimit-Policy", `"api";q=2`)
	checkField(t, response, "RateLimit", `"api";r=0;t=30`)
	checkField(t, response, "Retry-After", "30")
	want := map[string]any{
		"type":              "https://iana.org/assignments/http-problem-types#quota-exceeded",
		"title":             "Request cannot be satisfied as assigned quota has been exceeded",
		"status":            429.0,
		"detail":            "try again in 30 s",
		"violated-policies": []any{"api"},
	}
	if got := body(t, response); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	server.Advance(29500 * time.Millisecond)
	checkStatus(t, serve(handler, get("/")), http.StatusOK)
}

// A request that can never be allowed gets no Retry-After.
func TestNever(t *testing.T) {
	limiter, _ := newLimiter(t)
	five := func(_ *http.Request, req *client.Request) error { req.Costs = []int64{5}; return nil }
	response := serve(newHandler(t, limiter, "2/m", httplimit.Address(), ok, httplimit.WithRequest(five)), get("/"))
	checkStatus(t, response, http.StatusTooManyRequests)
	checkField(t, response, "Retry-After", "")
	checkField(t, response, "RateLimit", `"api";r=2`)
	if got := body(t, response)["detail"]; got != "the request asks for more than its limit ever allows" {
		t.Error(got)
	}
}

func TestXHeaders(t *testing.T) {
	limiter, _ := newLimiter(t)
	handler := newHandler(t, limiter, "2/m", httplimit.Address(), ok, httplimit.WithXHeaders())
	before := time.Now()
	response := serve(handler, get("/"))
	after := time.Now()
	checkField(t, response, "X-RateLimit-Limit", "2")
	checkField(t, response, "X-RateLimit-Remaining", "1")
	reset, err := strconv.ParseInt(response.Header.Get("X-RateLimit-Reset"), 10, 64)
	if at := time.Unix(reset, 0); err != nil || at.Before(before.Add(30*time.Second)) || at.After(after.Add(31*time.Second)) {
		t.Errorf("%v, %v, want 30 s from %v", at, err, before)
	}
}

func TestSkip(t *testing.T) {
	limiter, _ := newLimiter(t)
	handler := newHandler(t, limiter, "100/d", httplimit.Address(), ok,
		httplimit.WithSkip(func(r *http.Request) bool {
			return r.Method == "HEAD" || r.Method == "OPTIONS" || r.URL.Path == "/healthz"
		}), httplimit.WithSkip(func(r *http.Request) bool { return r.Header.Get("X-Probe") != "" }))
	for _, tt := range []struct {
		method, path string
		skipped      bool
	}{
		{"GET", "/", false}, {"POST", "/", false}, {"HEAD", "/", true}, {"OPTIONS", "/", true}, {"GET", "/healthz", true}, {"GET", "/healthz/x", false},
		{"get", "/", false},
	} {
		r := get(tt.path)
		r.Method = tt.method
		before := used(t, limiter, "api|address=192.0.2.1")
		response := serve(handler, r)
		checkStatus(t, response, http.StatusOK)
		if skipped := used(t, limiter, "api|address=192.0.2.1") == before; skipped != tt.skipped || skipped != (response.Header.Get("RateLimit") == "") {
			t.Errorf("%s %s: skipped: %t, want %t; header %v", tt.method, tt.path, skipped, tt.skipped, response.Header)
		}
	}
	if response := serve(handler, get("/", "X-Probe", "1")); response.Header.Get("RateLimit") != "" {
		t.Error("counted what WithSkip leaves out")
	}
}

// The request determines the limit, the cost, and whether it is limited at all.
func TestWithRequest(t *testing.T) {
	limiter, _ := newLimiter(t)
	handler := newHandler(t, limiter, "2/m", httplimit.Address(), ok, httplimit.WithRequest(func(r *http.Request, req *client.Request) error {
		switch r.Header.Get("X-Plan") {
		case "paid":
			req.Limits, req.Costs = []client.Limit{"100/m"}, []int64{10}
		case "staff":
			req.Keys = nil
		case "none":
			return fmt.Errorf("%w: no plan", key.ErrMissing)
		}
		return nil
	}), httplimit.WithOnError(func(_ *http.Request, err error) { t.Error(err) }))
	checkField(t, serve(handler, get("/", "X-Plan", "paid")), "RateLimit", `"api";r=90;t=6`)
	response := serve(handler, get("/", "X-Plan", "staff"))
	checkStatus(t, response, http.StatusOK)
	checkField(t, response, "RateLimit", "")
	checkStatus(t, serve(handler, get("/", "X-Plan", "none")), http.StatusBadRequest)
}

// For a deployed policy with several limits, the RateLimit field names the binding limit.
func TestPolicyOfSeveralLimits(t *testing.T) {
	limiter, _ := newLimiter(t, functions.Policy{Name: "calc", Limits: []functions.PolicyLimit{{Key: "resource", Limit: "10/m"}, {Key: "consumer", Limit: "1/m"}}})
	handler := newHandler(t, limiter, "@calc", httplimit.Address(), ok,
		httplimit.WithRequest(func(_ *http.Request, req *client.Request) error {
			req.Keys = append([]string{"calc"}, req.Keys...)
			return nil
		}),
		httplimit.WithPolicies(
			httplimit.Policy{Name: "resource", Limit: "@calc", Quota: 10, Window: time.Minute},
			httplimit.Policy{Name: "consumer", Limit: "@calc", Quota: 1, Window: time.Minute},
		))
	checkField(t, serve(handler, get("/")), "RateLimit", `"consumer";r=0;t=60`)
	response := serve(handler, get("/"))
	checkStatus(t, response, http.StatusTooManyRequests)
	checkField(t, response, "RateLimit-Policy", `"resource";q=10;w=60, "consumer";q=1;w=60`)
	if got := fmt.Sprint(body(t, response)["violated-policies"]); got != "[consumer]" {
		t.Error(got)
	}
}

// Nested middlewares count separately, each under its own key. Each adds its own line to the
// RateLimit fields.
func TestNested(t *testing.T) {
	limiter, _ := newLimiter(t)
	inner := newHandler(t, limiter, "100/d", httplimit.Address(), ok)
	middleware := must[func(http.Handler) http.Handler](t)(httplimit.New(limiter, "all", "50/h", httplimit.Address()))
	response := serve(middleware(inner), get("/"))
	if got := strings.Join(response.Header["Ratelimit"], ", "); got != `"all";r=49;t=72, "api";r=99;t=864` {
		t.Error(got)
	}
	if got := strings.Join(response.Header["Ratelimit-Policy"], ", "); got != `"all";q=50, "api";q=100` {
		t.Error(got)
	}
}

func TestWithoutADecision(t *testing.T) {
	limiter, server := newLimiter(t)
	var found []error
	note := httplimit.WithOnError(func(_ *http.Request, err error) { found = append(found, err) })
	passing := newHandler(t, limiter, "100/d", httplimit.Address(), ok, note)
	refusing := newHandler(t, limiter, "100/d", httplimit.Address(), ok, note, httplimit.WithRefuseOnError(1500*time.Millisecond))
	wrong := newHandler(t, limiter, "100/x", httplimit.Address(), ok, note)
	checkStatus(t, serve(wrong, get("/")), http.StatusOK)
	if len(found) != 1 || limitertest.CodeOf(found[0]) != "BADLIMIT" {
		t.Errorf("of a wrong limit: %v", found)
	}

	_ = server.Close()
	response := serve(passing, get("/"))
	checkStatus(t, response, http.StatusOK)
	checkField(t, response, "RateLimit", "")
	response = serve(refusing, get("/"))
	checkStatus(t, response, http.StatusServiceUnavailable)
	checkField(t, response, "Retry-After", "2")
	checkField(t, response, "RateLimit", "")
	if got := body(t, response); fmt.Sprint(got) != "map[detail:whether the request is within its limit could not be found out status:503 title:Service Unavailable]" {
		t.Error(got)
	}
	if len(found) != 3 || !errors.Is(found[1], client.ErrUnavailable) || !errors.Is(found[2], client.ErrUnavailable) {
		t.Errorf("%v", found)
	}
}

// The client's fallback applies before WithRefuseOnError. If the fallback decides, the response has no
// RateLimit field.
func TestFallbackOfTheClient(t *testing.T) {
	for _, tt := range []struct {
		fallback   client.Fallback
		status     int
		retryAfter string
	}{
		{client.FailOpen, http.StatusOK, ""},
		{client.FailClosed, http.StatusServiceUnavailable, "1"},
		{client.ReturnError, http.StatusServiceUnavailable, "30"},
	} {
		limiter, server := newLimiter(t)
		_ = server.Close()
		var found error
		handler := newHandler(t, limiter, "100/d", httplimit.Address(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if c := charge.Of(r.Context(), "api"); c != nil {
				t.Errorf("charged %+v", c.Result())
			}
		}), httplimit.WithOnError(func(_ *http.Request, err error) { found = err }), httplimit.WithRefuseOnError(30*time.Second),
			httplimit.WithRequest(func(_ *http.Request, req *client.Request) error { req.Fallback = tt.fallback; return nil }))
		response := serve(handler, get("/"))
		checkStatus(t, response, tt.status)
		checkField(t, response, "Retry-After", tt.retryAfter)
		checkField(t, response, "RateLimit", "")
		if !errors.Is(found, client.ErrUnavailable) {
			t.Error(found)
		}
	}
}

// Check finds a wrong limit when a program starts. Later, WithRefuseMisconfigured rejects requests, but
// only for errors that no retry can fix.
func TestMisconfigured(t *testing.T) {
	limiter, server := newLimiter(t, functions.Policy{Name: "free", Limits: []functions.PolicyLimit{{Limit: "100/d"}}},
		functions.Policy{Name: "two", Limits: []functions.PolicyLimit{{Key: "a", Limit: "100/d"}, {Key: "b", Limit: "100/d"}}},
		functions.Policy{Name: "jobs", Limits: []functions.PolicyLimit{{Limit: "concurrency 2 lease=9s"}}})
	second := httplimit.WithRequest(func(_ *http.Request, req *client.Request) error {
		req.Keys = append(req.Keys, "second")
		return nil
	})
	make := func(limit client.Limit, opts ...httplimit.Option) httplimit.Middleware {
		return must[httplimit.Middleware](t)(httplimit.New(limiter, "api", limit, httplimit.Address(), append(opts, httplimit.WithRefuseMisconfigured())...))
	}
	for _, tt := range []struct {
		limit client.Limit
		opts  []httplimit.Option
		want  error
		text  string
	}{
		{"100/d", nil, nil, ""},
		{"@free", nil, nil, ""},
		{"@two", []httplimit.Option{second}, nil, ""},
		{"@two", nil, limitertest.Code("BADKEYS"), "BADKEYS"},
		{"@fre", nil, limitertest.Code("NOPOLICY"), "the library has no policy @fre, it has @free, @jobs, @two; deploy a build that has it"},
		{"3/min", nil, limitertest.Code("BADLIMIT"), `BADLIMIT "3/min": the unit of the period "min" is none of ms, s, m, h, d`},
		{"concurrency 2 lease=9s", nil, limitertest.Code("BADLIMIT"), "concurrency is for ratelimit_acquire"},
		{"@jobs", nil, limitertest.Code("BADLIMIT"), "concurrency is for ratelimit_acquire"},
		{"100/d", []httplimit.Option{httplimit.WithPolicies(httplimit.Policy{Name: "x", Limit: "5/y", Quota: 5, Window: time.Hour})}, limitertest.Code("BADLIMIT"), `"5/y"`},
	} {
		middleware := make(tt.limit, tt.opts...)
		err := middleware.Check(t.Context())
		if !limitertest.Is(err, tt.want) || tt.want != nil && (!errors.Is(err, client.ErrMisconfigured) || !strings.Contains(err.Error(), tt.text)) {
			t.Errorf("%s: %v, want %v with %q", tt.limit, err, tt.want, tt.text)
		}
		status := http.StatusOK
		if err != nil && tt.opts == nil {
			status = http.StatusInternalServerError
		}
		response := serve(middleware(ok), get("/"))
		checkStatus(t, response, status)
		if status != http.StatusOK {
			const want = "map[detail:the rate limit api of this service is misconfigured; its log says what to correct status:500 title:Internal Server Error]"
			if got := fmt.Sprint(body(t, response)); got != want {
				t.Errorf("%s: %s", tt.limit, got)
			}
		}
	}
	_ = server.Close()
	middleware := make("3/min")
	checkStatus(t, serve(middleware(ok), get("/")), http.StatusOK)
	if err := middleware.Check(t.Context()); !errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrMisconfigured) {
		t.Errorf("without a server: %v", err)
	}
	if err := httplimit.Middleware(func(next http.Handler) http.Handler { return next }).Check(t.Context()); err == nil {
		t.Error("a function that New did not make has been checked")
	}
}

// Without WithOnError, the middleware logs at most one line per second, however many requests fail. A
// wrong limit is logged separately, with the remedy.
func TestLog(t *testing.T) {
	limiter, _ := newLimiter(t)
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	handler := newHandler(t, limiter, "100/x", httplimit.Address(), ok)
	began := time.Now()
	for range 20 {
		checkStatus(t, serve(handler, get("/")), http.StatusOK)
	}
	most := 1 + int(time.Since(began)/time.Second)
	if got := strings.Count(log.String(), "the unit of the period"); got < 1 || got > most {
		t.Errorf("%d lines, want 1 to %d: %s", got, most, log.String())
	}
	for _, want := range []string{`msg="a rate limit is misconfigured, and no retry helps"`, "limit=100/x", "name=api", `fix="correct the limit`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is missing: %s", want, log.String())
		}
	}
}

func TestDelay(t *testing.T) {
	limiter, _ := newLimiter(t)
	var began time.Time
	var waited time.Duration
	note := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { waited = time.Since(began) })
	delaying := newHandler(t, limiter, "leaky_bucket 20/s burst=3", httplimit.Address(), note, httplimit.WithDelay())
	for _, want := range []time.Duration{0, 50 * time.Millisecond, 100 * time.Millisecond} { // the server's clock is stopped, so each wait is longer
		began = time.Now()
		checkStatus(t, serve(delaying, get("/")), http.StatusOK)
		if waited < want {
			t.Errorf("waited for %v, want %v at least", waited, want)
		}
	}
	checkStatus(t, serve(delaying, get("/")), http.StatusTooManyRequests)

	// A request whose context ends while it waits for its turn does not reach the handler. Without
	// WithDelay no request waits.
	slow := httplimit.Func("queue", func(*http.Request) (string, error) { return "slow", nil })
	called := 0
	count := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called++ })
	at := newHandler(t, limiter, "leaky_bucket 1/h burst=5", slow, count)
	serve(at, get("/"))
	serve(at, get("/"))
	if called != 2 {
		t.Errorf("the handler was called %d times, want 2", called)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	response := serve(newHandler(t, limiter, "leaky_bucket 1/h burst=5", slow, count, httplimit.WithDelay()), get("/").WithContext(ctx))
	if ctx.Err() == nil {
		t.Error("it did not wait")
	}
	checkStatus(t, response, http.StatusServiceUnavailable)
	checkField(t, response, "Retry-After", "7200")
	if called != 2 {
		t.Error("the handler was called for a request that was refused")
	}
}
