package loader_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/protocol"
)

// version returns a small library with the given version and build ID. Tests that only check which
// build each server runs use it, because it loads much faster than the real one.
func version(v, id string) loader.Text {
	return loader.Text("#!lua name=ratelimit\nlocal VERSION = '" + v + "'\nlocal CONTRACT = 1\nlocal BUILD_ID = '" + id + "'\n" +
		"redis.register_function{function_name = 'ratelimit_take', callback = function() return VERSION end}\n" +
		"redis.register_function{function_name = 'ratelimit_info', callback = function() return {'version', VERSION, 'contract', CONTRACT, 'build_id', BUILD_ID} end, flags = {'no-writes'}}\n")
}

// libraryAs returns the library with another version and build ID.
func libraryAs(v, id string) loader.Text {
	text := strings.Replace(functions.Source(), "local BUILD_ID = '"+functions.BuildID()+"'", "local BUILD_ID = '"+id+"'", 1)
	return loader.Text(strings.Replace(text, "local VERSION = '"+functions.Version()+"'", "local VERSION = '"+v+"'", 1) + "-- " + id + "\n")
}

// three holds the addresses of three servers in one ring, and functions that stop the servers.
type three struct {
	addrs []string
	stop  []func()
	ring  *redis.Ring
}

func startThree(t *testing.T, auth redis.Options) three {
	t.Helper()
	var f three
	shards, stops := map[string]string{}, map[string]func(){}
	for i := range 3 {
		addr, stop := startRedis(t)
		f.addrs, stops[addr] = append(f.addrs, addr), stop
		shards[fmt.Sprint(i)] = addr
	}
	slices.Sort(f.addrs)
	for _, addr := range f.addrs {
		f.stop = append(f.stop, stops[addr])
	}
	f.ring = redis.NewRing(&redis.RingOptions{Addrs: shards, Username: auth.Username, Password: auth.Password})
	t.Cleanup(func() { _ = f.ring.Close() })
	return f
}

// builds returns the ID of the build that each reachable server runs, or "-" if it has no library.
// It fails the test if a server has a lease.
func builds(t *testing.T, addrs []string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, addr := range addrs {
		rdb := redis.NewClient(&redis.Options{Addr: addr, DialerRetries: 1, MaxRetries: -1})
		list, err := rdb.FunctionList(t.Context(), redis.FunctionListQuery{LibraryNamePattern: "ratelimit*", WithCode: true}).Result()
		_ = rdb.Close()
		if err != nil {
			continue
		}
		found[addr] = "-"
		for _, l := range list {
			if strings.HasPrefix(l.Name, "ratelimit_lease") {
				t.Errorf("%s still holds the lease %s", addr, l.Name)
			}
			if _, id, ok := strings.Cut(l.Code, "local BUILD_ID = '"); ok && l.Name == "ratelimit" {
				found[addr], _, _ = strings.Cut(id, "'")
			}
		}
	}
	return found
}

// stepsOf deploys build, and returns the commands that were sent to one node, in order. on is the
// address of the node.
func stepsOf(t *testing.T, f three, auth redis.Options, on string, build loader.Build) []string {
	t.Helper()
	var mu sync.Mutex
	var steps []string
	l := newLoader(t, f.ring, trace(func(node, command string) {
		mu.Lock()
		defer mu.Unlock()
		if node == on {
			command, _, isLease := strings.Cut(command, "ratelimit_lease_")
			if isLease {
				command += "ratelimit_lease" // without the random end of its name
			}
			steps = append(steps, command)
		}
	}))
	must[loader.Report](t)(l.Deploy(t.Context(), build, loader.Options{}))
	return steps
}

