package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/protocol"
	"github.com/ratelimit-functions/ratelimit/tools/pictures/diagram"
)

// A fleet is three servers, which run a build.
type fleet struct {
	addrs []string // of the primaries A, B and C
	ring  *redis.Ring
}

func startFleet(t *testing.T) (f fleet) {
	shards := map[string]string{}
	for i := range 3 {
		f.addrs = append(f.addrs, embedded.Run(t).Addr())
		shards[fmt.Sprint(i)] = f.addrs[i]
	}
	slices.Sort(f.addrs)
	f.ring = redis.NewRing(&redis.RingOptions{Addrs: shards})
	t.Cleanup(func() { _ = f.ring.Close() })
	redistest.Must[loader.Report](t)(f.loader(t, nil, nil).Deploy(t.Context(), build(t, "10/m"), loader.Options{}))
	return f
}

// patience is the timeout of the loaders: longer than a test takes on a busy machine.
const patience = time.Minute

func (f fleet) loader(t *testing.T, steps func(protocol.Step), trace func(addr, command string)) *loader.Loader {
	return redistest.Must[*loader.Loader](t)(loader.New(f.ring, loader.Config{Timeout: patience, Steps: steps, Trace: trace}))
}

func build(t *testing.T, limit string) functions.Build {
	policy := functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: limit}}}
	return redistest.Must[functions.Build](t)(functions.New(functions.WithPolicies(policy)))
}

// A record has the steps of a call. tell, if it is not nil, is called for each step.
type record struct {
	mu    sync.Mutex
	steps []protocol.Step
	tell  func(protocol.Step)
}

func (r *record) add(s protocol.Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, s)
	if r.tell != nil {
		r.tell(s)
	}
}

// of returns the texts of the steps on a server. A server may take two fences in a row, against the
// two names of a call.
func (r *record) of(addr string) (found []string) {
	for _, s := range r.steps {
		if text := texts[s.Op]; s.Addr == addr && text != "" && !(s.Op == protocol.Fence && len(found) > 0 && found[len(found)-1] == text) {
			found = append(found, text)
		}
	}
	return found
}

// arrows returns the texts of the arrows between two parties.
func arrows(steps []diagram.Step, who, primary int) (found []string) {
	for _, s := range steps {
		if (s.Kind == diagram.Call || s.Kind == diagram.Reply) && (s.From == who && s.To == primary || s.From == primary && s.To == who) {
			found = append(found, s.Text)
		}
	}
	return found
}

// compare checks that a party does on each server what the picture shows.
func (r *record) compare(t *testing.T, f fleet, steps []diagram.Step, who int) {
	t.Helper()
	for i, addr := range f.addrs {
		if got, want := r.of(addr), arrows(steps, who, primaries[i]); !slices.Equal(got, want) {
			t.Errorf("on the primary %c: %q, and the picture shows %q", 'A'+i, got, want)
		}
	}
}

// from returns the record from the first step with op.
func (r *record) from(op protocol.Op) *record {
	first := slices.IndexFunc(r.steps, func(s protocol.Step) bool { return s.Op == op })
	return &record{steps: r.steps[max(first, 0):]}
}

// TestDeploy checks that a deployment acts on each server as its picture shows, and that it leases
// and writes the first server before the others.
func TestDeploy(t *testing.T) {
	f, r := startFleet(t), &record{}
	redistest.Must[loader.Report](t)(f.loader(t, r.add, nil).Deploy(t.Context(), build(t, "20/m"), loader.Options{}))
	r = r.from(protocol.Lease) // the picture has no arrows for the inspection
	r.compare(t, f, deploySteps(), deployer)
	for _, step := range [][2]protocol.Op{{protocol.Lease, protocol.Lease}, {protocol.Write, protocol.Wrote}} {
		is := func(op protocol.Op, first bool) func(protocol.Step) bool {
			return func(s protocol.Step) bool { return s.Op == op && (s.Addr == f.addrs[0]) == first }
		}
		if slices.IndexFunc(r.steps, is(step[1], true)) > slices.IndexFunc(r.steps, is(step[0], false)) {
			t.Errorf("%s: the first server was not done before the others", step[0])
		}
	}
}

// TestDeployDies stops a deployment after its second write, and checks that the watch and the late
// write act as the picture shows.
func TestDeployDies(t *testing.T) {
	f := startFleet(t)
	second, stopped, continued, ended := make(chan bool), make(chan bool), make(chan bool), make(chan error)
	alive, dead := &record{}, &record{tell: func(s protocol.Step) {
		if s.Op == protocol.Wrote && s.Addr == f.addrs[1] {
			close(second)
		}
	}}
	l := f.loader(t, dead.add, func(addr, command string) {
		if addr == f.addrs[2] && command == "FUNCTION LOAD REPLACE ratelimit" {
			close(stopped)
			<-continued
		}
	})
	go func() {
		_, err := l.Deploy(t.Context(), build(t, "20/m"), loader.Options{})
		ended <- err
	}()
	<-second
	<-stopped
	w := f.loader(t, alive.add, nil)
	if err := w.Repair(t.Context(), build(t, "10/m")); !errors.Is(err, loader.ErrLeased) {
		t.Errorf("while the leases are held: %v", err)
	}
	f.expire(t)
	if err := w.Repair(t.Context(), build(t, "10/m")); err != nil {
		t.Error(err)
	}
	alive.compare(t, f, deathSteps(), watch)
	close(continued)
	if err := <-ended; !errors.Is(err, loader.ErrOvertaken) {
		t.Errorf("the late write: %v", err)
	}
	if status := redistest.Must[loader.Report](t)(w.Status(t.Context(), build(t, "20/m"))); !status.InStep() {
		t.Errorf("the servers run %+v", status.Nodes)
	}
	// A program that died would not do what this one does after its last write.
	dead.steps = slices.DeleteFunc(dead.steps, func(s protocol.Step) bool {
		return s.Op != protocol.Write && s.Op != protocol.Wrote && s.Op != protocol.Refused
	})
	dead.compare(t, f, deathSteps(), deployer)
}

// expire makes the leases on all servers expire. It checks that they last as long as the picture
// says, if the timeout is the default.
func (f fleet) expire(t *testing.T) {
	t.Helper()
	number := func(code, name string) (n int64) {
		match := regexp.MustCompile(`local ` + name + ` = (\d+)`).FindStringSubmatch(code)
		if match == nil {
			t.Fatalf("no %s in %s", name, code)
		}
		_, _ = fmt.Sscan(match[1], &n)
		return n
	}
	var seconds int
	scan(t, "loader/loader.go", `defaultTimeout += (\d+) \* time.Second`, &seconds)
	for _, addr := range f.addrs {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		for _, l := range redistest.Must[[]redis.Library](t)(rdb.FunctionList(t.Context(), redis.FunctionListQuery{LibraryNamePattern: "ratelimit_lease_*", WithCode: true}).Result()) {
			timeouts := time.Duration(number(l.Code, "UNTIL_MS")-number(l.Code, "FROM_MS")) * time.Millisecond / patience
			shows(t, deployDies, fmt.Sprintf("%d s by the clock", int(timeouts)*seconds))
			code := regexp.MustCompile(`local UNTIL_MS = \d+`).ReplaceAllString(l.Code, "local UNTIL_MS = 1")
			redistest.Must[string](t)(rdb.FunctionLoadReplace(t.Context(), code).Result())
		}
		_ = rdb.Close()
	}
}
