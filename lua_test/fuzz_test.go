package lua_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/lua_test/model/generate"
)

// fillWithStates fills a server with one key for each algorithm's state, a block, leases, overrides, a
// stored reply and a usage record.
func fillWithStates(t *testing.T, server offline) {
	t.Helper()
	empty(t, server)
	for _, call := range someOfEach {
		words := strings.Split(call, "|")
		if _, err := server.Do(append([]string{"FCALL", "ratelimit_" + words[0]}, words[1:]...)...); err != nil {
			t.Fatalf("%s: %v", call, err)
		}
	}
}

func empty(t *testing.T, server offline) {
	t.Helper()
	require(t, server.SetTime(generate.StartUS))
	must[any](t)(server.Do("FLUSHALL"))
}

var someOfEach = []string{
	"take|1|gcra|3/3s", "take|1|fine|7/s", "take|1|rates|2/s, 3/m", "take|1|leaky|leaky_bucket 2/s burst=3",
	"take|1|tokens|token_bucket 5/10s", "take|1|window|fixed_window 3/10s", "take|1|windows|fixed_window 2/s, 3/10s",
	"take|1|sliding|sliding_window 10/10s buckets=5", "take|1|log|sliding_log 3/10s", "take|1|logs|sliding_log 2/s, 3/10s",
	"take|1|blocked|3/3s", "block|1|blocked|60000", "acquire|1|leases|concurrency 2 lease=30s|x", "block|1|leases|1000",
	"take|3|a|request|usage|100/m|ONCE|5000|TRACK",
	"override|1|overridden|7/s|60000", "take|1|overridden|3/3s", "take|1|ended|sliding_log 3/10s", "override|1|ended|9/s|1", "block|1|ended|60000",
	"override|1|slots|concurrency 1 lease=9s|60000", "acquire|1|slots|concurrency 2 lease=30s|x",
}

const (
	int64Max = "9223372036854775807"
	tooMuch  = "9007199254740993" // 2^53 + 1
	most     = "9007199254740992"
)

