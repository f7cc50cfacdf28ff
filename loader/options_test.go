package loader_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/loader"
)

// In a namespace, a deployment waits for another one unless Options.Wait is below 0.
func TestWaitOfANamespace(t *testing.T) {
	addr, _ := startRedis(t)
	now := must[time.Time](t)(at(t, addr).Time(t.Context()).Result())
	put(t, addr, leaseOfAnn(now, now.Add(time.Hour)))
	for wait, want := range map[time.Duration]time.Duration{0: 24 * time.Minute, -1: 0, time.Second: time.Second} {
		clock := newTestClock()
		began := clock.now()
		l := in(t, at(t, addr), "payments", withClock(clock.now, func(d time.Duration) <-chan time.Time {
			woken := clock.after(d)
			clock.move(max(d, time.Minute))
			return woken
		}))
		_, err := l.Deploy(t.Context(), set(t, "payments/api 1/m"), loader.Options{Wait: wait})
		if waited := clock.now().Sub(began); !errors.Is(err, loader.ErrLeased) || waited < want || waited > want+time.Minute {
			t.Errorf("waited %v for %v: %v", waited, wait, err)
		}
	}
}
