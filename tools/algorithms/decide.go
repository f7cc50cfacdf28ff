package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// An outcome holds the decisions of one algorithm on one traffic pattern.
type outcome struct {
	ahead  []int64 // times at which allowed calls proceeded; with leaky_bucket, after their wait
	denied []int64 // times of denied calls
	wait   int64   // longest time that an allowed call had to wait
	bytes  int     // largest size of the key
}

// decide sends every traffic pattern through every algorithm of the library.
func decide() (results [][]outcome, err error) {
	midnight := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	server, err := embedded.Start(embedded.WithLibrary(functions.Source()), embedded.WithTime(midnight))
	if err != nil {
		return nil, err
	}
	defer server.Close()
	for i, t := range traffics {
		var outcomes []outcome
		for j, limit := range algorithms {
			began := midnight.Add(time.Duration(i*len(algorithms)+j) * time.Hour)
			a := asker{server: server, began: began, limit: limit, key: fmt.Sprintf("%s:%d", t.name, j)}
			for call, at := range t.calls {
				if err := a.ask(call, at); err != nil {
					return nil, fmt.Errorf("%s, %s, %d ms after the start: %w", t.name, limit, at, err)
				}
			}
			outcomes = append(outcomes, a.outcome)
		}
		results = append(results, outcomes)
	}
	return results, nil
}

// An asker makes the calls of one traffic pattern on one key.
type asker struct {
	server     *embedded.Server
	began      time.Time
	limit, key string
	leases     []lease // oldest first
	outcome
}

type lease struct {
	id    string
	until int64
}

func (a *asker) ask(call int, at int64) error {
	if !strings.HasPrefix(a.limit, "concurrency ") {
		return a.decided(at, "take", a.limit)
	}
	for len(a.leases) > 0 && a.leases[0].until <= at {
		if _, err := a.do(a.leases[0].until, "release", a.limit, a.leases[0].id); err != nil {
			return err
		}
		a.leases = a.leases[1:]
	}
	id, before := strconv.Itoa(call), len(a.ahead)
	err := a.decided(at, "acquire", a.limit, id)
	if len(a.ahead) > before {
		a.leases = append(a.leases, lease{id, at + held})
	}
	return err
}

// decided sets the clock to at, makes a call with the given verb, and records the decision.
func (a *asker) decided(at int64, verb string, args ...any) error {
	reply, err := a.do(at, verb, args...)
	if err != nil {
		return err
	}
	fields, ok := reply.([]any)
	if !ok || len(fields) < 6 {
		return fmt.Errorf("the reply is %v, not six integers", reply)
	}
	if fields[0] == int64(0) {
		a.denied = append(a.denied, at)
	} else {
		wait := fields[3].(int64)
		a.ahead = append(a.ahead, at+wait)
		a.wait = max(a.wait, wait)
	}
	size, err := a.size()
	a.bytes = max(a.bytes, size)
	return err
}

func (a *asker) do(at int64, verb string, args ...any) (any, error) {
	a.server.SetTime(a.began.Add(time.Duration(at) * time.Millisecond))
	return a.server.Do(append([]any{"FCALL", "ratelimit_" + verb, 1, a.key}, args...)...)
}

// size returns the size of the key's value in bytes. For leases it is the size of the members of the
// sorted set, plus eight bytes for each score.
func (a *asker) size() (int, error) {
	if kind, err := a.server.Do("TYPE", a.key); err != nil || kind != "zset" {
		size, err := a.server.Do("STRLEN", a.key)
		n, _ := size.(int64)
		return int(n), err
	}
	members, err := a.server.Do("ZRANGE", a.key, 0, -1)
	if err != nil {
		return 0, err
	}
	total := 0
	for _, member := range members.([]any) {
		total += len(member.(string)) + 8
	}
	return total, nil
}

// within returns the number of calls that proceeded in the minute that ends at the given time.
func (o outcome) within(at int64) int {
	first, _ := slices.BinarySearch(o.ahead, at-minute+1)
	last, _ := slices.BinarySearch(o.ahead, at+1)
	return last - first
}

// most returns the maximum number of calls that proceeded within any minute.
func (o outcome) most() int {
	most := 0
	for _, at := range o.ahead {
		most = max(most, o.within(at))
	}
	return most
}

// pause returns the longest time without an allowed call, up to the end of the pattern.
func (o outcome) pause() int64 {
	longest, before := int64(0), int64(0)
	for _, at := range append(slices.Clone(o.ahead), length) {
		if at <= length {
			longest, before = max(longest, at-before), at
		}
	}
	return longest
}