// arguments lists seeds: keys and arguments, separated by line breaks.
var arguments = []struct{ keys, args string }{
	{"", ""}, {"k", ""}, {"", "100/m"}, {"k", "100/m"}, {"k\nk", "100/m\n100/m"}, {"k\nl", "100/m"}, {"k", "100/m\n100/m"},
	{"k", "100/m\nCOST"}, {"k", "100/m\nCOST\n1.5"}, {"k", "100/m\nCOST\n" + tooMuch}, {"k", "100/m\nCOST\n" + most},
	{"k", "100/m\nCOST\n9007199254740991"}, {"k", "100/m\nCOST\n" + int64Max}, {"k", "100/m\nCOST\n-1"}, {"k", "100/m\nCOST\nnan"},
	{"k", "100/m\nCOST\ninf"}, {"k", "100/m\nCOST\n0x10"}, {"k", "100/m\nCOST\n1e3"}, {"k", "100/m\nCOST\n"}, {"k", "100/m\nCOST\n0"},
	{"k\nl", "3/3s\nsliding_log 3/10s\nCOST\n1\n2"}, {"k\nl", "3/3s\nsliding_log 3/10s\nCOST\n1\n2\n3"},
	// numbers near or above the largest that the library accepts
	{"k", int64Max + "/1ms"}, {"k", int64Max + "/1ms burst=" + int64Max}, {"k", "1/" + int64Max + "d"}, {"k", "1/ms burst=" + int64Max},
	{"k", "1/36500d burst=2"}, {"k", most + "/36500d"}, {"k", most + "/ms"}, {"k", "9007199254740991/7ms burst=" + most},
	{"k", "1/" + int64Max + "ms burst=" + int64Max + "\nCOST\n" + int64Max}, {"k", "1/" + most + "ms"}, {"k", most + "/" + most + "ms"},
	{"k", "1/ms burst=" + most + "\nCOST\n" + most}, {"k", "fixed_window " + most + "/s\nCOST\n" + most}, {"k", "sliding_window " + most + "/s buckets=1000\nCOST\n" + most},
	{"k", "sliding_log 100000/s\nCOST\n100000"}, {"k", "sliding_log 100001/s"}, {"k", "3/s\nUPTO\nCOST\n" + most}, {"k", "3/s\nUPTO\nUPTO"}, {"k", "3/s\nFORCE\nCOST\n" + most}, {"k", "3/s\nUPTO\nforce"}, {"k", "token_bucket " + most + "/s\nCOST\n" + most},
	{"k", "leaky_bucket 1/s burst=3153600000"}, {"k", "leaky_bucket 1/s burst=3153600001"}, {"k", "100000007/d"}, {"k", "18446744073709551616/s"},
	{"k", "-1/s"}, {"k", "-" + int64Max + "/s"}, {"k", "0/s"}, {"k", "0/s burst=1"}, {"k", "0/s, 1/s"}, {"k\nl", "0/s\n3/3s\nCOST\n2\nUPTO"}, {"k", "1/0s"}, {"k", "00000000000000000000000000000001/s"},
	{"k", "1/s,"}, {"k", ",1/s"}, {"k", "1/s,,1/s"}, {"k", strings.Repeat("1/s,", 15) + "1/s"}, {"k", strings.Repeat("1/s,", 16) + "1/s"},
	{"k", "gcra gcra 1/s"}, {"k", "gcra"}, {"k", "GCRA 1/s"}, {"k", "\x00/s"}, {"k", "1/s\x00"}, {"k", "1 / s"}, {"k", "%d/%s"}, {"k", "1/s %1"},
	{"k", strings.Repeat("x", 1025)}, {"k", strings.Repeat(" ", 1020) + "1/s"}, {"k", "@"}, {"k", "@policy"}, {"k", "@" + strings.Repeat("p", 2000)},
	{"k", "sliding_window 10/10s buckets=0"}, {"k", "sliding_window 10/10s buckets=1001"}, {"k", "sliding_window 10/10s buckets=7"},
	{"k", "fixed_window 5/m align=clock align=clock"}, {"k", "fixed_window 5/36500d align=clock"}, {"k", "sliding_window 5/36500d buckets=1000"},
	{"k", "fixed_window 5/mo align=clock from=31 zone=+05:30"}, {"k", "fixed_window 5/w align=clock zone=-18:00, 9/y align=clock"}, {"k", "fixed_window 5/mo"},
	{"k", "fixed_window 5/2mo align=clock"}, {"k", "fixed_window 5/mo align=clock from=32 zone=+25:00"}, {"k", "fixed_window 5/h align=clock zone=Europe/Berlin"}, {"k", "5/y"},
	{"k\nr", "1/s\nONCE\n5000"}, {"k\nr", "1/s\nEACH\nONCE\n5000"}, {"k\nl", "1/s\n0/m\neach"}, {"k", "1/s\nEACH\nEACH"}, {"request", "1/s\nEACH"}, {"k\nr", "1/s\nONCE\n0"}, {"k\nr", "1/s\nONCE\n3153600000001"}, {"k", "1/s\nONCE\n5000"}, {"k\nr", "1/s\nONCE"}, {"k\nr\nu", "1/s\nFORCE\nCOST\n9\nONCE\n5000\nTRACK"}, {"k\nl", "1/s\n0/m\nFORCE\neach"},
	{"k\nu", "1/s\nTRACK"}, {"k\nr\nu", "1/s\nONCE\n5000\nTRACK"}, {"k\nr\nu", "1/s\nTRACK\nTRACK\nONCE\n1"}, {"k\nk", "1/s\nTRACK"},
	{"k", "concurrency 2 lease=30s\nx"}, {"k", "concurrency 2 lease=30s\n"}, {"k", "concurrency 2 lease=30s\n" + strings.Repeat("x", 257)},
	{"k", "concurrency 2 lease=30s\nblocked"}, {"k", "concurrency " + most + " lease=36500d\nx"}, {"k", "concurrency 2\nx"}, {"leases", "concurrency 1 lease=1s\nx"},
	{"k", "5/s\n1000"}, {"overridden\nended", "leaky_bucket 5/s\n1000"}, {"slots\nleases", "concurrency 3 lease=1s\n1000"}, {"slots", "5/s\n1000"},
	{"overridden", "concurrency 3 lease=1s\n1000"}, {"k", "@policy\n1000"}, {"k", "0/s\n1000"}, {"k", "5/s\n" + tooMuch}, {"k", "5/s\n0"},
	{"overridden\nk", "0/s\n3/s\nCOST\n9\nUPTO\nEACH"}, {"overridden", "3/s\nFORCE\nCOST\n" + most}, {"ended\noverridden", "1/s\n1/s"}, {"overridden\nslots", ""},
	{"k", strings.TrimSuffix(strings.Repeat("1/s,", 6), ",") + "\n1000"}, {"k\noverridden", "1/s\nONCE\n5000"}, {"k\noverridden", "1/s\nTRACK"},
	{"slots", "concurrency 2 lease=30s\ny"}, {"slots", "concurrency 2 lease=30s\nx"},
	{"k", "1000"}, {"k", "1000\nEXTEND"}, {"blocked\nleases", "1000\nextend"}, {"k", "1000\nEXTEND\nEXTEND"}, {"k", "0"}, {"k", int64Max}, {"k", "3153600000000"}, {"k", "1e3"},
	{"gcra\nfine\nrates\nleaky\ntokens\nwindow\nwindows\nsliding\nlog\nlogs", strings.TrimSuffix(strings.Repeat("sliding_log 3/10s\n", 10), "\n")},
	{"gcra\nfine\nrates\nleaky\ntokens\nwindow\nwindows\nsliding\nlog\nlogs", strings.TrimSuffix(strings.Repeat("5/s, 6/m\n", 10), "\n")},
	{"blocked", "3/3s\nCOST\n0"}, {"usage", "3/3s"}, {"request", "3/3s"}, {"leases", "3/3s"}, {"gcra", "concurrency 2 lease=30s\nx"}, {"usage", ""}, {"gcra", ""},
	{"gcra\nusage", "3/3s\nTRACK"}, {"gcra\nrequest", "3/3s\nONCE\n5000"}, {"gcra\ntokens", "3/3s\nTRACK"}, {"gcra\ntokens", "3/3s\nONCE\n1"},
	{"\x00\xff", "3/3s"}, {"", "3/3s"}, {strings.Repeat("k", 2000), "3/3s"}, {strings.Repeat("k", 65536), "3/3s"},
	{strings.Repeat("k", 65537), "3/3s"}, {"k\n" + strings.Repeat("k", 65537), "3/3s\nTRACK"}, {strings.Repeat("k", 65537), "concurrency 2 lease=30s\nx"},
}

