package loader_test

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/loader"
)

// leaseOfAnn returns a library that represents a lease held by another deployment.
func leaseOfAnn(from, until time.Time) string {
	return fmt.Sprintf("#!lua name=ratelimit_lease_ann\nlocal WHO = 'ann'\nlocal FROM_MS = %d\nlocal UNTIL_MS = %d\n"+
		"redis.register_function('ratelimit_lease', function() return 1 end)", from.UnixMilli(), until.UnixMilli())
}

// beforeLease returns a trace that calls the function do once, before the lease is taken.
func beforeLease(do func()) option {
	var once sync.Once
	return trace(func(_, command string) {
		if strings.HasPrefix(command, "FUNCTION LOAD ratelimit_lease_") {
			once.Do(do)
		}
	})
}

// A second deployment at the same time fails with ErrLeased, or waits. If the first deployment
// crashed, the second takes over.
func TestLease(t *testing.T) {
	addr, _ := startRedis(t)
	ctx := t.Context()
	other := newLoader(t, at(t, addr))
	tried := false
	l := newLoader(t, at(t, addr), trace(func(_, command string) {
		if command != "FUNCTION LOAD REPLACE ratelimit" || tried {
			return
		}
		tried = true
		report, err := other.Deploy(ctx, version("0.1.0", "000000000002"), loader.Options{})
		if err == nil || !errors.Is(err, loader.ErrLeased) || report.Changed() != 0 {
			t.Errorf("a deployment during another: %v\n%s", err, states(report))
		}
	}))
	must[loader.Report](t)(l.Deploy(ctx, version("0.1.0", "000000000001"), loader.Options{}))
	if !tried || builds(t, []string{addr})[addr] != "000000000001" {
		t.Error(builds(t, []string{addr}))
	}

	leased := func(from, until time.Time) { put(t, addr, leaseOfAnn(from, until)) }
	now := must[time.Time](t)(at(t, addr).Time(ctx).Result())
	leased(now, now.Add(time.Hour))
	_, err := other.Deploy(ctx, version("0.1.0", "000000000002"), loader.Options{})
	want(t, "held", err, loader.ErrLeased)
	leased(now.Add(-time.Hour), now.Add(-time.Second))
	if report, err := other.Deploy(ctx, version("0.1.0", "000000000002"), loader.Options{}); err != nil || !report.InStep() {
		t.Errorf("after the lease ran out: %v", err)
	}
	leased(now.Add(time.Hour), now.Add(2*time.Hour))
	if report, err := other.Deploy(ctx, version("0.1.0", "000000000003"), loader.Options{}); err != nil || !report.InStep() {
		t.Errorf("a lease of before the clock was set back: %v", err)
	}
	// A waiting deployment continues when the other deployment is done.
	leased(now, now.Add(time.Hour))
	waiting := newLoader(t, at(t, addr), trace(func(_, command string) {
		if command == "TIME" {
			_ = at(t, addr).FunctionDelete(ctx, "ratelimit_lease_ann").Err()
		}
	}))
	if report, err := waiting.Deploy(ctx, version("0.1.0", "000000000004"), loader.Options{Wait: time.Minute}); err != nil || !report.InStep() {
		t.Errorf("waiting: %v", err)
	}
	builds(t, []string{addr}) // fails the test if a lease is left
	// This library registers the lease's function but is not a lease.
	require(t, at(t, addr).FunctionLoad(ctx, "#!lua name=mine\nredis.register_function('ratelimit_lease', function() return 1 end)").Err())
	_, err = other.Deploy(ctx, version("0.1.0", "000000000005"), loader.Options{})
	want(t, "name taken", err, loader.ErrNameTaken)
}

// After many concurrent deployments of different builds, all servers run one build, and every error
// is an ErrLeased.
func TestManyDeployersAtOnce(t *testing.T) {
	f := startThree(t, redis.Options{})
	for round := range 5 {
		var wg sync.WaitGroup
		var mu sync.Mutex
		done := 0
		for i := range 4 {
			l := newLoader(t, f.ring)
			wg.Go(func() {
				_, err := l.Deploy(t.Context(), version("0.1.0", fmt.Sprintf("%06d%06d", round, i)), loader.Options{})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					done++
				} else {
					checkPartial(t, err, loader.ErrLeased)
				}
			})
		}
		wg.Wait()
		found := map[string]bool{}
		for _, build := range builds(t, f.addrs) {
			found[build] = true
		}
		if len(found) != 1 || done == 0 {
			t.Errorf("round %d: %d done, and the servers run %v", round, done, found)
		}
	}
}

