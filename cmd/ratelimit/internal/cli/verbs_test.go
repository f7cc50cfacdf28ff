package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/overrides"
	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/scan"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// line is one command line against a server, at a given time after the start, and its output.
type line struct {
	at   time.Duration
	args []string
	code int
	want string // stdout
}

func runLines(t *testing.T, srv *embedded.Server, lines []line) {
	t.Helper()
	for _, l := range lines {
		srv.SetTime(began.Add(l.at))
		run(t, []string{redisURL(srv.Addr())}, l.args...).want(t, l.code, l.want+"\n", "")
	}
}

func TestRefund(t *testing.T) {
	runLines(t, withLibrary(t), []line{
		{0, []string{"take", "{a}:x", "10/s", "{a}:y", "10/s", "--cost", "5,7"}, exitFine, "allowed  3 of 10 left for {a}:y (10/s) · full again in 700 ms"},
		{0, []string{"refund", "{a}:x", "10/s", "{a}:y", "10/s", "--cost", "1,2"}, exitFine, "given back  5 of 10 left for {a}:y (10/s) · full again in 500 ms"},
		{0, []string{"refund", "{a}:y", "10/s", "--cost", "100"}, exitFine, "given back  10 of 10 left · full now"},
		{0, []string{"refund", "{a}:x", "10/s", "--json"}, exitFine,
			"{\n  \"allowed\": true,\n  \"limit\": 10,\n  \"remaining\": 7,\n  \"retry_after_ms\": 0,\n  \"reset_after_ms\": 300,\n  \"index\": 1,\n  \"key\": \"{a}:x\"\n}"},
		{0, []string{"block", "{a}:x", "--for", "5s"}, exitFine, "blocked 1 key for 5 s"},
		{0, []string{"refund", "{a}:x", "10/s"}, exitDiffers, "blocked, not given back  0 of 10 left · try again in 5 s · full again in 5 s"},
	})
}

func TestBlocks(t *testing.T) {
	srv := withLibrary(t)
	runLines(t, srv, []line{
		{0, []string{"block", "{a}:x", "{a}:y", "--for", "1d12h"}, exitFine, "blocked 2 keys for 1 d 12 h"},
		{0, []string{"block", "{a}:x", "{a}:y", "--for", "1h30m"}, exitFine, "blocked 2 keys for 1 h 30 min"},
		{0, []string{"block", "{a}:x", "--for=2ms", "--json"}, exitFine, "{\n  \"blocked\": 1,\n  \"for_ms\": 2\n}"},
		{0, []string{"block", "{a}:y", "--for=2ms", "--extend"}, exitFine, "blocked 1 key for at least 2 ms"},
		{time.Second, []string{"take", "{a}:x", "1/m"}, exitFine, "allowed  0 of 1 left · full again in 1 min"},
		{time.Second, []string{"take", "{a}:y", "1/m"}, exitDiffers, "denied   0 of 1 left · try again in 1 h 30 min · full again in 1 h 30 min"},
		{time.Second, []string{"unblock", "{a}:x", "{a}:y"}, exitFine, "unblocked 1 of 2 keys"},
		{time.Second, []string{"block", "{a}:g", "--for", "1m", "--max", "1h", "--forget", "1d"}, exitFine, "blocked 1 key for at least 1 min, or until an earlier block ends"},
		{2 * time.Minute, []string{"block", "{a}:g", "--for", "1m", "--max", "1h", "--forget", "1d"}, exitFine, "blocked 1 key for at least 1 min, or until an earlier block ends"},
		{2 * time.Minute, []string{"take", "{a}:g", "10/s", "--dry-run", "--penalty"}, exitDiffers,
			"would be denied  0 of 10 left · try again in 2 min · full again in 2 min\n{a}:g: the last penalty was 2 min long, forgotten in 1 d 1 h"},
		{2 * time.Minute, []string{"unblock", "{a}:g"}, exitFine, "unblocked 1 of 1 key"},
		{time.Second, []string{"unblock", "{a}:x", "{a}:y"}, exitFine, "nothing to lift: no key was blocked"},
		{time.Second, []string{"unblock", "{a}:x", "--json"}, exitFine, "{\n  \"unblocked\": 0,\n  \"keys\": 1\n}"},
		{time.Second, []string{"take", "{a}:y", "1/m"}, exitFine, "allowed  0 of 1 left · full again in 1 min"},
	})
}