func split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// vocabulary returns every key and every argument of the seeds.
func vocabulary() (keys, words []string) {
	for _, seed := range arguments {
		keys = append(keys, split(seed.keys)...)
		words = append(words, split(seed.args)...)
	}
	slices.Sort(keys)
	slices.Sort(words)
	return slices.Compact(keys), slices.Compact(words)
}

// FuzzArguments passes arbitrary keys and arguments to every function. Each call must return a
// well-formed reply or an error that the contract defines, and a call that returns an error must
// change nothing. picks selects additional keys and arguments from the seeds, because a fuzzer that
// mutates bytes rarely produces an option name.
func FuzzArguments(f *testing.F) {
	knownKeys, words := vocabulary()
	for i, seed := range arguments {
		for verb := range verbs {
			f.Add(verb, seed.keys, seed.args, []byte{})
		}
		f.Add(0, seed.keys, seed.args, []byte{byte(i), byte(2 * i), byte(3 * i)})
	}
	server := offline{start(f)}
	f.Fuzz(func(t *testing.T, verb int, keys, args string, picks []byte) {
		fillWithStates(t, server)
		allKeys, allWords := split(keys), split(args)
		for i, pick := range picks {
			if i%3 == 0 {
				allKeys = append(allKeys, knownKeys[int(pick)%len(knownKeys)])
			} else {
				allWords = append(allWords, words[int(pick)%len(words)])
			}
		}
		callAndCheck(t, server, verb&(1<<30-1), allKeys, allWords)
	})
}

