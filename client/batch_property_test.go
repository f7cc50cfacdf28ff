package client_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/ratelimit-functions/ratelimit/client"
)

// admission is a number of units, and the time at which they were admitted.
type admission struct {
	units int64
	at    time.Time
}

// process simulates a process that uses the server and has its own clock.
type process struct {
	*client.Client
	ahead time.Duration // how far its clock is ahead of the server's

	taken    int64 // units charged by the server, according to the replies that arrived
	admitted int64
	returned int64
}

// TestBatchesKeepTheBound runs up to five processes that take and spend units of one key, at
// different speeds. They lose replies, end with and without Close, and restart. It checks that in
// every time span of length L no more units are admitted than the limit allows in L + ttl. It also
// checks that no process spends or gives back units that it did not get.
func TestBatchesKeepTheBound(t *testing.T) {
	s := newTestbed(t)
	run := 0
	rapid.Check(t, func(r *rapid.T) {
		run++
		key := "k" + strconv.Itoa(run)
		limit := rapid.SampledFrom([]struct {
			text client.Limit
			most func(span time.Duration) int64
		}{
			{"100/s burst=20", func(span time.Duration) int64 { return 20 + int64(span/(10*time.Millisecond)) }},
			{"2/s burst=40", func(span time.Duration) int64 { return 40 + int64(span/(500*time.Millisecond)) }},
			{"100/s burst=200", func(span time.Duration) int64 { return 200 + int64(span/(10*time.Millisecond)) }},
			{"sliding_log 30/200ms", func(span time.Duration) int64 { return 30 * (1 + int64(span/(200*time.Millisecond))) }},
			{"fixed_window 30/200ms", func(span time.Duration) int64 { return 30 * (2 + int64(span/(200*time.Millisecond))) }},
		}).Draw(r, "limit")
		processes := make([]*process, rapid.IntRange(1, 5).Draw(r, "processes"))
		start := func(i int) {
			p := &process{ahead: rapid.SampledFrom([]time.Duration{0, 24 * time.Hour, -24 * time.Hour}).Draw(r, "clock")}
			p.Client = newClient(t, s.rdb, client.WithBatches(16, ttl), client.WithClock(func() time.Time { return s.now().Add(p.ahead) }))
			processes[i] = p
		}
		for i := range processes {
			start(i)
		}
		var admitted []admission

		var calling *process
		var slow time.Duration
		var lost bool
		var decided time.Time
		s.hook = func(redis.Cmder) {
			s.pass(slow)
			decided = s.now()
		}
		s.lose = func(cmd redis.Cmder) bool {
			if lost {
				return true
			}
			args := cmd.Args()
			if args[1] == "ratelimit_info" {
				return false
			}
			n, _ := strconv.ParseInt(args[len(args)-1].(string), 10, 64) // the n of COST n; not used for UPTO
			if args[1] == "ratelimit_refund" {
				calling.returned += n
				return false
			}
			reply, _ := cmd.(interface{ Result() (any, error) }).Result()
			took := reply.([]any)[0].(int64)
			if took == 1 && len(args) == 7 {
				took = n
			}
			calling.taken += took
			return false
		}
		defer func() { s.hook, s.lose = nil, nil }()

		allow := func(p *process, cost int64) {
			res, err := p.AllowN(t.Context(), key, limit.text, cost)
			if err != nil || !res.Allowed {
				return
			}
			at := decided // the server admits a call's units when it decides on the call
			if res.Source == "batch" {
				at = s.now()
			}
			p.admitted += cost
			admitted = append(admitted, admission{cost, at})
		}
		any := func() *process { return processes[rapid.IntRange(0, len(processes)-1).Draw(r, "process")] }
		check := func() {
			for _, p := range processes {
				if p.admitted+p.returned > p.taken {
					r.Fatalf("%d admitted and %d given back of %d taken", p.admitted, p.returned, p.taken)
				}
			}
		}
		moment := func() {
			slow, lost = 0, false
			switch rapid.IntRange(0, 9).Draw(r, "weather") {
			case 0:
				slow = time.Duration(rapid.Int64Range(0, int64(2*ttl)).Draw(r, "slow"))
			case 1:
				lost = true
			}
		}
		pass := func(most time.Duration) {
			s.pass(time.Duration(rapid.Int64Range(0, int64(most/time.Millisecond)).Draw(r, "ms")) * time.Millisecond)
		}
		r.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { check() },
			"haste": func(*rapid.T) {
				moment()
				calling = any()
				for range rapid.IntRange(1, 60).Draw(r, "calls") {
					allow(calling, 1)
				}
			},
			"steady": func(*rapid.T) {
				moment()
				calling = any()
				for range rapid.IntRange(1, 40).Draw(r, "calls") {
					allow(calling, 1)
					pass(ttl / 10)
				}
			},
			"cost":  func(*rapid.T) { moment(); calling = any(); allow(calling, rapid.Int64Range(0, 17).Draw(r, "cost")) },
			"pass":  func(*rapid.T) { pass(ttl) },
			"rest":  func(*rapid.T) { pass(5 * ttl) },
			"crash": func(*rapid.T) { start(rapid.IntRange(0, len(processes)-1).Draw(r, "process")) },
			"close": func(*rapid.T) {
				moment()
				i := rapid.IntRange(0, len(processes)-1).Draw(r, "process")
				calling = processes[i]
				for range 2 {
					if err := calling.Close(); err != nil {
						r.Fatal(err)
					}
				}
				check()
				start(i)
			},
		})

		for i := range admitted {
			var sum int64
			for j := i; j < len(admitted); j++ {
				sum += admitted[j].units
				span := admitted[j].at.Sub(admitted[i].at)
				most := limit.most(span + ttl)
				if sum > most {
					r.Fatalf("%s: %d admitted in %v, at most %d are allowed", limit.text, sum, span, most)
				}
			}
		}
	})
}
