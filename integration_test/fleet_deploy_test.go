package integration_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/acl"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
)

// TestFleetKilledAtEachStep repeats a deployment, and kills one of three primaries at a different
// step each time. Afterwards all primaries that reply must run the same build, either the new or
// the old one. Each step is tried with one primary or, with RATELIMIT_SOAK, with every primary.
func TestFleetKilledAtEachStep(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		oldBuild, newBuild := policyBuild(t, "before"), policyBuild(t, "after")
		primaries := primariesOf(ctx, t, b)
		if len(primaries) != 3 {
			t.Fatalf("%d primaries", len(primaries))
		}
		turn := 0
		for i, n := range primaries {
			// Leave out the address of the node to be killed, so that the client finds the cluster
			// through the other nodes.
			client := func() redis.UniversalClient {
				return newClient(t, b, func(o *redis.UniversalOptions) {
					o.Addrs = slices.DeleteFunc(slices.Clone(o.Addrs), func(addr string) bool { return addr == n.Addr })
				})
			}
			deploy(ctx, t, newLoader(t, client()), oldBuild)
			steps := stepsOfDeploy(ctx, t, client(), newBuild)[n.Addr]
			if len(steps) < 8 {
				t.Fatalf("the steps on %s are %q", n, steps)
			}
			for step, command := range steps {
				if os.Getenv("RATELIMIT_SOAK") == "" && step%len(primaries) != i {
					continue
				}
				turn++
				t.Run(fmt.Sprintf("primary %d, step %d, %s", i+1, step+1, command), func(t *testing.T) {
					ctx := testContext(t)
					waitForReplicas(ctx, t, primaries)
					killed := false
					for try := 0; !killed; try++ {
						if try == 3 { // which node is asked for the topology varies, and so does the number of a step
							t.Fatal("the step did not come in three deployments")
						}
						deploy(ctx, t, newLoader(t, newClient(t, b)), oldBuild)
						l := newLoader(t, client(), atStep(n.Addr, step, func() {
							killed = true
							if err := n.Kill(ctx); err != nil {
								t.Error(err)
							}
						}))
						report, err := l.Deploy(ctx, newBuild, loader.Options{})
						allOrNone(ctx, t, primaries, report, err, oldBuild.Digest(), newBuild.Digest())
						if err != nil && !errors.Is(err, nodes.ErrUnreachable) {
							t.Errorf("the error is %v", err)
						}
					}
					// The node restarts as an empty primary. Its replica does not take over, because
					// cluster-node-timeout is too long.
					require(t, n.Restart(ctx))
				})
			}
		}
		if turn < 8 {
			t.Errorf("only %d steps were tried", turn)
		}
	}, ofCluster)
}

// TestFleetRefusedAtEachStep is like TestFleetKilledAtEachStep, except that the node keeps running
// and refuses all commands of the deploying user from that step on.
func TestFleetRefusedAtEachStep(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		oldBuild, newBuild := policyBuild(t, "before"), policyBuild(t, "after")
		primaries := primariesOf(ctx, t, b)
		rules := accessRules(t, oldBuild, acl.Deployer, "", true)
		setUser(t, b, "fleet-deployer", rules)
		as := func() redis.UniversalClient { return newClient(t, b, asUser("fleet-deployer")) }
		plain := newLoader(t, as())
		deploy(ctx, t, plain, oldBuild)
		steps := stepsOfDeploy(ctx, t, as(), newBuild)
		turn := 0
		for i, n := range primaries {
			for step, command := range steps[n.Addr] {
				if os.Getenv("RATELIMIT_SOAK") == "" && step%len(primaries) != i {
					continue
				}
				turn++
				t.Run(fmt.Sprintf("primary %d, step %d, %s", i+1, step+1, command), func(t *testing.T) {
					deploy(ctx, t, plain, oldBuild)
					l := newLoader(t, as(), atStep(n.Addr, step, func() { aclSet(ctx, t, n, "fleet-deployer", "-@all") }))
					report, err := l.Deploy(ctx, newBuild, loader.Options{})
					aclSet(ctx, t, n, "fleet-deployer", rules[1:]...)
					for _, note := range report.Notes {
						if note.Step != "FUNCTION DELETE" && !strings.HasPrefix(note.Problem, "not all nodes are known") {
							t.Errorf("the note %q", note)
						}
						removeLeases(ctx, t, n)
					}
					for other, digest := range deployed(ctx, t, primaries) {
						want := newBuild.Digest()
						if err != nil {
							want = oldBuild.Digest()
						}
						// The node that refuses every command may have received the build just
						// before. The deployment cannot restore this node, so the report must not
						// say that it runs the old build.
						unknown := slices.ContainsFunc(report.Nodes, func(r loader.Node) bool {
							return r.Addr == n.Addr && r.Err != nil && (r.State == loader.Unknown || r.Running.Digest == digest)
						})
						if digest != want && (other != n || !unknown) {
							t.Errorf("%s runs %.12s, want %.12s; the error is %v", other, digest, want, err)
						}
					}
					if err != nil && !errors.Is(err, nodes.ErrNoPermission) {
						t.Errorf("the error is %v", err)
					}
				})
			}
		}
		deploy(ctx, t, plain, newBuild)
		if turn < 8 {
			t.Errorf("only %d steps were tried", turn)
		}
	}, ofCluster)
}