// limitsForGarbage lists the limits that FuzzGarbage uses.
var limitsForGarbage = []string{
	"3/3s", "7/s", "2/s, 3/m", "leaky_bucket 2/s burst=3", "token_bucket 5/10s", "fixed_window 3/10s", "fixed_window 5/m align=clock",
	"fixed_window 3/mo align=clock", "fixed_window 2/w align=clock, 3/y align=clock zone=+05:30",
	"fixed_window 2/s, 3/10s", "sliding_window 10/10s", "sliding_window 10/10s buckets=5", "sliding_log 3/10s", "sliding_log 2/s, 3/10s",
	"100000007/d", "1/365d", "1000000/s", "leaky_bucket 1/s, 1/h", "token_bucket 2/s, 3/10s", "sliding_window 2/s, 5/m",
}

var typesOfGarbage = []string{"string", "list", "set", "hash", "zset", "stream"}

// nearStates lists strings that resemble states but are not valid.
var nearStates = []string{
	"", "gcra", "gcra:", "gcra:0", "gcra:1700000000142857", "gcra:1700000000142857+", "gcra:1700000000142857+1", "gcra:1700000000142857+7",
	"gcra:1700000000142857+" + int64Max, "gcra:" + int64Max, "gcra:9999999999999999", "gcra:0000000000000000", "gcra:-100000000000000",
	"gcra:1700000000142857+1.5", "gcra:1e15", "gcra:nan", "gcra::", "gcra::18:1700000000142857+1", "gcra::99:1", "gcra::0:", "gcra::16:170000000014285716:1700000000142857",
	"gcra::" + int64Max + ":1", "gcra::-1:1", "leaky_bucket:1700000001500000", "leaky_bucket:", "leaky_bucket:x",
	"token_bucket:4:1700000000000000", "token_bucket:" + int64Max + ":1700000000000000", "token_bucket:0:0", "token_bucket:4:", "token_bucket:-1:1700000000000000", "token_bucket:-5:1700000000000000", "token_bucket:-6:1700000000000000", "token_bucket:-:0", "token_bucket:--1:0",
	"token_bucket:-" + int64Max + ":1700000000000000", "token_bucket:-0:9999999999999999",
	"token_bucket:4:99999999999999999999", "token_bucket:4:1700000000000000:", "token_bucket::18:4:1700000000000000",
	"4000000000000000000", "4000000000000000001", "4000000000000000003", "4009007199254740991", "4009007199254740992", "4009007199254740993",
	"4009999999999999999", "4010000000000000001", "400000000000000001", "40000000000000000001", "-4000000000000000001", "4000000000000000x01",
	"0", "1", "3", "-1", "1.5", "1e3", "03", " 3", "3 ", most, tooMuch, int64Max, "99999999999999999999999", "nan", "inf", "0x10",
	"fixed_window:", "fixed_window:3:1700000010000", "fixed_window::15:1:170000000200015:3:1700000010000", "fixed_window::15:1:1700000002000", "fixed_window::15:1:17000000020",
	"fixed_window::15:0:1700000002000", "fixed_window::25:" + int64Max + ":99999", "sliding_window:10000:170000000:4", "sliding_window:0:0:0",
	"sliding_window:10000:170000000:", "sliding_window:10000:170000000:,", "sliding_window:10000:170000000:4,", "sliding_window:10000:" + int64Max + ":4",
	"sliding_window:" + int64Max + ":1:1", "sliding_window:2000:850000005:1,0,0,0,4,6", "sliding_window:10000:170000000:" + int64Max, "sliding_window:-1:1:1",
	"sliding_window:1:1700000000000:" + strings.TrimSuffix(strings.Repeat("1,", 1500), ","), "sliding_window:10000:170000001:0,3",
	"sliding_log:", "sliding_log:x", "sliding_log:" + strings.Repeat("\x00", 5), "sliding_log:" + strings.Repeat("\xff", 17), "sliding_log:" + strings.Repeat("\xff", 29),
	"sliding_log:" + strings.Repeat("\x00", 29), "sliding_log:" + strings.Repeat("\x01", 5+12*200), "sliding_log::17:" + strings.Repeat("\x00", 17), "sliding_log:" + strings.Repeat("\x00", 18),
	"blocked:", "blocked:1700000060000:0:", "blocked:1700000060000:1700000001000:gcra", "blocked:0:0:", "blocked:1700000060000:1700000001000:foo",
	"blocked:1699999999999:1700000060000:3", "blocked:1700000060000:1700000050000:4000000000000000003", "blocked:1699999999999:1700000060000:4009007199254740993", "blocked:1699999999999:1700000060000:foo", "blocked:" + int64Max + ":" + int64Max + ":gcra", "blocked:1700000060000::gcra", "blocked:-1:-1:",
	"limit:", "limit:1700000060000:0:3:3/s", "limit:1700000060000:1700000001000:3:3/sgcra", "limit:1700000060000:" + most + ":3:3/sgcra-1",
	"limit:1700000060000:1700000001000:3:3/sfoo", "limit:1700000060000:1700000001000:3:3/s3", "limit:1700000060000:1700000001000:3:3/s4000000000000000003", "limit:1699999999999:1700000001000:3:3/sgcra:1700000000142857+1",
	"limit:1700000060000:0:3:0/s", "limit:1700000060000:0:4:@api", "limit:1700000060000:0:23:concurrency 2 lease=30s", "limit:1700000060000:0:4:3/s",
	"limit:1700000060000:0:0:", "limit:1700000060000:0:" + int64Max + ":3/s", "limit:" + int64Max + ":0:3:3/s", "limit:1700000060000::3:3/s", "limit:-1:-1:3:3/s",
	"limit:1700000060000:1700000001000:14:sliding_log 3/ssliding_log:" + strings.Repeat("\x00", 17), "limit:1700000060000:1700000001000:15:fixed_window 3/stoken_bucket:4:1",
	"blocked:1700000060000:1700000060000:limit:1700000060000:0:3:3/s", "blocked:1699999999999:1700000060000:limit:1700000060000:1700000001000:3:3/sgcra",
	"limit:1700000060000:0:3:3/slimit:1700000060000:0:3:3/s", "limit:1700000060000:1700000001000:3:3/sblocked:1700000060000:0:",
	"blocked:1699999999999:1700000060000:blocked:1700000060000:0:", "once:1,3,2,0,1000,1", "once:", "reply:1", "1,3,2,0,1000,1", "1:3:2:0:1000:1", "foo", "\x00", "\xff\xfe", strings.Repeat("9", 400),
}

