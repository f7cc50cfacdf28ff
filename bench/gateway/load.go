package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

const keys = 10_000

// load describes the requests that a process has to answer in one turn.
type load struct {
	descriptors, callers int
	length               time.Duration
	perSecond            float64 // 0: each caller sends its next request as soon as it has a response
}

type result struct {
	mu        sync.Mutex
	latency   *hdrhistogram.Histogram // in µs
	decisions int
	took      time.Duration
	own       time.Duration // processor time used by the process
	redis     time.Duration // processor time used by Redis
}

func newResult() *result { return &result{latency: hdrhistogram.New(1, 60_000_000, 3)} }

func (r *result) rate() float64 { return float64(r.decisions) / r.took.Seconds() }

// each returns the time per decision in µs. total is the processor time for all decisions.
func (r *result) each(total time.Duration) float64 {
	return float64(total.Microseconds()) / float64(r.decisions)
}

// quantile returns a quantile of the latency in ms.
func (r *result) quantile(q float64) float64 { return float64(r.latency.ValueAtQuantile(q)) / 1000 }

// run sends the load to a process for one turn, after a warm-up of a tenth of the turn. It adds the
// measurements to sum.
func (l load) run(ctx context.Context, p *process, sum *result) error {
	warm := l
	warm.length /= 10
	if err := warm.turn(ctx, p, newResult()); err != nil {
		return err
	}
	own, redis := p.used(), p.redis.used()
	err := l.turn(ctx, p, sum)
	sum.own += p.used() - own
	sum.redis += p.redis.used() - redis
	return err
}

func (l load) turn(ctx context.Context, p *process, sum *result) error {
	began := time.Now()
	end := began.Add(l.length)
	errs := make([]error, l.callers)
	var wait sync.WaitGroup
	for caller := range l.callers {
		wait.Go(func() { errs[caller] = l.caller(ctx, p, caller, began, end, sum) })
	}
	wait.Wait()
	sum.took += time.Since(began)
	return errors.Join(errs...)
}

// caller sends requests, one after another, until the time end. At a fixed rate, the latency of a
// request is measured from the time at which the request was due, so it includes the wait for a
// slow response to the previous request.
func (l load) caller(ctx context.Context, p *process, caller int, began, end time.Time, sum *result) error {
	latency := hdrhistogram.New(1, 60_000_000, 3)
	gap := time.Duration(0)
	if l.perSecond > 0 {
		gap = time.Duration(float64(time.Second) * float64(l.callers) / l.perSecond)
	}
	due := began.Add(gap * time.Duration(caller) / time.Duration(l.callers))
	n := 0
	for time.Now().Before(end) {
		asked := time.Now()
		if gap > 0 {
			time.Sleep(time.Until(due))
			asked = due
			due = due.Add(gap)
		}
		if err := p.ask(ctx, l); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		_ = latency.RecordValue(max(1, time.Since(asked).Microseconds()))
		n++
	}
	sum.mu.Lock()
	defer sum.mu.Unlock()
	sum.latency.Merge(latency)
	sum.decisions += n
	return nil
}

// askGRPC returns a function that sends a request and checks the answer.
func askGRPC(client rls.RateLimitServiceClient) func(context.Context, load) error {
	return func(ctx context.Context, l load) error {
		response, err := client.ShouldRateLimit(ctx, l.request())
		if err == nil && (response.OverallCode != rls.RateLimitResponse_OK || len(response.Statuses) != l.descriptors) {
			err = fmt.Errorf("the answer was %v", response)
		}
		return err
	}
}

func (l load) request() *rls.RateLimitRequest {
	request := &rls.RateLimitRequest{Domain: "bench"}
	value := fmt.Sprint(rand.IntN(keys))
	for _, key := range []string{"one", "two", "three"}[:l.descriptors] {
		request.Descriptors = append(request.Descriptors, &entries.RateLimitDescriptor{
			Entries: []*entries.RateLimitDescriptor_Entry{{Key: key, Value: value}},
		})
	}
	return request
}
