package limittext_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ratelimit-functions/ratelimit/client/internal/limittext"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/respmap"
)

// TestAgreesWithTheLibrary generates limits, most of them valid, and checks that Parse and the
// library parse them alike.
func TestAgreesWithTheLibrary(t *testing.T) {
	server := embedded.Run(t, embedded.WithLibrary(functions.Source()))
	for _, text := range texts {
		compare(t, server, text)
	}
	rapid.Check(t, func(t *rapid.T) { compare(t, server, draw(t)) })
}

// texts lists limits that are unlikely to be generated.
var texts = []string{
	"", " ", "@api", ",", "5/m,", "5", "5/", "/m", "5/m5", "gcra", "gcra gcra 5/m", "gcra 5/m burst", "5/m burst=", "\t5/m\n",
	"5/m burst=9 burst=9", "5/1h30m", "5/36500d", "5/36501d", "1/36500d burst=2", "0/m", "0/m, 5/m", "0/m burst=1", "fixed_window 0/mo",
	"9007199254740992/s", "9007199254740993/s", "leaky_bucket 9007199254740992/s", "9007199254740992/h, 5/m", "5/m, 9007199254740992/h burst=1",
	"9007199254740992/2h burst=3", "9007199254740991/36500d burst=1000", "token_bucket 9007199254740992/s",
	"1000003/s burst=13510771860", "1000003/s burst=13510771861", "leaky_bucket 7000001/36500d burst=4998287", "5/m, 7000001/36500d burst=4998288", "00000000000000000000005/m", "5/00000000000000000000000000000000001s", "-1/s", "5.0/s", "1e3/s",
	"sliding_log 100000/m", "sliding_log 100001/m", "sliding_log 50000/s, 50001/m", "sliding_window 9/10s buckets=7", "sliding_window 9/m buckets=1001",
	"fixed_window 9/mo", "fixed_window 9/2mo align=clock", "fixed_window 9/01mo align=clock", "fixed_window 9/w align=clock from=3",
	"fixed_window 9/mo align=clock from=31 zone=+18:00", "fixed_window 9/mo align=clock zone=+18:01", "fixed_window 9/h align=clock zone=+01:00",
	"fixed_window 9/d zone=+01:00", "9/mo", "concurrency 3 lease=30s", " concurrency 3  lease=30s ", "concurrency 3", "concurrency 0 lease=1s",
	"concurrency 5000 lease=1ms", "concurrency 5001 lease=1ms", "concurrency 3 lease=1mo", "concurrency", strings.Repeat("1/s,", 15) + "1/s",
	strings.Repeat("1/s,", 16) + "1/s", strings.Repeat(" ", 1021) + "1/s", strings.Repeat(" ", 1022) + "1/s",
	"sliding_window 1000/s buckets=1000" + strings.Repeat(", 1/s buckets=1000", 2), "sliding_window 1000/s buckets=1000" + strings.Repeat(", 1/s buckets=1000", 2) + ", 1/s",
}

// TestEveryAlgorithmIsKnown checks that Parse knows the algorithms of the library.
func TestEveryAlgorithmIsKnown(t *testing.T) {
	files, err := filepath.Glob("../../../functions/src/algorithms/*.lua")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d algorithms, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".lua")
		if _, err := limittext.Parse(name + " 5/10s"); err != nil {
			t.Error(err)
		}
	}
}

func draw(t *rapid.T) string {
	pick := func(from ...string) string { return rapid.SampledFrom(from).Draw(t, "word") }
	number := func() string {
		return fmt.Sprint(rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(1, 1e6), rapid.Int64Range(0, 1<<54)).Draw(t, "number"))
	}
	var rates []string
	for range rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "rates") {
		rate := number() + "/" + pick("", "", number()) + pick("ms", "s", "m", "h", "d", "w", "mo", "y", "x")
		for range rapid.SampledFrom([]int{0, 0, 1, 2, 3}).Draw(t, "options") {
			rate += pick(" ", "  ") + pick("burst=", "buckets=", "from=", "align=", "zone=") + pick("clock", "clock", number(), "+05:30", "-18:00")
		}
		rates = append(rates, rate)
	}
	return pick("", "gcra ", "token_bucket ", "leaky_bucket ", "fixed_window ", "fixed_window ", "sliding_window ", "sliding_log ", "other ") +
		strings.Join(rates, pick(",", ", ", " , "))
}

func compare(t interface{ Errorf(string, ...any) }, server *embedded.Server, text string) {
	got, err := limittext.Parse(text)
	if got.Algorithm == limittext.Leases {
		reply, refused := server.Do("FCALL", "ratelimit_acquire", "1", "k", text, "id")
		if (err == nil) != (refused == nil) {
			t.Errorf("%q: %v; the library: %v, %v", text, err, reply, refused)
		}
		_, _ = server.Do("DEL", "k")
		return
	}
	reply, refused := server.Do("FCALL_RO", "ratelimit_info", "0", text)
	if refused != nil {
		if err == nil {
			t.Errorf("%q: accepted, and the library refuses it: %v", text, refused)
		}
		return
	}
	if err != nil {
		t.Errorf("%q: %v, and the library accepts it", text, err)
		return
	}
	fields := respmap.Of(reply)
	want := limittext.Limit{Algorithm: fields["algorithms"].([]any)[0].(string)}
	for numbers := range slices.Chunk(fields["limit"].([]any)[0].([]any)[1:], 3) {
		want.Rates = append(want.Rates, limittext.Rate{
			N: numbers[0].(int64), Period: time.Duration(numbers[1].(int64)) * time.Millisecond, Capacity: numbers[2].(int64),
		})
	}
	if want.Algorithm != got.Algorithm || !slices.Equal(want.Rates, got.Rates) {
		t.Errorf("%q: %+v; the library reads %+v", text, got, want)
	}
}
