package load_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/load"
)

// within reports whether a latency equals d, to three digits.
func within(got, d time.Duration) bool { return got >= d-d/500 && got <= d+d/500 }

func TestClosedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n, flying, most atomic.Int64
		r := load.Run(t.Context(), func(context.Context, int) (bool, error) {
			most.Store(max(most.Load(), flying.Add(1)))
			defer flying.Add(-1)
			time.Sleep(10 * time.Millisecond)
			switch n := n.Add(1); {
			case n%10 == 0:
				return false, errors.New("no")
			case n%2 == 0:
				return false, nil
			}
			return true, nil
		}, load.Options{Workers: 4, Count: 1000, Keys: 1})
		if r.Allowed != 500 || r.Denied != 400 || r.Errors != 100 || r.Decisions() != 1000 || r.Interrupted {
			t.Errorf("%+v", r)
		}
		if most.Load() != 4 || r.Took != 2500*time.Millisecond || r.PerSecond() != 360 {
			t.Errorf("%d at one time, %v, %v a second", most.Load(), r.Took, r.PerSecond())
		}
		if !within(r.Latency(0.5), 10*time.Millisecond) || !within(r.Latency(1), 10*time.Millisecond) {
			t.Error(r.Latency(0.5), r.Latency(1))
		}
		if len(r.Messages) != 1 || r.Messages[0] != (load.Message{Text: "no", Count: 100}) {
			t.Error(r.Messages)
		}
		var sum load.Counts
		for _, s := range r.Seconds {
			sum = load.Counts{Allowed: sum.Allowed + s.Allowed, Denied: sum.Denied + s.Denied, Errors: sum.Errors + s.Errors}
		}
		if sum != (load.Counts{Allowed: 500, Denied: 400, Errors: 100}) || len(r.Seconds) != 3 {
			t.Errorf("by seconds: %+v", r.Seconds)
		}
	})
}

// In an open loop, waiting for a worker counts as latency: at 100 per second, one worker that takes
// 20 ms falls behind by 10 ms with each decision.
func TestOpenLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(context.Context, int) (bool, error) {
			time.Sleep(20 * time.Millisecond)
			return true, nil
		}
		r := load.Run(t.Context(), slow, load.Options{Workers: 1, Rate: 100, Count: 101, Keys: 1})
		if !within(r.Latency(1), 1020*time.Millisecond) || !within(r.Latency(0.5), 520*time.Millisecond) || r.Took != 2020*time.Millisecond {
			t.Error(r.Latency(1), r.Latency(0.5), r.Took)
		}
		r = load.Run(t.Context(), slow, load.Options{Workers: 4, Rate: 100, Count: 101, Keys: 1})
		if !within(r.Latency(1), 20*time.Millisecond) || r.Took != 1020*time.Millisecond {
			t.Error(r.Latency(1), r.Took)
		}
	})
}

func TestDuration(t *testing.T) {
	for _, rate := range []float64{0, 10} {
		synctest.Test(t, func(t *testing.T) {
			var progress load.Progress
			r := load.Run(t.Context(), func(context.Context, int) (bool, error) {
				time.Sleep(100 * time.Millisecond)
				return true, nil
			}, load.Options{Workers: 1, Rate: rate, For: 3 * time.Second, Keys: 1, Progress: func(p load.Progress) { progress = p }})
			if r.Allowed != 30 || r.Interrupted || progress.Decisions < 28 || progress.Took < 2*time.Second {
				t.Errorf("rate %v: %+v, %+v", rate, r, progress)
			}
		})
	}
}

// A rate that is too high does not lengthen the run. Decisions that are due while no worker is free
// are counted as not begun.
func TestRateAboveWhatIsPossible(t *testing.T) {
	for _, tt := range []struct{ count, begun, notBegun int64 }{{0, 50, 150}, {100, 50, 50}, {40, 40, 0}} {
		synctest.Test(t, func(t *testing.T) {
			r := load.Run(t.Context(), func(context.Context, int) (bool, error) {
				time.Sleep(20 * time.Millisecond)
				return true, nil
			}, load.Options{Workers: 1, Rate: 200, Count: tt.count, For: time.Second, Keys: 1})
			if r.Decisions() != tt.begun || r.NotBegun != tt.notBegun || r.Took > time.Second {
				t.Errorf("%d: %d decisions, %d not begun, %v", tt.count, r.Decisions(), r.NotBegun, r.Took)
			}
		})
	}
}