// The report contains the reply to WAIT, which does not count a replica that hangs.
func TestReplicasAreWaitedFor(t *testing.T) {
	primary, _ := startRedis(t)
	host, port := hostPort(primary)
	replica, _ := startRedis(t, "--replicaof", host+" "+port)
	eventually(t, "the replica follows", func() bool {
		return strings.Contains(at(t, primary).Info(t.Context(), "replication").Val(), "state=online")
	})
	report := must[loader.Report](t)(newLoader(t, at(t, primary), timeout(time.Minute)).Deploy(t.Context(), version("0.1.0", "000000000001"), loader.Options{}))
	if n := report.Nodes[0]; n.Replicas != 1 || n.Acked != 1 {
		t.Errorf("%+v", n)
	}
	if got := builds(t, []string{replica})[replica]; got != "000000000001" {
		t.Errorf("the replica that confirmed runs %s", got)
	}
	pid := at(t, replica).InfoMap(t.Context(), "server").Item("Server", "process_id")
	require(t, exec.Command("kill", "-STOP", pid).Run())
	report = must[loader.Report](t)(newLoader(t, at(t, primary), timeout(4*time.Second)).Deploy(t.Context(), version("0.1.0", "000000000002"), loader.Options{}))
	if n := report.Nodes[0]; n.Replicas != 1 || n.Acked != 0 || !report.InStep() {
		t.Errorf("%+v", n)
	}
}

// A deployment reads the nodes again after it has taken the lease. So it does not replace a newer
// version that was loaded since the inspection, and it records the library that it actually
// replaces.
func TestLookedAtAgainUnderTheLease(t *testing.T) {
	addr, _ := startRedis(t)
	ctx := t.Context()
	other := newLoader(t, at(t, addr))
	between := func(build loader.Build) *loader.Loader {
		return newLoader(t, at(t, addr), beforeLease(func() { must[loader.Report](t)(other.Deploy(ctx, build, loader.Options{})) }))
	}
	_, err := between(version("0.2.0", "000000000002")).Deploy(ctx, version("0.1.0", "000000000001"), loader.Options{})
	checkPartial(t, err, loader.ErrDowngrade)
	if got := builds(t, []string{addr})[addr]; got != "000000000002" {
		t.Errorf("the server runs %s", got)
	}
	report := must[loader.Report](t)(between(version("0.3.0", "000000000003")).Deploy(ctx, version("0.4.0", "000000000004"), loader.Options{}))
	if n := report.Nodes[0]; n.Running.BuildID != "000000000004" || n.Previous.BuildID != "000000000003" {
		t.Errorf("%+v", n)
	}
}

// A rollback undoes the deployment that it found in its inspection. If another deployment or rollback
// has ended since then, the rollback fails.
func TestRollbackOfWhatWasLookedAt(t *testing.T) {
	addr, _ := startRedis(t)
	ctx := t.Context()
	other := newLoader(t, at(t, addr))
	for _, tt := range []struct {
		between func() (loader.Report, error)
		runs    string
	}{
		{func() (loader.Report, error) { return other.Deploy(ctx, buildC, loader.Options{}) }, "00000000000c"},
		{func() (loader.Report, error) { return other.Rollback(ctx, loader.Options{}) }, "00000000000a"},
	} {
		must[loader.Report](t)(other.Deploy(ctx, buildA, loader.Options{}))
		must[loader.Report](t)(other.Deploy(ctx, buildB, loader.Options{}))
		l := newLoader(t, at(t, addr), beforeLease(func() { must[loader.Report](t)(tt.between()) }))
		report, err := l.Rollback(ctx, loader.Options{})
		if want(t, "a deployment between", err, loader.ErrOvertaken); report.Changed() != 0 {
			t.Errorf("%s", states(report))
		}
		if got := builds(t, []string{addr})[addr]; got != tt.runs {
			t.Errorf("the server runs %s, want %s", got, tt.runs)
		}
	}
}

