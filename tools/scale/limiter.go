package main

import (
	"fmt"

	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// A limiter is one key on a server with a limit of gcra.
type limiter interface {
	// take takes as many units as fit, from 1 to n (UPTO), at a time in µs. It returns how many it took, 0 if it denied, and
	// how many remain.
	take(us, n int64) (taken, remaining int64)
}

// A maker makes a key with the limit `rate/s burst=burst`.
type maker func(rate, burst int64) limiter

// reference asks the reference model, which is written from the contract in exact arithmetic. It takes 50 µs a call.
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

// quick decides what the reference model does, a thousand times as fast, for rates above 1000 a second, which are counted
// in µs. A test compares the two.
type quick struct {
	rate, burst int64
	full        int64 // when all units are there again, in parts of a µs, rate of them a µs
}

func newQuick(rate, burst int64) limiter {
	if rate <= 1000 {
		panic(fmt.Sprintf("a rate of %d a second: the simulation takes rates above 1000", rate))
	}
	return &quick{rate: rate, burst: burst}
}

func (q *quick) take(us, n int64) (taken, remaining int64) {
	const interval = 1_000_000 // of these parts, after which a unit is back
	debt := max(0, q.full-us*q.rate)
	left := max(0, q.burst-(debt+interval-1)/interval)
	n = min(n, left)
	if n > 0 {
		q.full = us*q.rate + debt + n*interval
	}
	return n, left - n
}
