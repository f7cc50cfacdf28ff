package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/ratelimit-functions/ratelimit/integration_test/clock"
)

// choiceEnv is the environment variable that selects how servers run: docker or local.
const choiceEnv = "RATELIMIT_TEST_BACKEND"

// HowToGetAServer explains how to make a server available.
const HowToGetAServer = `no real server was reached, and these tests prove nothing without one. Either of these will do:
  - a running Docker engine with the images that "make images" makes;
  - redis-server 7 or later on PATH (Debian and Ubuntu: apt-get install redis-server)`

// Fleet holds all backends of one run.
type Fleet struct {
	Backends []*Backend

	dir      string
	library  string // path of the clock shim, or "" if it does not work
	launcher launcher
	once     sync.Once
	stopErr  error
}

// Start starts all available servers, in containers if a Docker engine is available and as
// processes otherwise. RATELIMIT_TEST_BACKEND=docker or =local allows only the given kind. If Start
// returns an error, nothing is left running.
func Start(ctx context.Context) (*Fleet, error) {
	f := &Fleet{}
	if err := f.start(ctx); err != nil {
		return nil, errors.Join(err, f.Stop())
	}
	return f, nil
}

func (f *Fleet) start(ctx context.Context) error {
	dir, err := makeDir()
	if err != nil {
		return fmt.Errorf("making a folder for this run: %w", err)
	}
	f.dir = dir
	if runtime.GOOS == "linux" { // on other systems, servers keep real time
		if f.library, err = clock.Build(dir); err != nil {
			return err
		}
	}
	switch choice := os.Getenv(choiceEnv); choice {
	case "":
		err := f.startDocker(ctx)
		if errors.Is(err, errNoDocker) {
			return f.startLocal(ctx)
		}
		return err
	case "docker":
		return f.startDocker(ctx)
	case "local":
		return f.startLocal(ctx)
	default:
		return fmt.Errorf("%s is %q; write docker or local, or leave it out", choiceEnv, choice)
	}
}

func (f *Fleet) startDocker(ctx context.Context) error {
	d, err := newDocker(ctx, f.dir)
	if err != nil {
		return err
	}
	f.launcher = d
	const redis70, redis80, valkey81 = "ratelimit-test/redis:7.0", "ratelimit-test/redis:8.0", "ratelimit-test/valkey:8.1"
	for _, image := range []string{redis70, redis80, valkey81} {
		if !d.has(ctx, image) {
			return fmt.Errorf("the Docker image %s is missing: run make images, or set %s=local to test against processes", image, choiceEnv)
		}
	}
	return f.startAll(ctx, []plan{
		{"redis-7.0", spec{image: redis70}},
		{"redis-8.0", spec{image: redis80}},
		{"valkey-8.1", spec{image: valkey81}},
		{"cluster", spec{image: redis70, cluster: true}},
	}, "container")
}

func (f *Fleet) startLocal(ctx context.Context) error {
	var plans []plan
	for _, kind := range []string{"redis", "valkey"} {
		program := kind + "-server"
		if _, err := exec.LookPath(program); err == nil {
			plans = append(plans, plan{"local-" + kind, spec{program: program}})
		}
	}
	if len(plans) == 0 {
		return errors.New("there is neither redis-server nor valkey-server on PATH")
	}
	f.launcher = newLocal(f.dir, f.library)
	plans = append(plans, plan{"local-cluster", spec{program: plans[0].spec.program, cluster: true}})
	return f.startAll(ctx, plans, "process")
}

type plan struct {
	name string
	spec spec
}

func (f *Fleet) startAll(ctx context.Context, plans []plan, place string) error {
	backends := make([]*Backend, len(plans))
	errs := make([]error, len(plans))
	var wg sync.WaitGroup
	for i, p := range plans {
		wg.Go(func() { backends[i], errs[i] = startBackend(ctx, f, p, place) })
	}
	wg.Wait()
	for _, b := range backends {
		if b != nil {
			f.Backends = append(f.Backends, b)
		}
	}
	return errors.Join(errs...)
}

func startBackend(ctx context.Context, f *Fleet, p plan, place string) (*Backend, error) {
	var err error
	if f.library != "" {
		if p.spec.clock, err = clock.Create(filepath.Join(f.dir, p.name+".clock")); err != nil {
			return nil, err
		}
	}
	if p.spec.cluster {
		p.spec.options = neverFails
	}
	b := &Backend{Name: p.name, Place: place, Cluster: p.spec.cluster, Clock: p.spec.clock, launcher: f.launcher, template: p.spec}
	if p.spec.cluster {
		err = startCluster(ctx, f.launcher, b)
	} else {
		p.spec.name = p.name
		var n *Node
		if n, err = start(ctx, f.launcher, p.spec); err == nil {
			b.Nodes = []*Node{n}
		}
	}
	if err == nil {
		err = b.identify(ctx)
	}
	if err == nil {
		err = b.checkClock(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", p.name, err), b.stop())
	}
	return b, nil
}

// checkClock checks that the shim works in every node. If a server kept real time, tests would fail
// in misleading ways.
func (b *Backend) checkClock(ctx context.Context) error {
	if b.Clock == nil {
		return nil
	}
	const us = 1_700_000_000_123_456
	if err := b.SetTime(us); err != nil {
		return err
	}
	defer b.RealTime()
	for _, n := range b.Nodes {
		now, err := n.Client().Time(ctx).Result()
		if err != nil {
			return fmt.Errorf("%s: %w", n, err)
		}
		if now.UnixMicro() != us {
			return fmt.Errorf("%s: its clock was set to %d µs and it says %d: the clock shim is not at work in it", n, us, now.UnixMicro())
		}
	}
	return nil
}

// Stop removes everything that Start started. It may be called more than once, and from any
// goroutine.
func (f *Fleet) Stop() error {
	f.once.Do(func() {
		var wg sync.WaitGroup
		errs := make([]error, len(f.Backends), len(f.Backends)+2)
		for i, b := range f.Backends {
			wg.Go(func() { errs[i] = b.stop() })
		}
		wg.Wait()
		if f.launcher != nil {
			errs = append(errs, f.launcher.close())
		}
		if f.dir != "" {
			errs = append(errs, os.RemoveAll(f.dir))
		}
		f.stopErr = errors.Join(errs...)
	})
	return f.stopErr
}

// Summary describes one backend of a run. tools/test.sh adds the number of tests that ran on it.
type Summary struct {
	Name     string   `json:"name"`
	About    string   `json:"about"`
	Excluded []string `json:"excluded,omitempty"` // kinds of tests that could not run there
	NotRun   []string `json:"not_run,omitempty"`  // names of these tests; they do not count as passed
}

// WriteSummaries writes the summaries to a file as JSON.
func WriteSummaries(file string, summaries []Summary) error {
	text, err := json.MarshalIndent(summaries, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
