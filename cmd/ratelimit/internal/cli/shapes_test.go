package cli

import (
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// A reply of an unexpected shape causes an error that names the server or says what was returned.
func TestRepliesOfAnotherShape(t *testing.T) {
	shapes := map[string]string{
		"nil": "$-1\r\n", "no list": "*-1\r\n", "number": ":7\r\n", "below 0": ":-7\r\n", "large number": resp(math.MaxInt64), "word": "+OK\r\n", "text": resp("x"), "empty text": resp(""),
		"empty": "*0\r\n", "one": resp([]any{"x"}), "two numbers": resp([]any{math.MaxInt64, math.MaxInt64}), "two large texts": resp([]any{"9223372036854775807", "9223372036854775807"}),
		"nils": resp([]any{nil, nil}), "a text and a list": resp([]any{"x", []any{"x"}}), "lists in lists": resp([]any{[]any{[]any{[]any{}}}}), "pairs": resp([]any{[]any{"library_name", "x"}}),
		"three": resp([]any{"x", math.MaxInt64, "y"}), "six below 0": resp([]any{1, -5, -5, -5, -5, 1}), "six large": resp([]any{1, math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64, 1}),
		"nine numbers": resp(slices.Repeat([]any{1}, 9)), "ten texts": resp(slices.Repeat([]any{"1"}, 10)), "twenty": resp(slices.Repeat([]any{"x"}, 20)),
		"series": resp([]any{"allowed", 1, "denied", 1, "cost", 1, "first_ms", 1, "last_ms", 1, "interval_ms", 1, "series", []any{[]any{1, math.MaxInt64, math.MaxInt64}}}),
		"slots":  resp([]any{[]any{0, math.MaxInt64, []any{"127.0.0.1", math.MaxInt64}}}), "nodes": resp([]any{[]any{"slots", []any{0, "x"}, "nodes", []any{[]any{"role", "master", "port", "x"}}}}),
	}
	decisions := map[string]string{"FCALL": "nine numbers", "FCALL_RO": "nine numbers"}
	for _, tt := range []struct {
		command string
		steps   []string
		fine    map[string]string // valid shapes, by step
	}{
		{"top", []string{"PING", "TIME", "SCAN", "HMGET"}, map[string]string{"PING": "word, text, empty text, number, below 0, large number"}},
		{"override", []string{"PING", "TIME", "SCAN", "TYPE", "GETRANGE", "ZRANGE", "ZSCORE"}, map[string]string{
			"PING": "word, text, empty text, number, below 0, large number", "TYPE": "word, text, empty text", "GETRANGE": "word, text, empty text",
			"ZRANGE": "empty, one", "ZSCORE": "nil, no list, word, text, empty text, number, below 0, large number",
		}},
		{"--cluster top", []string{"CLUSTER SLOTS"}, nil},
		{"take k 5/m", []string{"FCALL"}, decisions},
		{"take --up-to 5 k 5/m", []string{"FCALL"}, decisions},
		{"refund k 5/m", []string{"FCALL"}, decisions},
		{"block k --for 1m", []string{"FCALL"}, nil},
		{"override k 5/m --for 1m", []string{"FCALL"}, nil},
		{"override k --end", []string{"FCALL"}, nil},
		{"reset k", []string{"FCALL"}, nil},
		{"take k 5/m --dry-run", []string{"FCALL_RO"}, decisions},
		{"usage user:1", []string{"FCALL_RO"}, nil},
		{"policies", []string{"FCALL_RO"}, nil},
		{"--cluster policies", []string{"CLUSTER SLOTS"}, nil},
		{"load --limit 5/m --iterations 3", []string{"FCALL", "FCALL_RO"}, decisions},
		{"status", []string{"HELLO", "FUNCTION STATS", "FUNCTION LIST"}, map[string]string{"FUNCTION LIST": "empty"}},
		{"plan", []string{"FUNCTION LIST"}, map[string]string{"FUNCTION LIST": "empty"}},
		{"deploy", []string{"FUNCTION LIST", "TIME"}, nil},
		{"rollback", []string{"FUNCTION LIST"}, map[string]string{"FUNCTION LIST": "empty"}},
		{"doctor", []string{"HELLO", "FUNCTION STATS", "FUNCTION LIST", "TIME", "ROLE", "INFO", "CONFIG GET", "FCALL_RO"}, map[string]string{"CONFIG GET": "empty, two large texts, a text and a list, ten texts, twenty, series"}},
		{"--cluster status", []string{"CLUSTER SHARDS"}, nil},
		{"--cluster doctor", []string{"CLUSTER SHARDS", "CLUSTER INFO"}, nil},
	} {
		words, cluster := strings.Fields(tt.command), false
		if cluster = words[0] == "--cluster"; cluster {
			words = words[1:]
		}
		for _, step := range tt.steps {
			srv := must[*embedded.Server](t)(embedded.Start(embedded.WithLibrary(functions.Source()), embedded.WithTime(began)))
			must[any](t)(srv.Do("FCALL", "ratelimit_take", "2", "k", "user:1", "5/m", "TRACK"))
			must[any](t)(srv.Do("FCALL", "ratelimit_override", "1", "jobs", "concurrency 5 lease=1m", "3600000"))
			if words[0] == "deploy" {
				_, _ = srv.Do("FUNCTION", "DELETE", "ratelimit")
			}
			var mu sync.Mutex
			var shape string
			asked := false
			addr := standIn(t, srv, cluster, func(words []string) string {
				mu.Lock()
				defer mu.Unlock()
				if !strings.HasPrefix(strings.ToUpper(strings.Join(words, " "))+" ", step+" ") {
					return ""
				}
				asked = true
				return shapes[shape]
			})
			for name := range shapes {
				if slices.Contains(strings.Split(tt.fine[step], ", "), name) {
					continue
				}
				mu.Lock()
				shape, asked = name, false
				mu.Unlock()
				scheme := "redis://"
				if cluster {
					scheme = "redis+cluster://"
				}
				got := run(t, []string{"REDIS_URL=" + scheme + addr}, words...)
				failed, said := got.code == exitError, got.stderr
				if words[0] == "doctor" {
					failed, said = got.code == exitDiffers || strings.Contains(got.stdout, "not checked: "), got.stdout
				}
				mu.Lock()
				wasAsked := asked // copied, because a connection that is still open may send more commands
				mu.Unlock()
				if !wasAsked || !failed || !strings.Contains(said, "127.0.0.1:") && !strings.Contains(said, " returned ") && !strings.Contains(said, "redis: nil") {
					t.Errorf("%s, %s replied with %s: exit code %d, %s", tt.command, step, name, got.code, got.stdout+got.stderr)
				}
			}
			_ = srv.Close()
		}
	}
}
