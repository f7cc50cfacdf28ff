package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func must[T any](t testing.TB) func(T, error) T { return redistest.Must[T](t) }

var require = redistest.Require

// small holds the flags of a short run in which every contender still makes decisions.
var small = []string{"--redis=", "--keys", "200", "--calls", "200", "--warm-up", "20", "--rounds", "2"}

func testServer(t *testing.T) *server {
	t.Helper()
	s := must[*server](t)(startServer(t.Context()))
	t.Cleanup(s.close)
	return s
}

// TestRunMeasuresEveryCase runs all cases. A run checks each decision of each contender, so a
// successful run shows that calls are allowed or denied as each case claims.
func TestRunMeasuresEveryCase(t *testing.T) {
	var stdout bytes.Buffer
	require(t, run(t.Context(), append(small, "--json", "--rounds", "1"), &stdout, io.Discard))
	var got report
	require(t, json.Unmarshal(stdout.Bytes(), &got))
	if len(got.Cases) != 41 {
		t.Errorf("%d cases were measured, want 41", len(got.Cases))
	}
	if !strings.HasPrefix(got.Server, "Redis ") && !strings.HasPrefix(got.Server, "Valkey ") {
		t.Errorf("the server is %q, want its name and version", got.Server)
	}
	seen := map[string]bool{}
	for _, c := range got.Cases {
		for i, line := range c.Rows {
			seen[strings.Fields(line.Name)[0]] = true
			if len(line.Rounds) != 1 || line.Least <= 0 || line.Median < line.Least || line.Most < line.Median {
				t.Errorf("%s, %s: %+v is not one round's figures", c.Name, line.Name, line)
			}
			if (line.Ratio == nil) != (i == 0 || line.Bound > 0) {
				t.Errorf("%s, %s: row %d has the ratio %v", c.Name, line.Name, i, line.Ratio)
			}
		}
	}
	for _, name := range []string{"ratelimit_take", "redis_rate", "ulule/limiter", "seed", "INCRBY", "FCALL", "EVALSHA", "two-counter", "ratelimit_renew", "block:"} {
		if !seen[name] {
			t.Errorf("no row of %s", name)
		}
	}
}

func TestRunComparesLibraries(t *testing.T) {
	file := filepath.Join(t.TempDir(), "other.lua")
	require(t, os.WriteFile(file, []byte(functions.Source()+"\n-- the other one\n"), 0o600))
	var stdout bytes.Buffer
	require(t, run(t.Context(), append(small, "--only", "^gcra, denied$", "--library", file), &stdout, io.Discard))
	for _, want := range []string{"this checkout (build " + functions.BuildID() + ")", "other.lua"} {
		if !strings.Contains(stdout.String(), "\n  "+want) {
			t.Errorf("no row of %s in\n%s", want, stdout.String())
		}
	}
	if strings.Contains(stdout.String(), "redis_rate") {
		t.Errorf("a peer took part:\n%s", stdout.String())
	}
}

// TestEnterLoadsInTurns checks that each turn runs on the library of its own contender.
func TestEnterLoadsInTurns(t *testing.T) {
	s := testServer(t)
	r := runner{rdb: s.rdb}
	texts := []*library{{name: "a", text: functions.Source()}, {name: "b", text: functions.Source() + "\n"}}
	for _, lib := range []*library{texts[0], texts[1], texts[1], texts[0]} {
		require(t, r.enter(t.Context(), &contender{library: lib}))
		loaded := must[[]redis.Library](t)(s.rdb.FunctionList(t.Context(), redis.FunctionListQuery{WithCode: true}).Result())
		if len(loaded) != 1 || loaded[0].Code != lib.text {
			t.Fatalf("after entering %s another text is loaded", lib.name)
		}
	}
}

// TestRunRefusesAWrongDecision checks that a run fails if a contender's decision is not the one
// that the case expects.
func TestRunRefusesAWrongDecision(t *testing.T) {
	s := testServer(t)
	lib := &library{name: "this", text: functions.Source()}
	r := runner{rdb: s.rdb, plan: plan{Keys: 10, Calls: 10, Rounds: 1, Batch: 5}}
	allowing := workload{keys: hot, count: 1000, period: time.Hour, cost: 1} // expects denials, but the calls are allowed
	_, err := r.run(t.Context(), benchCase{work: allowing, contenders: []contender{take(lib, "tk0", "", allowing)}})
	if err == nil || !strings.Contains(err.Error(), "allowed is true") {
		t.Errorf("the error is %v, want one that says allowed is true", err)
	}
	erring := workload{keys: absent, allow: true, count: -1, period: time.Hour, cost: 1}
	_, err = r.run(t.Context(), benchCase{work: erring, contenders: []contender{take(lib, "tk0", "", erring)}})
	if err == nil || !strings.Contains(err.Error(), "RATELIMIT BADLIMIT") {
		t.Errorf("the error is %v, want the server's", err)
	}
}

