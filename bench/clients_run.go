package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// A clientScene is a workload that the contenders run in turn. Each goroutine makes its next call
// as soon as it has the reply to the previous one.
type clientScene struct {
	hot        bool // all goroutines use one key; otherwise each goroutine cycles through all distinct keys
	goroutines int
}

const distinctKeys = 100000

var clientGoroutines = []int{1, 8, 16, 64, 512}

// The limits are large enough to allow every call, because the scenes measure only allowed calls.
var (
	distinctWork = workload{count: 6000, period: time.Hour}
	hotWork      = workload{count: 3600_000_000, period: time.Hour}
)

func clientScenes() (scenes []clientScene) {
	for _, hot := range []bool{false, true} {
		for _, n := range clientGoroutines {
			scenes = append(scenes, clientScene{hot, n})
		}
	}
	return scenes
}

// clientFigures holds the measurements of one contender in one scene.
type clientFigures struct {
	rates     []float64 // decisions per second in each round
	latency   *hdrhistogram.Histogram
	calls     int64
	undecided int64 // calls that ended without a decision
}

// newFigures returns figures whose histogram holds times in ns, from 10 ns to a minute, accurate to
// within 1 %.
func newFigures() *clientFigures {
	return &clientFigures{latency: hdrhistogram.New(10, int64(time.Minute), 2)}
}

// clientsRunner measures the clients' calls. It is not safe for concurrent use.
type clientsRunner struct {
	rounds int
	turn   time.Duration
	times  [][]time.Duration // for each goroutine, how long each call of its turn took
	keys   []string          // without the contenders' prefixes
}

func runClients(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench clients", flag.ContinueOnError)
	flags.SetOutput(stderr)
	url := flags.String("redis", os.Getenv("REDIS_URL"),
		"`URL` of an empty server to measure on; without it, and without REDIS_URL, a redis-server is started")
	write := flags.String("write", "", "the `folder` of README.md, to put the tables and the plots into")
	draw := flags.String("draw", "", "only draw the plots of the tables in README.md in this `folder`")
	rounds := flags.Int("rounds", 21, "rounds")
	turn := flags.Duration("turn", 100*time.Millisecond, "how long a contender asks in each round of a scene")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("clients %q: no arguments are taken beside the flags", flags.Arg(0))
	}
	if *rounds < 1 || *turn <= 0 {
		return fmt.Errorf("--rounds is %d and --turn %v; give at least 1, and a time above 0", *rounds, *turn)
	}
	if *draw != "" {
		return drawClients(*draw)
	}
	s, err := openServer(ctx, *url)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.rdb.FunctionLoad(ctx, functions.Source()).Err(); err != nil {
		return fmt.Errorf("load the library: %w", err)
	}
	fmt.Fprintf(stderr, "measuring on %s at %s\n", s.version(), s.rdb.Options().Addr)
	r := clientsRunner{rounds: *rounds, turn: *turn}
	report := clientsReport{server: s.version(), began: time.Now().UTC(), load: loadAverage(), rounds: *rounds, turn: *turn}
	if report.figures, err = r.run(ctx, s.url, stderr); err != nil {
		return err
	}
	report.took = time.Since(report.began)
	tables := report.markdown()
	if _, err := io.WriteString(stdout, tables); err != nil || *write == "" {
		return err
	}
	return writeClients(*write, tables)
}

// run measures every scene. All contenders take turns, and each round begins with a different
// contender. The first round is a warm-up and is not counted.
func (r *clientsRunner) run(ctx context.Context, url string, progress io.Writer) (map[clientScene][]*clientFigures, error) {
	r.times = make([][]time.Duration, clientGoroutines[len(clientGoroutines)-1])
	for i := range distinctKeys {
		r.keys = append(r.keys, fmt.Sprintf("%07d", i))
	}
	rand.Shuffle(len(r.keys), func(i, j int) { r.keys[i], r.keys[j] = r.keys[j], r.keys[i] })
	askers := map[bool][]asker{} // true: with the hot key; false: with distinct keys
	for hot, work := range map[bool]workload{false: distinctWork, true: hotWork} {
		for _, c := range clientContenders {
			a, err := c.open(url, work)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			defer a.close()
			askers[hot] = append(askers[hot], a)
		}
	}
	scenes, figures := clientScenes(), map[clientScene][]*clientFigures{}
	for _, scene := range scenes {
		for range clientContenders {
			figures[scene] = append(figures[scene], newFigures())
		}
	}
	for round := range 1 + r.rounds {
		fmt.Fprintf(progress, "round %d of %d\n", round, r.rounds)
		for _, scene := range scenes {
			for turn := range clientContenders {
				i := (round + turn) % len(clientContenders)
				if clientContenders[i].hotOnly && !scene.hot {
					continue
				}
				to := figures[scene][i]
				if round == 0 {
					to = newFigures()
				}
				if err := r.measure(ctx, scene, fmt.Sprintf("c%d:", i), askers[scene.hot][i], to); err != nil {
					return nil, fmt.Errorf("%s, %d goroutines: %w", clientContenders[i].name, scene.goroutines, err)
				}
			}
		}
	}
	return figures, nil
}

// measure makes the calls in a contender's turn, and adds the measurements to the contender's
// figures.
func (r *clientsRunner) measure(ctx context.Context, scene clientScene, prefix string, a asker, to *clientFigures) error {
	runtime.GC() // collect the previous contender's garbage
	var mu sync.Mutex
	var calls, undecided int64
	var failed error
	var all sync.WaitGroup
	start := make(chan struct{})
	var deadline time.Time
	for g := range scene.goroutines {
		times, position := r.times[g][:0], rand.IntN(len(r.keys))
		all.Go(func() {
			<-start
			made, gaveUp, err := int64(0), int64(0), error(nil)
			key := prefix + "hot"
			before := time.Now()
			for (made == 0 || before.Before(deadline)) && err == nil { // at least one call, even on a busy machine
				if !scene.hot {
					position = (position + 1) % len(r.keys)
					key = prefix + r.keys[position]
				}
				var allowed bool
				allowed, err = a.allow(ctx, key)
				now := time.Now()
				made++
				switch {
				case err != nil && a.undecided != nil && a.undecided(err):
					gaveUp, err = gaveUp+1, nil
				case err == nil && !allowed:
					err = fmt.Errorf("the key %s was denied, and only calls that are allowed are measured", key)
				case err == nil:
					times = append(times, now.Sub(before))
				}
				before = now
			}
			r.times[g] = times
			mu.Lock()
			defer mu.Unlock()
			calls, undecided = calls+made, undecided+gaveUp
			failed = cmp.Or(failed, err)
		})
	}
	began := time.Now()
	deadline = began.Add(r.turn)
	close(start)
	all.Wait()
	took := time.Since(began)
	if failed != nil {
		return failed
	}
	to.calls, to.undecided = to.calls+calls, to.undecided+undecided
	to.rates = append(to.rates, float64(calls-undecided)/took.Seconds())
	for _, times := range r.times[:scene.goroutines] {
		for _, took := range times {
			if err := to.latency.RecordValue(max(10, int64(took))); err != nil {
				return err
			}
		}
	}
	return nil
}