// The user loses all permissions on one of three servers before one step of a deployment. The test
// repeats this for each server and each step. Afterwards all servers run the new build, or all run
// the old one.
func TestPermissionLostAtAnyStep(t *testing.T) {
	auth := redis.Options{Username: "deployer", Password: "x"}
	f := startThree(t, auth)
	grant := func() {
		for _, addr := range f.addrs {
			mustRun(t, at(t, addr), append([]any{"ACL", "SETUSER", "deployer", "on", ">x"}, words(rights)...)...)
		}
	}
	grant()
	oldBuild, newBuild := version("0.1.0", "000000000001"), version("0.1.0", "000000000002")
	steps := map[string][]string{}
	plain := newLoader(t, f.ring)
	for _, addr := range f.addrs {
		must[loader.Report](t)(plain.Deploy(t.Context(), oldBuild, loader.Options{}))
		steps[addr] = stepsOf(t, f, auth, addr, newBuild)
	}
	if n := len(steps[f.addrs[0]]); n <= len(steps[f.addrs[1]]) || len(steps[f.addrs[1]]) < 8 {
		t.Fatalf("the steps are %q", steps)
	}
	for i, addr := range f.addrs {
		for step := range steps[addr] {
			t.Run(fmt.Sprintf("node %d step %d %s", i, step, steps[addr][step]), func(t *testing.T) {
				grant()
				must[loader.Report](t)(plain.Deploy(t.Context(), oldBuild, loader.Options{}))
				count := 0
				var mu sync.Mutex
				l := newLoader(t, f.ring, trace(func(node, _ string) {
					mu.Lock()
					defer mu.Unlock()
					if node != addr {
						return
					}
					if count == step {
						if err := at(t, addr).Do(context.Background(), "ACL", "SETUSER", "deployer", "-@all").Err(); err != nil {
							t.Error(err)
						}
					}
					count++
				}))
				report, err := l.Deploy(t.Context(), newBuild, loader.Options{})
				grant()
				// If the lease could not be released because permissions were missing, a note says
				// so. The test removes the lease, because waiting until it expires would take long.
				for _, note := range report.Notes {
					if note.Step != "FUNCTION DELETE" && !strings.HasPrefix(note.Problem, "not all nodes are known") {
						t.Errorf("%+v", note)
					}
					removeLease(t, f.addrs)
				}
				got := builds(t, f.addrs)
				want := "000000000001"
				if err == nil {
					want = "000000000002"
				} else {
					checkPartial(t, err, nodes.ErrNoPermission)
				}
				for addr, build := range got {
					if build != want && !reportsUnknown(report, addr, build) {
						t.Errorf("%s runs %s, want %s; err %v\n%s", addr, build, want, err, states(report))
					}
					if build != want && err == nil {
						t.Errorf("no error, and %s runs %s", addr, build)
					}
					if build != want && addr != f.addrs[i] {
						t.Errorf("%s, which lost no right, runs %s, want %s", addr, build, want)
					}
				}
				// A second deployment brings all servers to the same build.
				if report, err := plain.Deploy(t.Context(), newBuild, loader.Options{}); err != nil || !report.InStep() {
					t.Errorf("run again: %v\n%s", err, states(report))
				}
			})
		}
	}
}

// reportsUnknown reports whether r has an error for the node at addr and, according to r, the node
// may run the build.
func reportsUnknown(r loader.Report, addr, build string) bool {
	for _, n := range r.Nodes {
		if n.Addr == addr {
			return n.Err != nil && (n.State == loader.Unknown || n.State == loader.Unreachable || n.Running.BuildID == build)
		}
	}
	return false
}

func checkPartial(t *testing.T, err, class error) {
	t.Helper()
	var partial *loader.PartialError
	var node *nodes.Error
	if !errors.As(err, &partial) || !errors.As(err, &node) || !errors.Is(err, class) {
		t.Errorf("the error %T %v is not a PartialError of %v", err, err, class)
	}
}

func removeLease(t *testing.T, addrs []string) {
	t.Helper()
	for _, addr := range addrs {
		list := must[[]redis.Library](t)(at(t, addr).FunctionList(t.Context(), redis.FunctionListQuery{LibraryNamePattern: "ratelimit_lease_*"}).Result())
		for _, l := range list {
			mustRun(t, at(t, addr), "FUNCTION", "DELETE", l.Name)
		}
	}
}