type argsHook struct{ sent [][]any }

func (h *argsHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *argsHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (h *argsHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.sent = append(h.sent, cmd.Args())
		return next(ctx, cmd)
	}
}

// TestRecorderCatchesWhatThePeerSends checks that the recorder captures exactly the command that
// redis_rate sends without a recorder.
func TestRecorderCatchesWhatThePeerSends(t *testing.T) {
	s := testServer(t)
	w := workload{count: 7000, period: time.Hour, cost: 3}
	b := caseBuilder{ctx: t.Context(), rdb: s.rdb}
	c := b.redisRate(w)
	if b.err != nil {
		t.Fatal(b.err)
	}
	caught := c.call(42)
	if n := s.rdb.Exists(t.Context(), key("rate", 42)).Val(); n != 0 {
		t.Error("building the call has sent it")
	}
	hook := &argsHook{}
	s.rdb.AddHook(hook)
	result, err := redis_rate.NewLimiter(s.rdb).AllowN(t.Context(), "0000042",
		redis_rate.Limit{Rate: 7000, Burst: 7000, Period: time.Hour}, 3)
	if err != nil || result.Allowed != 3 {
		t.Fatalf("redis_rate answers %+v, %v", result, err)
	}
	if len(hook.sent) != 1 || len(caught) != 1 || !slices.Equal(hook.sent[0], caught[0].Args()) {
		t.Errorf("caught %v, and redis_rate sends %v", caught[0].Args(), hook.sent)
	}
}

func TestOpenServerRefusesOneInUse(t *testing.T) {
	s := testServer(t)
	url := "redis://" + s.rdb.Options().Addr
	refused := func(want string) {
		t.Helper()
		other, err := openServer(t.Context(), url)
		if err == nil {
			other.close()
			t.Fatalf("the server was taken, want an error with %q", want)
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one with %q", err, want)
		}
	}
	s.rdb.Set(t.Context(), "somebody's", "data", 0)
	refused("holds 1 keys")
	s.rdb.FlushDB(t.Context())
	s.rdb.FunctionLoad(t.Context(), "#!lua name=somebodys\nredis.register_function('f', function() end)")
	refused(`holds the library "somebodys"`)
	s.rdb.FunctionFlush(t.Context())

	other := must[*server](t)(openServer(t.Context(), url))
	other.rdb.Set(t.Context(), "left", "behind", 0)
	other.rdb.FunctionLoad(t.Context(), floorLibrary)
	other.close()
	if n := s.rdb.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys were left behind", n)
	}
	if left := s.rdb.FunctionList(t.Context(), redis.FunctionListQuery{}).Val(); len(left) != 0 {
		t.Errorf("%v were left behind", left)
	}
}

func TestRunRefusesBadUsage(t *testing.T) {
	notOurs := filepath.Join(t.TempDir(), "not.lua")
	require(t, os.WriteFile(notOurs, []byte("#!lua name=another\n"), 0o600))
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"fast"}, `"fast": no arguments`},
		{[]string{"--only", "("}, `--only "("`},
		{[]string{"--rounds", "0"}, "--rounds is 0"},
		{[]string{"--library", notOurs}, "#!lua name=ratelimit"},
		{[]string{"--library", notOurs + "x"}, "no such file"},
		{[]string{"--redis", "nonsense://"}, "redis://host:port"},
		{[]string{"--redis", "redis://127.0.0.1:1"}, "no server answers at 127.0.0.1:1"},
		{[]string{"--redis=", "--only", "no such case"}, "none of the cases"},
		{[]string{"--redis=", "--keys", "1", "--calls", "50000"}, "give more --keys"},
		{[]string{"clients", "fast"}, `"fast": no arguments`},
		{[]string{"clients", "--rounds", "0"}, "--rounds is 0"},
		{[]string{"clients", "--turn", "0s"}, "--turn 0s"},
		{[]string{"clients", "--redis", "nonsense://"}, "redis://host:port"},
	} {
		err := run(t.Context(), test.args, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: the error is %v, want one with %q", test.args, err, test.want)
		}
	}
}