// nearLeases returns sorted sets that resemble a key's leases. Each set is a string whose lines are
// members and scores alternately. It has two leases and sometimes other members, with scores that a
// server accepts.
func nearLeases() (values []string) {
	scores := []string{"-inf", "+inf", "1e300", "-1700000001000", "0", "1700000000000", "1700000000000.5", "1700000005000", "1700000005000.5"}
	for _, x := range scores {
		for _, y := range scores {
			for _, more := range []string{"", "\nblocked\n1700000003000", "\nblocked\n1700000003000.5", "\nblocked\n-inf", "\nlength\n-1000", "\nlength\n-1.5",
				"\noverride:1700000003000:1:1000\n" + most, "\noverride:1699999999999:1:1000\n" + most, "\noverride:1700000003000:0:1000\n" + most,
				"\noverride:1700000003000:1:1000\n1700000003000", "\noverride:1700000003000:1:1000\n" + most + "\noverride:1700000003000:2:1000\n" + most,
				"\ngiven:x\n-1700000001000\ngiven:y\n-1700000000000", "\ngiven:x\n-1700000001000.5\ngiven:y\n-inf\ngiven:z\n-1e300"} {
				values = append(values, "lease:x\n"+x+"\nlease:y\n"+y+more)
			}
		}
	}
	return values
}