// If one of three servers dies while it gets the build, the others get their libraries and records
// back.
func TestPutBack(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	plain := newLoader(t, f.ring)
	for _, b := range []loader.Text{version("0.1.0", "000000000001"), version("0.1.0", "000000000002")} {
		must[loader.Report](t)(plain.Deploy(ctx, b, loader.Options{}))
	}
	l := newLoader(t, f.ring, trace(func(node, command string) {
		if node == f.addrs[2] && command == "FUNCTION LOAD REPLACE ratelimit" {
			f.stop[2]()
		}
	}))
	next := version("0.1.0", "000000000003")
	report, err := l.Deploy(ctx, next, loader.Options{})
	checkPartial(t, err, nodes.ErrUnreachable)
	if !strings.HasPrefix(err.Error(), "build 000000000003 was sent to 3 of 3 nodes; 2 of these got back what they had, and 1 failed: ") {
		t.Error(err)
	}
	for i, n := range report.Nodes {
		if i == 2 {
			if n.State != loader.Unreachable || n.PutBack || n.Changed {
				t.Errorf("%+v", n)
			}
		} else if !n.PutBack || n.Changed || n.Err != nil || n.Running.BuildID != "000000000002" || n.Previous.BuildID != "000000000001" {
			t.Errorf("%+v", n)
		}
	}
	if got, want := builds(t, f.addrs), map[string]string{f.addrs[0]: "000000000002", f.addrs[1]: "000000000002"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	// If the servers had no library before, they register no function of it after the failure.
	two := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"0": f.addrs[0], "1": f.addrs[1]}})
	t.Cleanup(func() { _ = two.Close() })
	must[loader.Report](t)(newLoader(t, two).Delete(ctx, loader.Options{}))
	l = newLoader(t, two, trace(func(node, command string) {
		if node == f.addrs[1] && command == "FUNCTION LOAD REPLACE ratelimit" {
			f.stop[1]()
		}
	}))
	_, err = l.Deploy(ctx, next, loader.Options{})
	checkPartial(t, err, nodes.ErrUnreachable)
	if left := texts(t, f.addrs[0]); len(left) != 1 || strings.Contains(left["ratelimit"], "ratelimit_take") {
		t.Errorf("%v is left", left)
	}
}

// A server that loses the build before it is read again makes the deployment restore all servers. The
// report does not count a restored server as changed.
func TestLostBeforeItIsReadAgain(t *testing.T) {
	f := startThree(t, redis.Options{})
	must[loader.Report](t)(newLoader(t, f.ring).Deploy(t.Context(), version("0.1.0", "000000000001"), loader.Options{}))
	var once sync.Once
	l := newLoader(t, f.ring, steps(func(s protocol.Step) {
		if s.Op == protocol.Wrote && s.Addr == f.addrs[1] {
			once.Do(func() { mustRun(t, at(t, s.Addr), "FUNCTION", "FLUSH") })
		}
	}))
	report, err := l.Deploy(t.Context(), version("0.1.0", "000000000002"), loader.Options{})
	checkPartial(t, err, loader.ErrOverwritten)
	if report.Changed() != 0 || !strings.HasPrefix(err.Error(), "build 000000000002 was loaded on 3 of 3 nodes, which then got back what they had, because 1 failed: ") {
		t.Errorf("%v\n%s", err, states(report))
	}
	for addr, build := range builds(t, f.addrs) {
		if build != "000000000001" {
			t.Errorf("%s runs %s", addr, build)
		}
	}
}

// A canceled deployment restores the nodes that it changed.
func TestCancelled(t *testing.T) {
	f := startThree(t, redis.Options{})
	must[loader.Report](t)(newLoader(t, f.ring).Deploy(t.Context(), version("0.1.0", "000000000001"), loader.Options{}))
	ctx, cancel := context.WithCancel(t.Context())
	l := newLoader(t, f.ring, trace(func(node, command string) {
		if node == f.addrs[1] && command == "FUNCTION LOAD REPLACE ratelimit" {
			cancel()
		}
	}))
	_, err := l.Deploy(ctx, version("0.1.0", "000000000002"), loader.Options{})
	checkPartial(t, err, context.Canceled)
	for addr, build := range builds(t, f.addrs) {
		if build != "000000000001" {
			t.Errorf("%s runs %s", addr, build)
		}
	}
}

