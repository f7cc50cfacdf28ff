package integration_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/text"
	"github.com/ratelimit-functions/ratelimit/policies"
)

// newBuild returns a build with the given policies.
func newBuild(t *testing.T, policies ...functions.Policy) functions.Build {
	t.Helper()
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(policies...)))
	return build
}

// policyBuild returns a build with one policy. Different names give different builds.
func policyBuild(t *testing.T, name string) functions.Build {
	t.Helper()
	return newBuild(t, functions.Policy{Name: "of-a-test", Limits: []functions.PolicyLimit{{Key: name, Limit: "100/m"}}})
}

// primariesOf returns the nodes that take writes.
func primariesOf(ctx context.Context, t *testing.T, b *backend.Backend) []*backend.Node {
	t.Helper()
	primaries := must[[]*backend.Node](t)(b.Primaries(ctx))
	return primaries
}

func clusterClient(t *testing.T, b *backend.Backend) *redis.ClusterClient {
	t.Helper()
	cluster, ok := newClient(t, b).(*redis.ClusterClient)
	if !ok {
		t.Fatalf("the client of %s is not a cluster client", b.Name)
	}
	return cluster
}

// setNodeTimeout sets the time after which a cluster replaces a primary that does not reply.
func setNodeTimeout(ctx context.Context, t *testing.T, b *backend.Backend, timeout time.Duration) {
	t.Helper()
	for _, n := range b.Nodes {
		require(t, n.Client().ConfigSet(ctx, "cluster-node-timeout", fmt.Sprint(timeout.Milliseconds())).Err())
	}
}

// deploy deploys a build, and checks that every primary runs it.
func deploy(ctx context.Context, t *testing.T, l *loader.Loader, build functions.Build) loader.Report {
	t.Helper()
	report, err := l.Deploy(ctx, build, loader.Options{})
	if err != nil || !report.InStep() {
		t.Fatalf("%v: %+v", err, report)
	}
	return report
}

// deployPolicies deploys the policies in a file.
func deployPolicies(ctx context.Context, t *testing.T, b *backend.Backend, file string) {
	t.Helper()
	read := must[*policies.File](t)(policies.Read(file))
	deploy(ctx, t, newLoader(t, newClient(t, b)), must[functions.Build](t)(read.Build()))
}

// newLoader returns a Loader with a timeout that is long enough even for a busy machine.
func newLoader(t *testing.T, rdb redis.UniversalClient, config ...loader.Config) *loader.Loader {
	t.Helper()
	c := append(config, loader.Config{})[0]
	c.Timeout = cmp.Or(c.Timeout, time.Minute)
	return must[*loader.Loader](t)(loader.New(rdb, c))
}

// deployed returns the digest of the library on each primary that replies. The digest is "" if the
// primary has no library.
func deployed(ctx context.Context, t *testing.T, primaries []*backend.Node) map[*backend.Node]string {
	t.Helper()
	found := map[*backend.Node]string{}
	for _, n := range primaries {
		// Without retries, the client detects a killed node at once.
		c := redis.NewClient(&redis.Options{Addr: n.Addr, MaxRetries: -1, DialerRetries: 1})
		list, err := c.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: "ratelimit", WithCode: true}).Result()
		_ = c.Close()
		if err != nil {
			continue
		}
		found[n] = ""
		for _, library := range list {
			found[n] = functions.Digest(text.Body(library.Code))
		}
	}
	return found
}

// stepsOfDeploy deploys a build, and returns the commands sent to each node, in order.
func stepsOfDeploy(ctx context.Context, t *testing.T, rdb redis.UniversalClient, build functions.Build) map[string][]string {
	t.Helper()
	var mu sync.Mutex
	steps := map[string][]string{}
	l := newLoader(t, rdb, loader.Config{Trace: func(addr, command string) {
		mu.Lock()
		defer mu.Unlock()
		command, _, isLease := strings.Cut(command, "ratelimit_lease_")
		if isLease {
			command += "ratelimit_lease" // leave out the random suffix of the library's name
		}
		steps[addr] = append(steps[addr], command)
	}})
	deploy(ctx, t, l, build)
	return steps
}

// atStep returns a Config that calls f before the n-th command to the node at addr, counted
// from 0.
func atStep(addr string, n int, f func()) loader.Config {
	var mu sync.Mutex
	count := 0
	return loader.Config{Trace: func(node, _ string) {
		mu.Lock()
		defer mu.Unlock()
		if node == addr {
			if count == n {
				f()
			}
			count++
		}
	}}
}

// allOrNone checks the nodes after a deployment during which a node failed. All nodes that reply
// must run the new build if the deployment succeeded, and the old build otherwise. before and after
// are the digests of the old and the new build.
func allOrNone(ctx context.Context, t *testing.T, primaries []*backend.Node, report loader.Report, err error, before, after string) {
	t.Helper()
	want := after
	if err != nil {
		want = before
		var partial *loader.PartialError
		var node *nodes.Error
		if !errors.As(err, &partial) || !errors.As(err, &node) || len(partial.Nodes) != len(report.Nodes) {
			t.Errorf("the error %T %v is no PartialError", err, err)
		}
	}
	for n, digest := range deployed(ctx, t, primaries) {
		if digest != want {
			t.Errorf("%s runs %.12s, want %.12s; the error is %v", n, digest, want, err)
		}
	}
}

// waitForReplicas waits until each primary has its replica, because the steps of a deployment
// depend on it.
func waitForReplicas(ctx context.Context, t *testing.T, primaries []*backend.Node) {
	t.Helper()
	for _, n := range primaries {
		waitFor(ctx, t, n.String()+" to have its replica", func() error {
			role, err := n.Client().Do(ctx, "ROLE").Slice()
			if err != nil {
				return err
			}
			if list, _ := role[2].([]any); role[0] != "master" || len(list) != 1 {
				return fmt.Errorf("it says %v", role)
			}
			return nil
		})
	}
}

// setUser creates a user on every node, and deletes it after the test.
func setUser(t *testing.T, b *backend.Backend, user string, rules []string) {
	t.Helper()
	ctx := testContext(t)
	for _, n := range b.Nodes {
		aclSet(ctx, t, n, user, append(slices.Clone(rules), "on", ">"+userPassword)...)
	}
	t.Cleanup(func() {
		for _, n := range b.Nodes {
			if err := n.Client().Do(context.Background(), "ACL", "DELUSER", user).Err(); err != nil {
				t.Errorf("%s: %v", n, err)
			}
		}
	})
}

func asUser(name string) func(*redis.UniversalOptions) {
	return func(o *redis.UniversalOptions) { o.Username, o.Password = name, userPassword }
}

func aclSet(ctx context.Context, t *testing.T, n *backend.Node, user string, rules ...string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", user}
	for _, rule := range rules {
		args = append(args, rule)
	}
	if err := n.Client().Do(ctx, args...).Err(); err != nil {
		t.Errorf("%s: %v", n, err)
	}
}

func removeLeases(ctx context.Context, t *testing.T, n *backend.Node) {
	t.Helper()
	list, err := n.Client().FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: "ratelimit_lease_*"}).Result()
	if err != nil {
		t.Error(err)
	}
	for _, library := range list {
		if err := n.Client().FunctionDelete(ctx, library.Name).Err(); err != nil {
			t.Error(err)
		}
	}
}