func TestOverrides(t *testing.T) {
	srv := withLibrary(t)
	runLines(t, srv, []line{
		{0, []string{"override"}, exitFine, "no key has an override or a block"},
		{0, []string{"take", "{a}:x", "1/m"}, exitFine, "allowed  0 of 1 left · full again in 1 min"},
		{0, []string{"override", "{a}:x", "{a}:y", "60/h", "--for", "30d"}, exitFine, "overrode 2 keys with 60/h for 30 d"},
		{0, []string{"override", "{a}:y", "6/m, 60/h", "--for=2h", "--json"}, exitFine, "{\n  \"overridden\": 1,\n  \"limit\": \"6/m, 60/h\",\n  \"for_ms\": 7200000\n}"},
		{0, []string{"override", "jobs\x1b[31m", "concurrency 5 lease=1m", "--for=1h"}, exitFine, "overrode 1 key with concurrency 5 lease=1m for 1 h"},
		{0, []string{"block", "{a}:y", "--for", "90m"}, exitFine, "blocked 1 key for 1 h 30 min"},
		{time.Hour / 2, []string{"take", "--dry-run", "{a}:x", "1/m"}, exitFine, "would be allowed  59 of 60 left after it · full again in 1 min"},
		{time.Hour / 2, []string{"block", "{a}:z", "--for", "3h"}, exitFine, "blocked 1 key for 3 h"},
		{time.Hour / 2, []string{"override"}, exitFine, `4 keys with an override or a block

KEY             LIMIT                    ENDS IN     BLOCKED FOR
"jobs\x1b[31m"  concurrency 5 lease=60s  30 min
{a}:x           60/h                     30 d
{a}:y           6/m, 60/h                1 h 30 min  1 h
{a}:z                                                3 h`},
		{time.Hour / 2, []string{"override", "--match", "*z", "--json"}, exitFine, `{
  "complete": true,
  "more": 0,
  "refused": 0,
  "overrides": [
    {
      "key": "{a}:z",
      "limit": "",
      "ends_ms": 0,
      "blocked_until_ms": 1700012600000
    }
  ]
}`},
		{time.Hour / 2, []string{"unblock", "{a}:z"}, exitFine, "unblocked 1 of 1 key"},
		{time.Hour / 2, []string{"override", "--match", "*y", "--json"}, exitFine, `{
  "complete": true,
  "more": 0,
  "refused": 0,
  "overrides": [
    {
      "key": "{a}:y",
      "limit": "6/m, 60/h",
      "ends_ms": 1700007200000,
      "blocked_until_ms": 1700005400000
    }
  ]
}`},
		{time.Hour / 2, []string{"override", "--end", "{a}:x", "{a}:z"}, exitFine, "ended the overrides of 1 of 2 keys"},
		{time.Hour / 2, []string{"override", "--end", "{a}:x"}, exitFine, "nothing to end: no key had an override"},
		{time.Hour / 2, []string{"override", "--end", "{a}:y", "--json"}, exitFine, "{\n  \"ended\": 1,\n  \"keys\": 1\n}"},
		{time.Hour / 2, []string{"take", "{a}:x", "1/m"}, exitFine, "allowed  0 of 1 left · full again in 1 min"},
		{time.Hour, []string{"override"}, exitFine, "1 key with an override or a block\n\nKEY    LIMIT  ENDS IN  BLOCKED FOR\n{a}:y                  30 min"},
	})
}