// The chart omits the last second if the run ended within the first tenth of that second.
func TestLastSecondOfThePicture(t *testing.T) {
	for _, tt := range []struct {
		reply time.Duration
		last  string
	}{{30 * time.Millisecond, "1 s"}, {600 * time.Millisecond, "2 s"}, {400 * time.Millisecond, "2 s"}, {100 * time.Millisecond, "1 s"}} {
		synctest.Test(t, func(t *testing.T) {
			r := load.Run(t.Context(), func(context.Context, int) (bool, error) {
				time.Sleep(tt.reply)
				return true, nil
			}, load.Options{Workers: 1, For: time.Second, Keys: 1})
			var page strings.Builder
			if err := r.WritePage(&page, "title"); err != nil || !strings.Contains(page.String(), ">"+tt.last+"<") {
				t.Errorf("replies after %v: no %s, %v", tt.reply, tt.last, err)
			}
		})
	}
}

func TestKinds(t *testing.T) {
	n := 0
	r := load.Run(t.Context(), func(context.Context, int) (bool, error) {
		n++
		return false, fmt.Errorf("error %d", n)
	}, load.Options{Workers: 1, Count: 100, Keys: 1, Kind: func(err error) string { return err.Error()[:7] }})
	if len(r.Messages) != 5 || r.Messages[0] != (load.Message{Text: "error 1", Count: 12}) {
		t.Error(r.Messages)
	}
}

func TestInterrupted(t *testing.T) {
	for _, rate := range []float64{0, 0.5} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
			defer cancel()
			r := load.Run(ctx, func(ctx context.Context, _ int) (bool, error) {
				select {
				case <-ctx.Done():
					return false, ctx.Err()
				case <-time.After(time.Second):
					return true, nil
				}
			}, load.Options{Workers: 1, Rate: rate, Count: 100, Keys: 1})
			want := map[float64]int64{0: 5, 0.5: 3}[rate]
			if !r.Interrupted || r.Allowed != want || r.Errors != 0 || r.Took != 5500*time.Millisecond {
				t.Errorf("rate %v: %+v", rate, r)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	const keys, count = 100, 100_000
	draw := func(zipf float64, seed uint64) (asked [keys]int) {
		load.Run(t.Context(), func(_ context.Context, key int) (bool, error) {
			asked[key]++
			return true, nil
		}, load.Options{Workers: 1, Count: count, Keys: keys, Zipf: zipf, Seed: seed})
		return asked
	}
	for key, n := range draw(0, 1) {
		if n < 800 || n > 1200 {
			t.Errorf("uniform: key %d was asked for %d times", key, n)
		}
	}
	zipf := draw(1.5, 1)
	if zipf[0] < 4*zipf[2] || zipf[0] > 6*zipf[2] { // the expected ratio is (1+2)^1.5 = 5.2
		t.Errorf("zipf: the first keys were asked for %d, %d, %d times", zipf[0], zipf[1], zipf[2])
	}
	if draw(1.5, 1) != zipf || draw(1.5, 2) == zipf {
		t.Error("the seed does not decide what is drawn")
	}
}

func TestMessagesAreBounded(t *testing.T) {
	n := 0
	r := load.Run(t.Context(), func(context.Context, int) (bool, error) {
		n++
		return false, fmt.Errorf("error %d", n)
	}, load.Options{Workers: 1, Count: 100, Keys: 1})
	if r.Errors != 100 || len(r.Messages) != 5 || r.Messages[0].Text != "error 1" || r.Latency(1) != 0 {
		t.Errorf("%+v", r)
	}
}

// A ramp's decisions are due at its changing rate. Each step reports the decisions that were due in
// it, and their latencies.
func TestRamp(t *testing.T) {
	for _, tt := range []struct {
		ramp  load.Ramp
		steps [10]int64
	}{
		{load.Ramp{From: 0, To: 100}, [10]int64{5, 15, 25, 35, 45, 55, 65, 75, 85, 95}},
		{load.Ramp{From: 100, To: 0}, [10]int64{95, 85, 75, 65, 55, 45, 35, 25, 15, 5}},
		{load.Ramp{From: 50, To: 50}, [10]int64{50, 50, 50, 50, 50, 50, 50, 50, 50, 50}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := load.Run(t.Context(), func(context.Context, int) (bool, error) {
				time.Sleep(time.Millisecond)
				return true, nil
			}, load.Options{Workers: 8, Ramp: &tt.ramp, For: 10 * time.Second, Keys: 1})
			if sum := r.Decisions(); sum < 499 || sum > 501 || r.NotBegun > 1 || r.Took > 10*time.Second+time.Millisecond {
				t.Errorf("%v: %d decisions, %d not begun, %v", tt.ramp, sum, r.NotBegun, r.Took)
			}
			for i, s := range r.Steps {
				if n := s.Decisions(); n < tt.steps[i]-1 || n > tt.steps[i]+1 || s.NotBegun > 1 || !within(s.Latency(1), time.Millisecond) || s.Start != time.Duration(i)*time.Second {
					t.Errorf("%v, step %d: %d decisions, want %d; %v, %v", tt.ramp, i, n, tt.steps[i], s.Latency(1), s)
				}
			}
		})
	}
}