// TestFleetTwoDeployersAtOnce repeatedly runs two deployments of different builds at once.
// Afterwards all nodes must run the same build. The only permitted error says that another
// deployment is in progress.
func TestFleetTwoDeployersAtOnce(t *testing.T) {
	rounds := 10
	if os.Getenv("RATELIMIT_SOAK") != "" {
		rounds = 50
	}
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		primaries := primariesOf(ctx, t, b)
		refused := 0
		for round := range rounds {
			var group sync.WaitGroup
			errs := make([]error, 2)
			for i := range errs {
				l := newLoader(t, newClient(t, b))
				build := policyBuild(t, fmt.Sprintf("round%d-deployer%d", round, i))
				group.Go(func() { _, errs[i] = l.Deploy(ctx, build, loader.Options{}) })
			}
			group.Wait()
			for _, err := range errs {
				var partial *loader.PartialError
				if err == nil {
					continue
				}
				refused++
				if !errors.As(err, &partial) || !errors.Is(err, loader.ErrLeased) {
					t.Errorf("round %d: %T %v", round, err, err)
				}
			}
			if errs[0] != nil && errs[1] != nil {
				t.Errorf("round %d: neither got through: %v; %v", round, errs[0], errs[1])
			}
			digests := map[string]bool{}
			for _, digest := range deployed(ctx, t, primaries) {
				digests[digest] = true
			}
			if len(digests) != 1 || digests[""] {
				t.Errorf("round %d: the primaries run %v", round, digests)
			}
		}
		t.Logf("%d rounds; in %d the second was refused", rounds, refused)
	})
}

const userPassword = "of-a-test"

// TestFleetNodeThatHangs suspends a primary just before it would load the library. Each step on
// this primary ends at its deadline, the other primaries get their old library back, and the report
// says that the suspended primary is unreachable. After the primary has resumed, the next
// deployment succeeds.
func TestFleetNodeThatHangs(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		oldBuild, newBuild := policyBuild(t, "before"), policyBuild(t, "after")
		primaries := primariesOf(ctx, t, b)
		plain := newLoader(t, newClient(t, b))
		deploy(ctx, t, plain, oldBuild)
		n := primaries[1]
		var once sync.Once
		l := newLoader(t, newClient(t, b), loader.Config{Timeout: 5 * time.Second, Trace: func(addr, command string) {
			if addr == n.Addr && command == "FUNCTION LOAD REPLACE ratelimit" {
				once.Do(func() {
					if err := n.Pause(ctx); err != nil {
						t.Error(err)
					}
				})
			}
		}})
		report, err := l.Deploy(ctx, newBuild, loader.Options{})
		if err == nil || !errors.Is(err, nodes.ErrUnreachable) || !strings.Contains(err.Error(), "cannot reach "+n.Addr+": no answer within 5s") {
			t.Errorf("the error is %v", err)
		}
		for _, r := range report.Nodes {
			if r.Addr == n.Addr && (r.State != loader.Unreachable || r.Err == nil) || r.Addr != n.Addr && (r.Err != nil || r.Running.Digest != oldBuild.Digest()) {
				t.Errorf("%+v", r)
			}
		}
		require(t, n.Resume(ctx))
		for other, digest := range deployed(ctx, t, primaries) {
			if other != n && digest != oldBuild.Digest() {
				t.Errorf("%s runs %.12s", other, digest)
			}
		}
		// The lease on the suspended primary could not be released, and lasts for up to 30 s.
		if report, err := plain.Deploy(ctx, newBuild, loader.Options{Wait: time.Minute}); err != nil || !report.InStep() {
			t.Errorf("%v: %+v", err, report)
		}
	}, ofCluster)
}

// TestFleetRepairKeepsTheWayBack deploys the same build again after a primary has lost the library
// in a FUNCTION FLUSH or a restart, or has joined without it. All nodes must keep the record of the
// previous build, so that a rollback still works.
func TestFleetRepairKeepsTheWayBack(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		oldBuild, newBuild := policyBuild(t, "before"), policyBuild(t, "after")
		primaries := primariesOf(ctx, t, b)
		l := newLoader(t, newClient(t, b))
		deploy(ctx, t, l, oldBuild)
		deploy(ctx, t, l, newBuild)
		for _, lost := range []struct {
			how string
			do  func() error
		}{
			{"FUNCTION FLUSH", func() error { return primaries[0].Client().FunctionFlush(ctx).Err() }},
			{"restart", func() error { return errors.Join(primaries[1].Kill(ctx), primaries[1].Restart(ctx)) }},
			{"join", func() error {
				joined, err := b.StartSpare(ctx)
				if err != nil {
					return err
				}
				return b.Nodes[0].Meet(ctx, joined)
			}},
		} {
			if err := lost.do(); err != nil {
				t.Fatalf("%s: %v", lost.how, err)
			}
			waitFor(ctx, t, lost.how+" to be seen", func() error {
				if report, err := l.Status(ctx, newBuild); err != nil || report.InStep() {
					return fmt.Errorf("%v: %+v", err, report)
				}
				return nil
			})
			report := deploy(ctx, t, l, newBuild)
			if report.Changed() != 1 {
				t.Errorf("%s: %+v", lost.how, report)
			}
			for _, n := range report.Nodes {
				if n.Previous.Digest != oldBuild.Digest() {
					t.Errorf("%s: %s would go back to %s", lost.how, n.Addr, n.Previous)
				}
			}
		}
		report, err := l.Rollback(ctx, loader.Options{})
		if err != nil || !report.InStep() || report.Changed() != 4 || report.Wanted.Digest != oldBuild.Digest() {
			t.Errorf("%v: %+v", err, report)
		}
	}, ofCluster)
}
