package cli

import (
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// Each step runs one command line against the same server, at a given time after the start.
func TestDecisions(t *testing.T) {
	const (
		allowed = exitFine
		denied  = exitDiffers
	)
	for _, tt := range []struct {
		name  string
		lines []line
	}{
		{"allowed until it is denied, and again later", []line{
			{0, []string{"take", "k", "2/10s"}, allowed, "allowed  1 of 2 left · full again in 5 s"},
			{0, []string{"take", "k", "2/10s"}, allowed, "allowed  0 of 2 left · full again in 10 s"},
			{0, []string{"take", "k", "2/10s"}, denied, "denied   0 of 2 left · try again in 5 s · full again in 10 s"},
			{4999 * time.Millisecond, []string{"take", "k", "2/10s"}, denied, "denied   0 of 2 left · try again in 1 ms · full again in 5.01 s"},
			{5 * time.Second, []string{"take", "k", "2/10s"}, allowed, "allowed  0 of 2 left · full again in 10 s"},
		}},
		{"a dry run takes nothing", []line{
			{0, []string{"take", "--dry-run", "k", "1/m"}, allowed, "would be allowed  0 of 1 left after it · full again in 1 min"},
			{0, []string{"take", "--dry-run", "k", "1/m"}, allowed, "would be allowed  0 of 1 left after it · full again in 1 min"},
			{0, []string{"take", "k", "1/m"}, allowed, "allowed  0 of 1 left · full again in 1 min"},
			{0, []string{"take", "--dry-run", "k", "1/m"}, denied, "would be denied  0 of 1 left · try again in 1 min · full again in 1 min"},
		}},
		{"costs", []line{
			{0, []string{"take", "k", "10/s", "--cost", "0"}, allowed, "allowed  10 of 10 left · full now"},
			{0, []string{"take", "k", "10/s", "--cost", "7"}, allowed, "allowed  3 of 10 left · full again in 700 ms"},
			{0, []string{"take", "k", "10/s", "--cost", "11"}, denied, "denied   3 of 10 left · never: the cost is more than the limit ever holds · full again in 700 ms"},
			{0, []string{"take", "big", "2000000/d", "--cost", "500000"}, allowed, "allowed  1,500,000 of 2,000,000 left · full again in 6 h"},
		}},
		{"as many as fit", []line{
			{0, []string{"take", "k", "10/s", "--up-to", "7"}, allowed, "allowed 7 of 7  3 of 10 left · full again in 700 ms"},
			{0, []string{"take", "--dry-run", "k", "10/s", "--up-to", "7"}, allowed, "would be allowed 3 of 7  0 of 10 left after it · full again in 1 s"},
			{0, []string{"take", "k", "10/s", "--up-to", "0"}, denied, "denied   3 of 10 left · full again in 700 ms"},
			{0, []string{"take", "{k}", "10/s", "{k}:2", "3/s", "--up-to", "7", "--json"}, allowed,
				"{\n  \"allowed\": true,\n  \"taken\": 3,\n  \"limit\": 3,\n  \"remaining\": 0,\n  \"retry_after_ms\": 0,\n  \"reset_after_ms\": 1000,\n  \"index\": 2,\n  \"key\": \"{k}:2\"\n}"},
			{0, []string{"take", "k", "10/s", "--up-to", "7", "--once-key", "o", "--once-ttl", "1m"}, allowed, "allowed 3 of 7  0 of 10 left · full again in 1 s"},
			{0, []string{"take", "k", "10/s", "--up-to", "7", "--once-key", "o", "--once-ttl", "1m"}, allowed, "allowed 3 of 7  0 of 10 left · full again in 1 s"},
			{0, []string{"take", "k", "10/s", "--up-to", "7"}, denied, "denied   0 of 10 left · try again in 100 ms · full again in 1 s"},
			{0, []string{"take", "k", "10/s", "--up-to", "7", "--json"}, denied,
				"{\n  \"allowed\": false,\n  \"taken\": 0,\n  \"limit\": 10,\n  \"remaining\": 0,\n  \"retry_after_ms\": 100,\n  \"reset_after_ms\": 1000,\n  \"index\": 1,\n  \"key\": \"k\"\n}"},
		}},
		{"each key", []line{
			{0, []string{"take", "{a}:ann", "2/s", "{a}", "10/s", "--cost", "2,1", "--each"}, allowed,
				"allowed  0 of 2 left for {a}:ann (2/s) · full again in 1 s\n{a}:ann: allowed  0 of 2 left · full again in 1 s\n{a}: allowed  9 of 10 left · full again in 100 ms"},
			{0, []string{"take", "--dry-run", "{a}:ann", "2/s", "{a}", "10/s", "--each"}, denied,
				"would be denied  0 of 2 left for {a}:ann (2/s) · try again in 500 ms · full again in 1 s\n{a}:ann: would be denied  0 of 2 left · try again in 500 ms · full again in 1 s\n{a}: would be allowed  9 of 10 left · full again in 100 ms"},
			{0, []string{"take", "--dry-run", "{b}:ann", "2/s", "{b}", "10/s", "--each"}, allowed,
				"would be allowed  1 of 2 left for {b}:ann (2/s) after it · full again in 500 ms\n{b}:ann: would be allowed  1 of 2 left after it · full again in 500 ms\n{b}: would be allowed  9 of 10 left after it · full again in 100 ms"},
			{0, []string{"take", "{a}", "10/s", "--each", "--up-to", "20"}, allowed, "allowed 9 of 20  0 of 10 left · full again in 1 s\n{a}: allowed  0 of 10 left · full again in 1 s"},
			{0, []string{"take", "{a}:ann", "2/s", "{a}", "0/m", "--each", "--json"}, denied,
				"{\n  \"allowed\": false,\n  \"limit\": 2,\n  \"remaining\": 0,\n  \"retry_after_ms\": -1,\n  \"reset_after_ms\": 1000,\n  \"index\": 1,\n  \"key\": \"{a}:ann\",\n" +
					"  \"each\": [\n    {\n      \"key\": \"{a}:ann\",\n      \"allowed\": false,\n      \"limit\": 2,\n      \"remaining\": 0,\n      \"retry_after_ms\": 500,\n      \"reset_after_ms\": 1000\n    },\n" +
					"    {\n      \"key\": \"{a}\",\n      \"allowed\": false,\n      \"limit\": 0,\n      \"remaining\": 0,\n      \"retry_after_ms\": -1,\n      \"reset_after_ms\": 0\n    }\n  ]\n}"},
			{0, []string{"refund", "{a}:ann", "2/s", "{a}", "10/s", "--each"}, allowed,
				"given back  1 of 2 left for {a}:ann (2/s) · full again in 900 ms\n{a}:ann: given back  1 of 2 left · full again in 500 ms\n{a}: given back  1 of 10 left · full again in 900 ms"},
		}},
		{"nothing is ever allowed", []line{
			{0, []string{"take", "k", "0/m"}, denied, "denied   0 of 0 left · never: the cost is more than the limit ever holds"},
			{0, []string{"take", "k", "0/m", "--cost", "0"}, allowed, "allowed  0 of 0 left"},
		}},
		{"what was used", []line{
			{0, []string{"take", "k", "10/s", "--cost", "4", "--force"}, allowed, "charged  6 of 10 left · full again in 400 ms"},
			{0, []string{"take", "k", "10/s", "--cost", "9", "--force"}, allowed, "charged  0 of 10 left · room for one in 400 ms · full again in 1.3 s"},
			{0, []string{"take", "k", "10/s"}, denied, "denied   0 of 10 left · try again in 400 ms · full again in 1.3 s"},
			{0, []string{"refund", "k", "10/s", "--cost", "7", "--once-key", "o", "--once-ttl", "1m"}, allowed, "given back  4 of 10 left · full again in 600 ms"},
			{0, []string{"refund", "k", "10/s", "--cost", "7", "--once-key", "o", "--once-ttl", "1m"}, allowed, "given back  4 of 10 left · full again in 600 ms"},
			{0, []string{"take", "--dry-run", "k", "10/s"}, allowed, "would be allowed  3 of 10 left after it · full again in 700 ms"},
			{0, []string{"block", "k", "--for", "1m"}, allowed, "blocked 1 key for 1 min"},
			{0, []string{"take", "k", "10/s", "--force"}, denied, "blocked, not charged  0 of 10 left · try again in 1 min · full again in 1 min"},
		}},
		{"several keys: the binding one is named", []line{
			{0, []string{"take", "{a}:ann", "10/s", "{a}", "3/s", "--cost", "1,2"}, allowed, "allowed  1 of 3 left for {a} (3/s) · full again in 667 ms"},
			{0, []string{"take", "{a}:ann", "10/s", "{a}", "3/s", "--cost", "1", "--cost", "2"}, denied, "denied   1 of 3 left for {a} (3/s) · try again in 334 ms · full again in 667 ms"},
			{0, []string{"take", "--dry-run", "{a}:ann", "10/s"}, allowed, "would be allowed  8 of 10 left after it · full again in 200 ms"},
		}},
		{"an algorithm with options", []line{
			{0, []string{"take", "k", "fixed_window 2/h align=clock"}, allowed, "allowed  1 of 2 left · full again in 46 min 40 s"},
			{0, []string{"take", "month", "fixed_window 2/mo align=clock from=15 zone=+05:30"}, allowed, "allowed  1 of 2 left · full again in 29 d 21 h"},
		}},
		{"json", []line{
			{0, []string{"take", "{a}:x", "1/s", "{a}:y", "2/s", "--json"}, allowed,
				"{\n  \"allowed\": true,\n  \"limit\": 1,\n  \"remaining\": 0,\n  \"retry_after_ms\": 0,\n  \"reset_after_ms\": 1000,\n  \"index\": 1,\n  \"key\": \"{a}:x\"\n}"},
			{0, []string{"take", "--dry-run", "{a}:x", "1/s", "--json"}, denied,
				"{\n  \"allowed\": false,\n  \"limit\": 1,\n  \"remaining\": 0,\n  \"retry_after_ms\": 1000,\n  \"reset_after_ms\": 1000,\n  \"index\": 1,\n  \"key\": \"{a}:x\"\n}"},
			{0, []string{"take", "{a}:x", "1/s", "--json", "--cost=2"}, denied,
				"{\n  \"allowed\": false,\n  \"limit\": 1,\n  \"remaining\": 0,\n  \"retry_after_ms\": -1,\n  \"reset_after_ms\": 1000,\n  \"index\": 1,\n  \"key\": \"{a}:x\"\n}"},
		}},
		{"reset", []line{
			{0, []string{"take", "{a}:k", "1/m"}, allowed, "allowed  0 of 1 left · full again in 1 min"},
			{0, []string{"reset", "{a}:k", "{a}:other"}, exitFine, "forgot 1 of 2 keys"},
			{0, []string{"reset", "{a}:k"}, exitFine, "nothing to forget: no key held anything"},
			{0, []string{"take", "{a}:k", "1/m"}, allowed, "allowed  0 of 1 left · full again in 1 min"},
			{0, []string{"reset", "{a}:k", "--json"}, exitFine, "{\n  \"reset\": 1,\n  \"keys\": 1\n}"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			runLines(t, withLibrary(t), tt.lines)
		})
	}
}

// A class that leaves a part to others may never be allowed a cost that the limit holds. Of a guarantee and a pool,
// more may be left than the guarantee holds.
func TestDecisionsThatShare(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "c", Classes: map[string]int{"default": 20}, Limits: []functions.PolicyLimit{{Limit: "10/m"}}},
		functions.Policy{Name: "g", Borrow: true, Limits: []functions.PolicyLimit{{Key: "guarantee", Limit: "3/m"}, {Key: "pool", Limit: "10/m"}}})))
	runLines(t, embedded.Run(t, embedded.WithTime(began), embedded.WithLibrary(build.Text())), []line{
		{0, []string{"take", "k", "@c", "--cost", "9"}, exitDiffers, "denied   8 of 10 left · never: the cost is more than the limit ever leaves to this class of calls"},
		{0, []string{"take", "k", "@c", "--cost", "11", "--each"}, exitDiffers, "denied   8 of 10 left · never: the cost is more than the limit ever holds\nk: denied   8 of 10 left · never: the cost is more than the limit ever holds"},
		{0, []string{"take", "--policy", "g", "t", "p"}, exitFine, "allowed  9 left for t (@g) · full again in 20 s"},
	})
}