// A single worker that needs 20 ms per decision can make 50 decisions a second. At higher rates,
// latencies grow, and some decisions are never started.
func TestRampBeyondWhatIsPossible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := load.Run(t.Context(), func(context.Context, int) (bool, error) {
			time.Sleep(20 * time.Millisecond)
			return true, nil
		}, load.Options{Workers: 1, Ramp: &load.Ramp{From: 10, To: 90}, For: 10 * time.Second, Keys: 1})
		first, last := r.Steps[0], r.Steps[9]
		if first.Latency(1) > 30*time.Millisecond || first.NotBegun != 0 || r.Steps[7].Latency(0.5) < 300*time.Millisecond || last.NotBegun == 0 || last.Decisions()+last.NotBegun != 86 {
			t.Errorf("%+v, %+v", first, last)
		}
		if r.Decisions()+r.NotBegun != 500 {
			t.Errorf("%d decisions, %d not begun", r.Decisions(), r.NotBegun)
		}
		var page strings.Builder
		if err := r.WritePage(&page, "title"); err != nil || strings.Count(page.String(), "<tr>") != 2+2+11 {
			t.Errorf("%v: %s", err, page.String())
		}
	})
}

func TestExpectations(t *testing.T) {
	n := 0
	var r *load.Report
	synctest.Test(t, func(t *testing.T) {
		r = load.Run(t.Context(), func(context.Context, int) (bool, error) {
			time.Sleep(10 * time.Millisecond)
			if n++; n%10 == 0 {
				return false, errors.New("no")
			}
			return n%2 == 0, nil
		}, load.Options{Workers: 1, Count: 100, Keys: 1})
	})
	for text, want := range map[string]bool{
		"p99<11ms": true, "p99<9ms": false, " p50 >= 9.5ms ": true, "p999<=10.1ms": true, "p99.9<=10.1ms": true, "p95>1s": false, "max<1m30s": true,
		"errors==10": true, "errors==0": false, "errors!=0": true, "errors<=10%": true, "errors<10%": false, "errors<0.5%": false,
		"allowed>=40": true, "denied>40%": true, "denied>50.1%": false, "decisions==100": true, "per_second>89": true, "per_second<90.5": true, "not_begun==0": true, "not_begun>0%": false,
	} {
		e, err := load.ParseExpectation(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if measured, met := e.Met(r); met != want || measured == "" {
			t.Errorf("%s: %v, %s", text, met, measured)
		}
	}
	// m is minutes, but whoever writes p99<10m means milliseconds.
	for _, value := range []string{"10m", "1h", "1h30m", "0.5m", "0m"} {
		text := "p99<" + value
		want := fmt.Sprintf("%q: %q is not a latency; write one in s, ms or us, such as 5ms or 800us", text, value)
		if _, err := load.ParseExpectation(text); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if e, err := load.ParseExpectation("p99<3600s"); err != nil {
		t.Error(err)
	} else if measured, met := e.Met(load.Run(t.Context(), nil, load.Options{})); met || measured != "no reply" {
		t.Errorf("without replies: %v, %s", met, measured)
	}
}
