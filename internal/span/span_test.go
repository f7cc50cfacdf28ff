package span

import (
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "500ms": 500 * time.Millisecond, "1s0ms": time.Second,
		"1m30s": 90 * time.Second, "1h30m": 90 * time.Minute, "1d": day, "1d12h": 36 * time.Hour, "12h1d": 36 * time.Hour,
		"1d2h3m4s5ms": day + 2*time.Hour + 3*time.Minute + 4*time.Second + 5*time.Millisecond, "36500d": longest, "876000h": longest,
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, tt := range []struct {
		says  string
		texts []string
	}{
		{" is not a duration; write one such as 500ms, 1m30s or 2d", []string{
			"", "1", "s", "d", ".d", ".", "-1s", "+1s", "2d-1s", "1 d", " 1d", "1.2.3d", "1w", "1e3s", "2D", "1d1", "1d0", "1.5d", "1.s", ".5s", "01d", "00s", "1d01h", "1ns", "500us", "1µs", "1μs",
		}},
		{" is longer than 36500d", []string{
			"36500d1ms", "18250d18251d", "876000h1ms", "99999999999999999999s", "9223372036854775807ms", "9999999d", "99999999999999999999d",
		}},
	} {
		for _, text := range tt.texts {
			if got, err := Parse(text); err == nil || err.Error() != `"`+text+`"`+tt.says || got != 0 {
				t.Errorf("%q: %v, %v", text, got, err)
			}
		}
	}
}

func TestFormat(t *testing.T) {
	for text, want := range map[string]string{"1m30s": "90s", "1h30m": "90m", "1d12h": "36h", "24h": "1d", "60s": "1m", "1s1ms": "1001ms", "36500d": "36500d"} {
		d, err := Parse(text)
		if got := Format(d); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
}
