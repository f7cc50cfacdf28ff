package lua_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestStoredBytesAreNotShown checks that replies and errors never contain a stored value that no
// limiter wrote. A stored value may be a password or a session token, and errors appear in logs and
// on web pages.
func TestStoredBytesAreNotShown(t *testing.T) {
	const secret = "5ecret"
	type value struct{ kind, value string }
	values := []value{
		{"list", secret}, {"set", secret}, {"stream", secret + "\n" + secret}, {"hash", secret + "\n" + secret}, {"hash", "first\n" + secret},
		{"hash", "first\n1\nlast\n2\nallowed\n" + secret}, {"hash", "first\n1\nlast\n2\n" + secret + "\n" + secret},
		{"zset", secret + "\n1700000005000"}, {"zset", "lease:" + secret + "\n1700000005000"},
	}
	for _, begin := range nearStates {
		values = append(values, value{"string", begin + secret})
	}
	calls := []string{
		"reset|1|k", "block|1|k|1000", "unblock|1|k", "override|1|k|1/s|1000",
		"override|1|k|concurrency 2 lease=30s|1000", "override_end|1|k", "usage|1|k", "take|2|other|k|1/s|ONCE|5000", "take|2|other|k|1/s|TRACK",
		"acquire|1|k|concurrency 2 lease=30s|x", "renew|1|k|concurrency 2 lease=30s|x", "release|1|k|concurrency 2 lease=30s|x",
	}
	for _, limit := range limitsForGarbage {
		calls = append(calls, "take|1|k|"+limit, "peek|1|k|"+limit, "refund|1|k|"+limit)
	}
	server := offline{start(t)}
	for _, v := range values {
		for _, ttl := range []int64{0, 5000} {
			for _, call := range calls {
				empty(t, server)
				if !put(server, v.kind, "k", v.value, ttl) {
					t.Fatalf("the server does not take the %s %q", v.kind, v.value)
				}
				words := strings.Split(call, "|")
				reply, err := server.Do(append([]string{"FCALL", "ratelimit_" + words[0]}, words[1:]...)...)
				if text := fmt.Sprint(reply, err); strings.Contains(text, secret) {
					t.Errorf("%s on the %s %q: %s", call, v.kind, v.value, text)
				}
			}
		}
	}
}