func TestDowngradeIsRefused(t *testing.T) {
	addr, _ := startRedis(t)
	l := newLoader(t, at(t, addr))
	ctx := t.Context()
	newest := loader.Text(strings.Replace(string(version("0.2.0", "000000000009")), "local CONTRACT = 1", "local CONTRACT = 2", 1))
	must[loader.Report](t)(l.Deploy(ctx, newest, loader.Options{}))
	_, err := l.Deploy(ctx, version("0.3.0", "000000000003"), loader.Options{})
	want(t, "contract", err, loader.ErrDowngrade)
	must[loader.Report](t)(l.Deploy(ctx, version("0.2.0", "000000000002"), loader.Options{AllowDowngrade: true}))
	_, err = l.Deploy(ctx, build(t), loader.Options{})
	want(t, "version", err, loader.ErrDowngrade)
	report := must[loader.Report](t)(l.Deploy(ctx, build(t), loader.Options{AllowDowngrade: true}))
	if !report.InStep() || report.Nodes[0].Previous.BuildID != "000000000002" {
		t.Errorf("%+v", report)
	}
	stranger := "#!lua name=ratelimit\nredis.register_function('mine', function() return 1 end)"
	require(t, at(t, addr).FunctionLoadReplace(ctx, stranger).Err())
	_, err = l.Deploy(ctx, build(t), loader.Options{})
	want(t, "foreign", err, nodes.ErrForeign)
	_, err = l.Delete(ctx, loader.Options{})
	if !errors.Is(err, nodes.ErrForeign) {
		t.Errorf("delete: %v", err)
	}
	report = must[loader.Report](t)(l.Deploy(ctx, build(t), loader.Options{ReplaceForeign: true}))
	if !report.InStep() || report.Nodes[0].Previous.Digest != functions.Digest(stranger) {
		t.Errorf("%+v", report)
	}
}

func TestNotABuild(t *testing.T) {
	l := newLoader(t, at(t, "127.0.0.1:1"))
	for _, build := range []loader.Build{functions.Build{}, loader.Text("#!lua name=other\nx")} {
		if _, err := l.Deploy(t.Context(), build, loader.Options{}); !errors.Is(err, loader.ErrBadBuild) {
			t.Error(err)
		}
	}
}

// A Loader that did not make the deployment rolls back from one build to another, and back again.
func TestRollback(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	l := newLoader(t, f.ring)
	_, err := l.Rollback(ctx, loader.Options{})
	if !errors.Is(err, loader.ErrNothingKept) {
		t.Error(err)
	}
	// The code contains characters that are special in Lua.
	one := loader.Text(string(libraryAs("0.1.0", "000000000001")) + "-- \"quoted\" \\n \\ ]] \xff\r\n--\r\n")
	two := libraryAs("0.2.0", "000000000002")
	must[loader.Report](t)(l.Deploy(ctx, one, loader.Options{}))
	_, err = l.Rollback(ctx, loader.Options{})
	if !errors.Is(err, loader.ErrNothingKept) {
		t.Error(err)
	}
	must[loader.Report](t)(l.Deploy(ctx, two, loader.Options{}))
	for i, expect := range []loader.Text{one, two, one} {
		report, err := newLoader(t, f.ring).Rollback(ctx, loader.Options{})
		if err != nil || report.Changed() != 3 || !report.InStep() || report.Wanted.Digest != functions.Digest(string(expect)) {
			t.Errorf("rollback %d: %v\n%s", i, err, states(report))
		}
	}
	report := must[loader.Report](t)(l.Delete(ctx, loader.Options{}))
	if report.Changed() != 3 {
		t.Errorf("delete: %s", states(report))
	}
	for _, addr := range f.addrs {
		if left := texts(t, addr); len(left) != 1 || strings.Contains(left["ratelimit"], "ratelimit_take") {
			t.Errorf("%s holds %v", addr, left)
		}
	}
	if report, err := l.Delete(ctx, loader.Options{}); err != nil || report.Changed() != 0 {
		t.Errorf("delete again: %v\n%s", err, states(report))
	}
}

// If a library takes longer to load than a server allows, the load fails on the first server, and
// all servers keep the previous build.
func TestTextThatTakesTooLong(t *testing.T) {
	f := startThree(t, redis.Options{})
	l := newLoader(t, f.ring)
	must[loader.Report](t)(l.Deploy(t.Context(), version("0.1.0", "000000000001"), loader.Options{}))
	report, err := l.Deploy(t.Context(), version("0.1.0", "000000000002")+"\nfor i = 1, 1e12 do end\n", loader.Options{})
	checkPartial(t, err, loader.ErrRefused)
	for _, n := range report.Nodes {
		if n.Running.BuildID != "000000000001" || n.Changed || n.PutBack {
			t.Errorf("%+v", n)
		}
	}
}
