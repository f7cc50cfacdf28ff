package main

import (
	"fmt"

	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// A limiter is one key on a server with a gcra limit.
type limiter interface {
	// take takes as many units as are available, from 1 to n (UPTO), at a time in microseconds. It
	// returns how many it took, or 0 if it denied, and how many remain.
	take(us, n int64) (taken, remaining int64)
}

// A maker makes a key with the limit `rate/s burst=burst`.
type maker func(rate, burst int64) limiter

// reference uses the reference model, which is written from the contract in exact arithmetic. A
// call takes 50 µs.
type reference struct {
	model *model.Model
	limit []model.Policy
}

func newReference(rate, burst int64) limiter {
	return reference{model.New(0), []model.Policy{{Limits: []model.Limit{{Algorithm: "gcra", Rates: []model.Rate{
		{N: rate, Period: "s", Options: []string{fmt.Sprintf("burst=%d", burst)}}}}}}}}
}

func (r reference) take(us, n int64) (taken, remaining int64) {
	r.model.SetTime(us)
	reply, reason := r.model.Do(model.Call{Verb: model.Take, Keys: []string{"key"}, Limits: r.limit, Costs: []int64{n}, Upto: true})
	if reason != "" {
		panic("the reference model refuses the simulation's limit: RATELIMIT " + reason)
	}
	fields := reply.([]any)
	return fields[0].(int64), fields[2].(int64)
}

// quick makes the same decisions as the reference model, a thousand times as fast, for rates above
// 1000 per second, which are counted in microseconds. A test compares the two.
type quick struct {
	rate, burst int64
	full        int64 // time when all units are back, in units of 1/rate µs
}

func newQuick(rate, burst int64) limiter {
	if rate <= 1000 {
		panic(fmt.Sprintf("a rate of %d a second: the simulation takes rates above 1000", rate))
	}
	return &quick{rate: rate, burst: burst}
}

func (q *quick) take(us, n int64) (taken, remaining int64) {
	const interval = 1_000_000 // time for one unit to come back, in units of 1/rate µs
	debt := max(0, q.full-us*q.rate)
	left := max(0, q.burst-(debt+interval-1)/interval)
	n = min(n, left)
	if n > 0 {
		q.full = us*q.rate + debt + n*interval
	}
	return n, left - n
}
