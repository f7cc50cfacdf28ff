package httplimit_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/httplimit"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

var login = functions.Policy{Name: "login", Limits: []functions.PolicyLimit{{Limit: "5/m"}},
	Penalty: &functions.Penalty{First: time.Minute, Max: 4 * time.Minute, Forget: time.Hour}}

// A denial blocks the key for longer from time to time, and is answered with the end of the block. An
// allowed request does not end the memory.
func TestPenalty(t *testing.T) {
	for name, tt := range map[string]struct {
		limit client.Limit
		opts  []httplimit.Option
	}{
		"WithPenalty":                    {"5/m", []httplimit.Option{httplimit.WithPenalty(time.Minute, 4*time.Minute, time.Hour)}},
		"of the policy":                  {"@login", nil},
		"WithPenalty in place of policy": {"@slow", []httplimit.Option{httplimit.WithPenalty(time.Minute, 4*time.Minute, time.Hour)}},
	} {
		t.Run(name, func(t *testing.T) {
			slow := login
			slow.Name, slow.Penalty = "slow", &functions.Penalty{First: time.Hour, Max: time.Hour, Forget: time.Hour}
			limiter, server := newLimiter(t, login, slow)
			h := newHandler(t, limiter, tt.limit, httplimit.Address(), ok, tt.opts...)
			step := func(status int, retryAfter string) {
				t.Helper()
				response := serve(h, get("/"))
				checkStatus(t, response, status)
				checkField(t, response, "Retry-After", retryAfter)
			}
			for _, wait := range []string{"60", "120", "240", "240"} {
				for range 5 {
					step(http.StatusOK, "")
				}
				step(http.StatusTooManyRequests, wait)
				step(http.StatusTooManyRequests, wait)
				length, _ := time.ParseDuration(wait + "s")
				server.Advance(length)
			}
			server.Advance(time.Hour)
			for range 5 {
				step(http.StatusOK, "")
			}
			response := serve(h, get("/"))
			checkField(t, response, "Retry-After", "60")
			checkField(t, response, "RateLimit", `"api";r=0;t=60`)
		})
	}
}

// If the block fails, or its outcome is unknown, the answer is the denial.
func TestPenaltyFails(t *testing.T) {
	var lost atomic.Int64
	lost.Store(1)
	for name, hook := range map[string]limitertest.Hook{
		"outcome unknown": limitertest.Losing("ratelimit_block", &lost),
		"not sent": func(_ context.Context, called string, next func() error) error {
			if called == "ratelimit_block" {
				return io.ErrClosedPipe
			}
			return next()
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := embedded.Run(t, embedded.WithLibrary(functions.Source()), embedded.WithTime(noon))
			limiter := limitertest.Hooked(t, server, hook)
			var failed atomic.Int64
			h := newHandler(t, limiter, "1/m", httplimit.Address(), ok, httplimit.WithPenalty(time.Hour, time.Hour, time.Hour),
				httplimit.WithOnError(func(*http.Request, error) { failed.Add(1) }))
			checkStatus(t, serve(h, get("/")), http.StatusOK)
			response := serve(h, get("/"))
			checkStatus(t, response, http.StatusTooManyRequests)
			checkField(t, response, "Retry-After", "60")
			if failed.Load() != 0 {
				t.Error("WithOnError was called for a request with a decision")
			}
		})
	}
}

// Shadow policies deny nothing, so they block nothing.
func TestNoPenaltyForShadows(t *testing.T) {
	shadow := login
	shadow.Shadow = true
	limiter, _ := newLimiter(t, shadow)
	for _, opts := range [][]httplimit.Option{nil, {httplimit.WithPenalty(time.Hour, time.Hour, time.Hour)}} {
		h := newHandler(t, limiter, "@login", httplimit.Address(), ok, opts...)
		for range 8 {
			checkStatus(t, serve(h, get("/")), http.StatusOK)
		}
	}
	limitertest.WantBlocked(t, limiter, "api|address=192.0.2.1", 0)
}

func TestWrongPenalties(t *testing.T) {
	limiter, _ := newLimiter(t)
	for want, tt := range map[string]struct {
		limiter             client.Limiter
		first, most, forget time.Duration
	}{
		"WithPenalty: a first block of 0s; give whole milliseconds, from 1 ms to 36500 days":               {limiter, 0, time.Hour, time.Hour},
		"WithPenalty: a first block of 1.5ms; give whole milliseconds":                                     {limiter, 1500 * time.Microsecond, time.Hour, time.Hour},
		"WithPenalty: a longest block of -1s; give whole milliseconds, from 1 ms to 36500 days":            {limiter, time.Hour, -time.Second, time.Hour},
		"WithPenalty: a memory of 876000h0m1s; give whole milliseconds, from 1 ms to 36500 days":           {limiter, time.Hour, time.Hour, 36500*24*time.Hour + time.Second},
		"WithPenalty: a first block of 1h, which is above the longest, 1m; give the shorter one first":     {limiter, time.Hour, time.Minute, time.Hour},
		"WithPenalty: the limiter httplimit_test.closed has no Penalize, and wraps none that has; give it": {closed{}, time.Hour, time.Hour, time.Hour},
	} {
		if _, err := httplimit.New(tt.limiter, "api", "5/m", httplimit.Address(), httplimit.WithPenalty(tt.first, tt.most, tt.forget)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
