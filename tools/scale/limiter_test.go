package main

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// TestLimiterDecidesAsTheReferenceModel makes the same takes, at the same times, with a limiter and
// with the model. Idle and overloaded phases alternate.
func TestLimiterDecidesAsTheReferenceModel(t *testing.T) {
	for _, rate := range []int64{1_000_000, 200_000, 33_333, 2000} {
		random := rand.New(rand.NewPCG(1, uint64(rate)))
		burst := 50 + rate/10_000
		ours, reference := newLimiter(rate, burst), model.New(0)
		limits := []model.Policy{{Limits: []model.Limit{{Algorithm: "gcra", Rates: []model.Rate{
			{N: rate, Period: "s", Options: []string{fmt.Sprintf("burst=%d", burst)}}}}}}}
		us, denied, partly := int64(0), 0, 0
		for call := range 1500 {
			us += random.Int64N(16_000_000 / rate * int64(1+call/100%4))
			n := 1 + random.Int64N(40)
			taken, remaining := ours.take(us, n)
			reference.SetTime(us)
			reply, reason := reference.Do(model.Call{Verb: model.Take, Keys: []string{"key"}, Limits: limits, Costs: []int64{n}, Upto: true})
			fields, _ := reply.([]any)
			if reason != "" || fields[0] != taken || fields[2] != remaining {
				t.Fatalf("%d/s, call %d at %d µs: of %d units %d were taken and %d remain; the reference model: %v %s",
					rate, call, us, n, taken, remaining, reply, reason)
			}
			if taken == 0 {
				denied++
			} else if taken < n {
				partly++
			}
		}
		if denied == 0 || partly == 0 {
			t.Errorf("%d/s: %d calls denied, %d given a part: these takes compare too little", rate, denied, partly)
		}
	}
}
