package httpcall

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestRequestedWait(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name   string
		status int
		lines  []string
		want   time.Duration // -1: the response does not ask for a wait
	}{
		{"seconds", 429, []string{"Retry-After: 120"}, 2 * time.Minute},
		{"of 503", 503, []string{"Retry-After: 5"}, 5 * time.Second},
		{"of another status", 301, []string{"Retry-After: 5"}, -1},
		{"now", 429, []string{"Retry-After: 0"}, 0},
		{"a date", 429, []string{"Retry-After: Thu, 01 Jan 2026 12:00:30 GMT"}, 30 * time.Second},
		{"a date by their clock", 429, []string{"Retry-After: Thu, 01 Jan 2026 13:00:30 GMT", "Date: Thu, 01 Jan 2026 13:00:00 GMT"}, 30 * time.Second},
		{"a date that has gone", 429, []string{"Retry-After: Thu, 01 Jan 2026 11:00:00 GMT"}, 0},
		{"a date far away", 429, []string{"Retry-After: Fri, 01 Jan 9999 11:00:00 GMT"}, longest},
		{"an old form of a date", 429, []string{"Retry-After: Thursday, 01-Jan-26 12:00:30 GMT"}, 30 * time.Second},
		{"a large number", 429, []string{"Retry-After: 9223372036854775807"}, longest},
		{"too large a number", 429, []string{"Retry-After: " + strings.Repeat("9", 10_000)}, longest},
		{"a negative number", 429, []string{"Retry-After: -5"}, -1},
		{"a part of a second", 429, []string{"Retry-After: 1.5"}, -1},
		{"rubbish", 429, []string{"Retry-After: soon\x00"}, -1},
		{"nothing", 429, nil, -1},

		{"nothing left", 200, []string{`RateLimit: "a";r=0;t=30`}, 30 * time.Second},
		{"something left", 200, []string{`RateLimit: "a";r=1;t=30`}, -1},
		{"no window", 200, []string{`RateLimit: "a";r=0`}, -1},
		{"a window of nothing", 200, []string{`RateLimit: "a";r=0;t=0`}, -1},
		{"a negative window", 200, []string{`RateLimit: "a";r=0;t=-5`}, -1},
		{"several", 200, []string{`RateLimit: "a";r=0;t=3, "b";r=5;t=90`, `RateLimit: "c";r=0;t=60;pk=:YQ==:`}, time.Minute},
		{"a token for the name", 200, []string{`RateLimit: a;r=0;t=3`}, 3 * time.Second},
		{"an inner list", 200, []string{`RateLimit: ("a" "b");r=0;t=3`}, -1},
		{"other types", 200, []string{`RateLimit: "a";r=0.0;t=3, "b";r=0;t="9", "c";r;t`}, -1},
		{"an old draft", 200, []string{`RateLimit: limit=10, remaining=0, reset=5`}, -1},
		{"malformed", 200, []string{`RateLimit: "a";r=0;t=3,`}, -1},
		{"from a cache", 200, []string{`RateLimit: "a";r=0;t=30`, "Age: 7"}, -1},
		{"not from a cache", 200, []string{`RateLimit: "a";r=0;t=30`, "Age: 0"}, 30 * time.Second},
		{"Retry-After goes first", 429, []string{`RateLimit: "a";r=0;t=30`, "Retry-After: 5"}, 5 * time.Second},
		{"without Retry-After", 429, []string{`RateLimit: "a";r=0;t=30`}, 30 * time.Second},
		{"Retry-After that nobody can read", 429, []string{`RateLimit: "a";r=0;t=30`, "Retry-After: x"}, 30 * time.Second},
	} {
		response := &http.Response{StatusCode: tt.status, Header: http.Header{}}
		for _, line := range tt.lines {
			name, value, _ := strings.Cut(line, ": ")
			response.Header.Add(name, value)
		}
		got, ok := requestedWait(response, now)
		if !ok {
			got = -1
		}
		if got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