// The output reports the number of keys that it omits.
func TestOverridesThatAreNotShown(t *testing.T) {
	var stdout bytes.Buffer
	a := testApp(nil, &stdout, nil)
	found := overrides.Snapshot{
		Overrides: []overrides.Override{{Key: "k\xff", Limit: "5/m", Ends: began.Add(time.Hour), Read: began}}, More: 1200, Refused: 3,
		Progress: scan.Progress{Looked: 5000, Keys: 10_000},
	}
	require(t, a.printOverrides(found))
	wantText(t, "stdout", stdout.String(), "1,201 keys with an override or a block · 1,200 not shown; choose fewer keys with --match · of 5,000 keys looked at, 50 % · 3 keys may not be read by this user\n\n"+
		"KEY      LIMIT  ENDS IN  BLOCKED FOR\n\"k\\xff\"  5/m    1 h\n")
	if report := newOverridesReport(found, errors.New("broken")); report.Complete || report.More != 1200 || report.Refused != 3 || report.Error != "broken" ||
		string(report.Overrides[0].KeyBase64) != "k\xff" {
		t.Errorf("%+v", report)
	}
}

// Repeated calls with the same ONCE key are charged once, and decisions are counted under the usage
// key.
func TestUsageAndOnce(t *testing.T) {
	take := []string{"take", "{a}", "10/m", "--cost=4", "--once-key", "{a}:o1", "--once-ttl", "1m", "--usage-key", "{a}:usage"}
	other := []string{"take", "{a}", "10/m", "--cost=4", "--usage-key", "{a}:usage"}
	runLines(t, withLibrary(t), []line{
		{0, []string{"usage", "{a}:usage"}, exitFine, "nothing was counted under this key, or not for a day"},
		{0, []string{"usage", "{a}:usage", "--json"}, exitFine,
			"{\n  \"allowed\": 0,\n  \"denied\": 0,\n  \"cost\": 0,\n  \"first_ms\": 0,\n  \"last_ms\": 0,\n  \"interval_ms\": 60000,\n  \"series\": []\n}"},
		{0, take, exitFine, "allowed  6 of 10 left · full again in 24 s"},
		{0, take, exitFine, "allowed  6 of 10 left · full again in 24 s"},
		{0, other, exitFine, "allowed  2 of 10 left · full again in 48 s"},
		{0, other, exitDiffers, "denied   2 of 10 left · try again in 12 s · full again in 48 s"},
		{time.Minute, other, exitFine, "allowed  6 of 10 left · full again in 24 s"},
		{time.Minute, []string{"usage", "{a}:usage"}, exitFine, "3 allowed, 1 denied, cost 12 · from 2023-11-14 22:13:20 to 2023-11-14 22:14:20 UTC\n\n" +
			"MINUTE            ALLOWED  DENIED\n2023-11-14 22:13  2        1       ████████████████████░░░░░░░░░░\n2023-11-14 22:14  1        0       ██████████"},
		{time.Minute, []string{"usage", "{a}:usage", "--json"}, exitFine,
			"{\n  \"allowed\": 3,\n  \"denied\": 1,\n  \"cost\": 12,\n  \"first_ms\": 1700000000000,\n  \"last_ms\": 1700000060000,\n  \"interval_ms\": 60000,\n" +
				"  \"series\": [\n    {\n      \"start_ms\": 1699999980000,\n      \"allowed\": 2,\n      \"denied\": 1\n    },\n" +
				"    {\n      \"start_ms\": 1700000040000,\n      \"allowed\": 1,\n      \"denied\": 0\n    }\n  ]\n}"},
	})
}