// FuzzGarbage stores arbitrary values of any type in the keys of a call. The call must return a
// well-formed reply or an error that the contract defines, and a call that returns an error must
// change nothing.
func FuzzGarbage(f *testing.F) {
	server := offline{start(f)}
	seeds := 0
	add := func(kind int, value string) {
		for limit := range limitsForGarbage {
			f.Add(kind, value, int64(5000), 0, limit, int64(1))
		}
		for verb := range verbs {
			seeds++
			f.Add(kind, value, int64(5000), verb, seeds, int64(1))
		}
		f.Add(kind, value, int64(0), 0, 0, int64(2))
		f.Add(kind, value, int64(1)<<50, 0, 10, int64(0))
	}
	for _, value := range slices.Concat(nearStates, realStates(f, server)) {
		add(0, value)
	}
	for kind := 1; kind < len(typesOfGarbage); kind++ {
		for _, value := range []string{"x", "lease:x\n1700000005000", "blocked\n1700000005000", "lease:x\n1e300\nblocked\n-inf", "lease:x\n1.5",
			"cost\n5\na1\none\nd2\ntwo\nname\nn", "cost\n5\nname\nbook", "first\n1\nlast\n2\ncost\n1\nallowed\n1", "first\n1\nlast\n2\ncost\n1\ndenied\n1\na28333332\n1",
			"first\n1\nlast\n2\ncost\n1\nallowed\n1\na28333333\n1\ndenied\nx", "first\n1\nlast\n2\ncost\n1\nallowed\n1\nname\nn", "first\n1\nlast\n2\ncost\n1\nallowed\n1\n" + manyMinutes(),
			"alice\n5\nblocked\n1700000005000", "alice\n5\nlease:x\n1700000005000", "length\n-30000\nlease:x\n1700000005000",
			"first\n1700000000000\nlast\nx", "first\n1\na28333333\n5", "allowed\n" + int64Max, "a28333333\nx\nfirst\n1", "first\n1\nlast\n2\nallowed\n" + int64Max + "\ncost\n" + int64Max} {
			add(kind, value)
		}
	}
	for _, value := range nearLeases() {
		for verb := range verbs {
			f.Add(slices.Index(typesOfGarbage, "zset"), value, int64(5000), verb, 0, int64(1))
		}
	}
	f.Fuzz(func(t *testing.T, kind int, value string, ttl int64, verb, limit int, cost int64) {
		empty(t, server)
		if !put(server, typesOfGarbage[(kind&(1<<30-1))%len(typesOfGarbage)], "k", value, ttl) {
			return // the server rejects the value
		}
		before := everything(t, server)["k"]
		chosen := limitsForGarbage[(limit&(1<<30-1))%len(limitsForGarbage)]
		at := (verb & (1<<30 - 1)) % len(verbs)
		switch name := verbs[at].name; name {
		case "take", "peek", "refund":
			args := []string{chosen, "COST", strconv.FormatInt(cost, 10)}
			callAndCheck(t, server, at, []string{"k"}, args)
			if name != "refund" {
				callAndCheck(t, server, at, []string{"k"}, append(slices.Clone(args), "UPTO"))
			}
			if _, err := server.Do("FCALL", "ratelimit_take", "1", "other", "3/3s"); err != nil { // so that there is something to refund
				t.Fatal(err)
			}
			callAndCheck(t, server, at, []string{"other", "k"}, []string{"3/3s", chosen})
			if name == "take" {
				callAndCheck(t, server, at, []string{"k"}, append(slices.Clone(args), "FORCE"))
				callAndCheck(t, server, at, []string{"other", "k"}, append(args, "ONCE", "5000"))
				callAndCheck(t, server, at, []string{"other", "k"}, append(args, "TRACK"))
			}
		case "acquire", "renew", "release":
			callAndCheck(t, server, at, []string{"k"}, []string{"concurrency 2 lease=30s", "x"})
			callAndCheck(t, server, at, []string{"k"}, []string{"concurrency 1 lease=1s", "y"})
		case "block":
			callAndCheck(t, server, at, []string{"other", "k"}, []string{"1000", "EXTEND"})
			callAndCheck(t, server, at, []string{"other", "k"}, []string{"1000"})
		case "override":
			callAndCheck(t, server, at, []string{"other", "k"}, []string{chosen, "1000"})
			callAndCheck(t, server, at, []string{"other", "k"}, []string{"concurrency 1 lease=1s", "1000"})
			callAndCheck(t, server, at, []string{"k"}, []string{"concurrency 1 lease=1s", "1000"})
		case "info":
			callAndCheck(t, server, at, nil, nil)
		case "usage":
			callAndCheck(t, server, at, []string{"k"}, nil)
		default:
			callAndCheck(t, server, at, []string{"other", "k"}, nil)
		}
		if after := everything(t, server)["k"]; isForeign(typesOfGarbage[(kind&(1<<30-1))%len(typesOfGarbage)], value, ttl) && after != before {
			t.Fatalf("%s changed a value of another program\nbefore %s\nafter  %s", verbs[at].name, before, after)
		}
	})
}