// Delete fails if another deployment finished while Delete waited for the lease.
func TestDeleteOfWhatWasLookedAt(t *testing.T) {
	addr, _ := startRedis(t)
	ctx := t.Context()
	other := newLoader(t, at(t, addr))
	must[loader.Report](t)(other.Deploy(ctx, buildA, loader.Options{}))
	l := newLoader(t, at(t, addr), beforeLease(func() { must[loader.Report](t)(other.Deploy(ctx, buildB, loader.Options{})) }))
	_, err := l.Delete(ctx, loader.Options{})
	want(t, "a deployment between", err, loader.ErrOvertaken)
	if got := builds(t, []string{addr})[addr]; got != "00000000000b" {
		t.Errorf("the server runs %s", got)
	}
	must[loader.Report](t)(l.Delete(ctx, loader.Options{}))
	if found := texts(t, addr); len(found) > 1 || builds(t, []string{addr})[addr] != "-" {
		t.Errorf("%d libraries are left", len(found))
	}
}

// A deployment that a watch has completed, after its leases expired, finds its build everywhere when it goes
// on, and succeeds.
func TestCompletedByAWatch(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	other := newLoader(t, f.ring)
	must[loader.Report](t)(other.Deploy(ctx, buildA, loader.Options{}))
	var mu sync.Mutex
	wrote, completed := false, false
	l := newLoader(t, f.ring, trace(func(node, command string) {
		mu.Lock()
		defer mu.Unlock()
		if node == f.addrs[0] {
			wrote = wrote || command == "FUNCTION LOAD REPLACE ratelimit"
		} else if wrote && !completed && strings.HasPrefix(command, "FUNCTION LIST") { // before the second write
			completed = true
			for _, addr := range f.addrs {
				expire(t, addr)
			}
			if err := other.Repair(ctx, buildA); err != nil {
				t.Error(err)
			}
		}
	}))
	report := must[loader.Report](t)(l.Deploy(ctx, buildB, loader.Options{}))
	if !completed || !report.InStep() || report.Changed() != 1 {
		t.Errorf("completed: %v\n%s", completed, states(report))
	}
}

// leaseOf returns the name of the lease on a server, or "" if there is none.
func leaseOf(t *testing.T, addr string) string {
	t.Helper()
	for name := range texts(t, addr) {
		if strings.HasPrefix(name, "ratelimit_lease_") {
			return name
		}
	}
	return ""
}

// expire replaces the lease on a server by one of the same deployment that has expired.
func expire(t *testing.T, addr string) {
	t.Helper()
	name := leaseOf(t, addr)
	code := texts(t, addr)[name]
	put(t, addr, regexp.MustCompile(`local UNTIL_MS = \d+`).ReplaceAllString(code, "local UNTIL_MS = 1"))
}

// onFirstLoad returns a trace that calls the function do when the first server is about to get the
// build. It counts the renewals of the lease.
func onFirstLoad(f three, renewals *atomic.Int64, do func()) option {
	return trace(func(node, command string) {
		switch {
		case node == f.addrs[0] && command == "FUNCTION LOAD REPLACE ratelimit":
			do()
		case strings.HasPrefix(command, "FUNCTION LOAD REPLACE ratelimit_lease_"):
			renewals.Add(1)
		}
	})
}

// A deployment renews its lease when a third of the lease's duration has passed.
func TestLeaseIsRenewed(t *testing.T) {
	f := startThree(t, redis.Options{})
	for _, tt := range []struct {
		took     time.Duration
		renewals int64
	}{{2*time.Minute - 1, 0}, {2 * time.Minute, 2}, {6*time.Minute - 1, 2}, {12 * time.Minute, 2}} { // a lease lasts six minutes, and two servers are written after the first
		clock := newTestClock()
		var renewals atomic.Int64
		l := newLoader(t, f.ring, clock.option(), onFirstLoad(f, &renewals, func() { clock.move(tt.took) }))
		report, err := l.Deploy(t.Context(), version("0.1.0", fmt.Sprintf("%012d", tt.took.Milliseconds())), loader.Options{})
		if err != nil || !report.InStep() || renewals.Load() != tt.renewals {
			t.Errorf("after %v: %d renewals, want %d; %v\n%s", tt.took, renewals.Load(), tt.renewals, err, states(report))
		}
		builds(t, f.addrs) // fails the test if a lease is left
	}
}