func TestLeases(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "tried", Limits: []functions.PolicyLimit{{Limit: "concurrency 1 lease=1m"}}, Shadow: true},
	)))
	srv := embedded.Run(t, embedded.WithLibrary(build.Text()), embedded.WithTime(began))
	const two = "concurrency 2 lease=1m"
	runLines(t, srv, []line{
		{0, []string{"acquire", "jobs", two, "a"}, exitFine, "acquired  1 of 2 left · lease a"},
		{0, []string{"acquire", "jobs", two, "a"}, exitFine, "acquired  1 of 2 left · lease a"},
		{0, []string{"acquire", "jobs", two, "b", "--json"}, exitFine,
			"{\n  \"allowed\": true,\n  \"limit\": 2,\n  \"remaining\": 0,\n  \"retry_after_ms\": 0,\n  \"reset_after_ms\": 60000,\n  \"index\": 1,\n  \"key\": \"jobs\",\n  \"lease_id\": \"b\",\n  \"lease_ms\": 60000\n}"},
		{30 * time.Second, []string{"acquire", "jobs", two, "c"}, exitDiffers, "denied  0 of 2 left · try again in 30 s"},
		{30 * time.Second, []string{"renew", "jobs", two, "a"}, exitFine, "renewed  0 of 2 left"},
		{30 * time.Second, []string{"renew", "jobs", two, "c"}, exitDiffers, "not held  0 of 2 left"},
		{30 * time.Second, []string{"release", "jobs", two, "c"}, exitDiffers, "not held"},
		{30 * time.Second, []string{"release", "jobs", two, "b"}, exitFine, "released"},
		{30 * time.Second, []string{"release", "jobs", two, "b", "--json"}, exitDiffers, "{\n  \"released\": false,\n  \"lease_id\": \"b\"\n}"},
		{2 * time.Minute, []string{"renew", "jobs", two, "a"}, exitDiffers, "not held  2 of 2 left"},
		{0, []string{"acquire", "t", "@tried", "a"}, exitFine, "acquired  0 of 1 left · lease a"},
		{0, []string{"acquire", "t", "@tried", "b"}, exitFine, "allowed  0 of 1 left · a shadow policy would deny it: no lease is held"},
	})
	first, second := run(t, []string{redisURL(srv.Addr())}, "acquire", "r", two), run(t, []string{redisURL(srv.Addr())}, "acquire", "r", two)
	id, _ := strings.CutPrefix(first.stdout, "acquired  1 of 2 left · lease ")
	if len(strings.TrimSpace(id)) < 26 || second.code != exitFine || strings.HasSuffix(second.stdout, id) {
		t.Errorf("%+v, %+v", first, second)
	}
}

func TestShadowPolicies(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "export", Limits: []functions.PolicyLimit{{Limit: "1/d"}}, Shadow: true},
		functions.Policy{Name: "calc", Limits: []functions.PolicyLimit{{Limit: "1/d"}}},
	)))
	srv := embedded.Run(t, embedded.WithLibrary(build.Text()), embedded.WithTime(began))
	runLines(t, srv, []line{
		{0, []string{"take", "k", "@export"}, exitFine, "allowed  0 of 1 left · full again in 1 d"},
		{0, []string{"take", "k", "@export"}, exitFine, "allowed  0 of 1 left · full again in 1 d · a shadow policy would deny it for k, and allow it in 1 d"},
		{0, []string{"take", "j", "@export", "--up-to", "5"}, exitFine, "allowed 5 of 5  0 of 1 left · full again in 1 d · a shadow policy would allow 1 for j"},
		{0, []string{"take", "--dry-run", "l", "@export", "--up-to", "2", "--json"}, exitFine, "{\n  \"allowed\": true,\n  \"taken\": 2,\n  \"limit\": 1,\n  \"remaining\": 0,\n" +
			"  \"retry_after_ms\": 0,\n  \"reset_after_ms\": 86400000,\n  \"index\": 1,\n  \"key\": \"l\",\n  \"shadow\": {\n    \"allowed\": true,\n    \"taken\": 1,\n" +
			"    \"retry_after_ms\": 0,\n    \"index\": 1\n  }\n}"},
	})
}