// manyMinutes returns 122 fields of a usage record, two more than one has.
func manyMinutes() string {
	var lines []string
	for i := range 122 {
		lines = append(lines, fmt.Sprint("a", 28333210+i), "1")
	}
	return strings.Join(lines, "\n")
}

var wholeNumber = regexp.MustCompile(`^-?[0-9]+$`)

// isForeign reports whether a value that put stores is certainly not the library's: a number without the mark of
// fixed_window, or a hash that lacks the expiry or a field of a usage record, or has too many fields.
func isForeign(kind, value string, ttlMS int64) bool {
	switch kind {
	case "string":
		isCount := len(value) == 19 && value > "4000000000000000000" && value <= "4009007199254740992"
		return wholeNumber.MatchString(value) && !isCount
	case "hash":
		fields := map[string]bool{}
		for i, line := range strings.Split(value, "\n") {
			if i%2 == 0 {
				fields[line] = true
			}
		}
		if fields["a28333333"] || fields["d28333333"] { // of the current minute: the other fields have been examined
			return ttlMS <= 0
		}
		return ttlMS <= 0 || len(fields) > 125 || !fields["first"] || !fields["last"] || !fields["cost"] || !fields["allowed"] && !fields["denied"]
	}
	return false
}

// put stores a value of the given kind in key, and reports whether the server accepted it. For a
// list, set, hash, sorted set or stream, value contains its elements, one per line.
func put(server offline, kind, key, value string, ttlMS int64) bool {
	lines := strings.Split(value, "\n")
	if len(lines)%2 == 1 && (kind == "hash" || kind == "stream" || kind == "zset") {
		lines = append(lines, "1")
	}
	var words []string
	switch kind {
	case "string":
		words = []string{"SET", key, value}
	case "list":
		words = append([]string{"RPUSH", key}, lines...)
	case "set":
		words = append([]string{"SADD", key}, lines...)
	case "hash":
		words = append([]string{"HSET", key}, lines...)
	case "stream":
		words = append([]string{"XADD", key, "*"}, lines...)
	case "zset":
		words = []string{"ZADD", key}
		for i := 0; i < len(lines); i += 2 {
			words = append(words, lines[i+1], lines[i])
		}
	}
	if _, err := server.Do(words...); err != nil {
		return false
	}
	if ttlMS > 0 {
		if _, err := server.Do("PEXPIRE", key, strconv.FormatInt(ttlMS, 10)); err != nil {
			return false
		}
	}
	return true
}

// realStates returns values that the library has written.
func realStates(f *testing.F, server offline) []string {
	f.Helper()
	var states []string
	for _, call := range someOfEach {
		words := strings.Split(call, "|")
		must[any](f)(server.Do(append([]string{"FCALL", "ratelimit_" + words[0]}, words[1:]...)...))
		for _, key := range words[2:] {
			if value, err := server.Do("GET", key); err == nil && value != nil {
				states = append(states, value.(string))
			}
		}
	}
	if len(states) < 10 {
		f.Fatalf("only %d states were found: %q", len(states), states)
	}
	return states
}