// If the lease of a deployment has expired and another deployment has started, the first deployment
// stops and restores nothing.
func TestLeaseIsLost(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	other := newLoader(t, f.ring)
	for _, tt := range []struct {
		name  string
		took  time.Duration
		other func() // runs before the first server is written
		notes int
		runs  [3]string
	}{
		{"the other one is at it", 2 * time.Minute, func() {
			mustRun(t, at(t, f.addrs[1]), "FUNCTION", "DELETE", leaseOf(t, f.addrs[1]))
			put(t, f.addrs[1], leaseOfAnn(time.Now(), time.Now().Add(time.Hour)))
			put(t, f.addrs[1], string(buildC))
		}, 1, [3]string{"00000000000b", "00000000000c", "00000000000b"}},
		{"the other one is done", 12 * time.Minute, func() {
			for _, addr := range f.addrs {
				expire(t, addr)
			}
			must[loader.Report](t)(other.Deploy(ctx, buildC, loader.Options{}))
		}, 0, [3]string{"00000000000c", "00000000000c", "00000000000c"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			must[loader.Report](t)(other.Deploy(ctx, buildA, loader.Options{}))
			clock := newTestClock()
			var renewals atomic.Int64
			l := newLoader(t, f.ring, clock.option(), onFirstLoad(f, &renewals, func() {
				clock.move(tt.took)
				tt.other()
			}))
			report, err := l.Deploy(ctx, buildB, loader.Options{})
			checkPartial(t, err, loader.ErrLeased)
			if changed := report.Changed(); changed != 2*tt.notes || strings.HasPrefix(err.Error(), "nothing was changed") != (changed == 0) {
				t.Errorf("%d servers changed; %v", changed, err)
			}
			if len(report.Notes) != tt.notes || tt.notes > 0 && !errors.Is(report.Notes[0], loader.ErrOvertaken) {
				t.Errorf("the notes are %v", report.Notes)
			}
			_ = at(t, f.addrs[1]).FunctionDelete(ctx, "ratelimit_lease_ann").Err()
			found := builds(t, f.addrs)
			for i, addr := range f.addrs {
				if found[addr] != tt.runs[i] {
					t.Errorf("server %d runs %s, want %s", i+1, found[addr], tt.runs[i])
				}
			}
		})
	}
}

// Deploy waits for another deployment's lease for the given time, and retries five times a second.
// It then fails with ErrLeased.
func TestWaitForLeaseEnds(t *testing.T) {
	addr, _ := startRedis(t)
	ctx := t.Context()
	now := must[time.Time](t)(at(t, addr).Time(ctx).Result())
	put(t, addr, leaseOfAnn(now, now.Add(time.Hour)))
	for _, patience := range []time.Duration{0, time.Second, 1100 * time.Millisecond} {
		clock := newTestClock()
		began, sleeps := clock.now(), 0
		l := newLoader(t, at(t, addr), withClock(clock.now, func(d time.Duration) <-chan time.Time {
			sleeps++
			woken := clock.after(d)
			clock.move(d)
			return woken
		}))
		_, err := l.Deploy(ctx, buildA, loader.Options{Wait: patience})
		checkPartial(t, err, loader.ErrLeased)
		waited := clock.now().Sub(began)
		if waited != patience || sleeps != int((patience+199*time.Millisecond)/(200*time.Millisecond)) {
			t.Errorf("waited %v for %v, in %d pieces", waited, patience, sleeps)
		}
	}
}

// If Deploy or Delete cannot release the lease, the call still succeeds, and the report has a note.
func TestLeaseNotGivenBack(t *testing.T) {
	addr, _ := startRedis(t)
	ctx := t.Context()
	mustRun(t, at(t, addr), append([]any{"ACL", "SETUSER", "deployer", "on", ">x"}, words(rights)...)...)
	l := newLoader(t, connect(t, redis.Options{Addr: addr, Username: "deployer", Password: "x"}), trace(func(_, command string) {
		if strings.HasPrefix(command, "FUNCTION DELETE ratelimit_lease_") {
			mustRun(t, at(t, addr), "ACL", "SETUSER", "deployer", "-function|delete")
		}
	}))
	for _, do := range []func() (loader.Report, error){
		func() (loader.Report, error) { return l.Deploy(ctx, buildA, loader.Options{}) },
		func() (loader.Report, error) { return l.Delete(ctx, loader.Options{}) },
	} {
		mustRun(t, at(t, addr), "ACL", "SETUSER", "deployer", "+function|delete")
		report, err := do()
		if err != nil || report.Changed() != 1 || len(report.Notes) != 1 || report.Notes[0].Code != "NOPERM" || report.Notes[0].Step != "FUNCTION DELETE" {
			t.Errorf("%v, %v\n%s", err, report.Notes, states(report))
		}
		removeLease(t, []string{addr})
	}
}
