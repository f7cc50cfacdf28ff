package loader_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/doctor"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
)

// startClusterWithReplica starts a healthy cluster that has the library. The last node is a replica.
func startClusterWithReplica(t *testing.T) (addrs []string, stop []func()) {
	t.Helper()
	ctx := t.Context()
	addrs, stop = startCluster(t, 2, redis.Options{}, "--appendonly", "yes")
	id := must[string](t)(at(t, addrs[0]).ClusterMyID(ctx).Result())
	require(t, at(t, addrs[2]).ClusterReplicate(ctx, id).Err())
	l := newLoader(t, at(t, addrs[0]))
	eventually(t, "the replica follows and all nodes have the library", func() bool {
		_, err := l.Deploy(ctx, build(t), loader.Options{})
		for _, addr := range addrs[:2] {
			if !strings.Contains(at(t, addr).Do(ctx, "CLUSTER", "SLOTS").String(), strings.TrimPrefix(addrs[2], "127.0.0.1:")) {
				return false
			}
		}
		return err == nil && findings(must[doctor.Diagnosis](t)(doctor.Examine(ctx, at(t, addrs[0]), time.Minute, nil))) == ""
	})
	return addrs, stop
}

func TestDoctorOfAClusterWithAReplica(t *testing.T) {
	addrs, stop := startClusterWithReplica(t)
	t.Run("each command refused", func(t *testing.T) { doctorRefusedEachCommand(t, addrs) })
	t.Run("the rights of a service", func(t *testing.T) { doctorWithTheRightsOfAService(t, addrs) })
	t.Run("a stopped replica", func(t *testing.T) { doctorOfAStoppedReplica(t, addrs, stop[2]) })
}

// In a cluster, Doctor reports that a stopped replica is unreachable. Without a cluster, it reports
// that the primary has no replica.
func doctorOfAStoppedReplica(t *testing.T, addrs []string, stop func()) {
	ctx := t.Context()
	stop()
	for _, from := range addrs[:2] {
		eventually(t, "doctor finds the stopped replica", func() bool {
			d := must[doctor.Diagnosis](t)(doctor.Examine(ctx, at(t, from), time.Minute, nil))
			return findings(d) == found("replicas", addrs[2], nodes.ErrUnreachable)
		})
	}

	primary, _ := startRedis(t, "--appendonly", "yes")
	host, port := hostPort(primary)
	replica, stopReplica := startRedis(t, "--replicaof", host+" "+port, "--appendonly", "yes")
	l := newLoader(t, at(t, primary))
	must[loader.Report](t)(l.Deploy(ctx, build(t), loader.Options{}))
	eventually(t, "the replica is in step", func() bool {
		d := must[doctor.Diagnosis](t)(doctor.Examine(ctx, at(t, primary), time.Minute, nil))
		return findings(d) == "" && slices.Contains(d.Nodes, replica)
	})
	stopReplica()
	eventually(t, "doctor finds that the replica is gone", func() bool {
		d := must[doctor.Diagnosis](t)(doctor.Examine(ctx, at(t, primary), time.Minute, nil))
		return findings(d) == found("replicas", primary, nil) && strings.Contains(d.Findings[0].Found, "no replica follows it")
	})
}

// doctorRefusedEachCommand denies the user one command after another. Doctor must then list the
// checks that it could not make, and find no other problem.
func doctorRefusedEachCommand(t *testing.T, cluster []string) {
	alone, _ := startRedis(t, "--appendonly", "yes")
	must[loader.Report](t)(newLoader(t, at(t, alone)).Deploy(t.Context(), build(t), loader.Options{}))
	for name, addrs := range map[string][]string{"a server": {alone}, "a cluster": cluster} {
		var mu sync.Mutex
		rights := map[string]bool{}
		traced := func(_, command string) {
			words := strings.Fields(strings.ToLower(command))
			right := words[0]
			if slices.Contains([]string{"function", "cluster", "config"}, right) {
				right += "|" + words[1]
			}
			mu.Lock()
			defer mu.Unlock()
			rights[right] = true
		}
		if got := findings(must[doctor.Diagnosis](t)(doctor.Examine(t.Context(), at(t, addrs[0]), time.Minute, traced))); got != "" {
			t.Fatalf("%s is not healthy: %s", name, got)
		}
		if len(rights) < 9 {
			t.Errorf("%s: only the commands %v", name, rights)
		}
		needed := []string{"function|load", "function|list", "function|delete", "function|stats", "time"} // permissions needed to deploy
		for right := range rights {
			onEach(t, addrs, "ACL", "SETUSER", "one", "reset", "on", ">x", "~*", "+@all", "-"+right)
			d := must[doctor.Diagnosis](t)(doctor.Examine(t.Context(), connect(t, redis.Options{Addr: addrs[0], Username: "one", Password: "x"}), time.Minute, nil))
			for _, f := range d.Findings {
				if f.Check != "rights" || !slices.Contains(needed, right) {
					t.Errorf("%s without %s: %+v", name, right, f)
				}
			}
			if len(d.Nodes) != len(addrs) {
				t.Errorf("%s without %s: only %v of %v were examined: %+v", name, right, d.Nodes, addrs, d)
			}
			if len(d.Findings)+len(d.Unchecked) == 0 && right != "hello" { // every user may send HELLO
				t.Errorf("%s without %s: nothing is said", name, right)
			}
		}
	}
}

// In a managed cluster, the user lacks the permissions to list the nodes and to run administrative
// commands. Doctor runs the checks that the user's permissions allow.
func doctorWithTheRightsOfAService(t *testing.T, cluster []string) {
	for _, addr := range cluster {
		mustRun(t, at(t, addr), "ACL", "SETUSER", "service", "reset", "on", ">x", "~*", "+@all", "-config", "-acl", "-cluster", "+cluster|slots", "-wait", "-role")
		mustRun(t, at(t, addr), "ACL", "SETUSER", "blind", "reset", "on", ">x", "~*", "+@all", "-cluster")
	}
	as := func(user string) doctor.Diagnosis {
		return must[doctor.Diagnosis](t)(doctor.Examine(t.Context(), connect(t, redis.Options{Addr: cluster[0], Username: user, Password: "x"}), time.Minute, nil))
	}
	d := as("service")
	if got, want := findings(d), "unchecked: +cluster|shards\nunchecked: +cluster|info\nunchecked: +wait\nunchecked: +role\n"; got != want || len(d.Nodes) != 3 {
		t.Errorf("nodes %v:\n%s\nwant\n%s", d.Nodes, got, want)
	}
	d = as("blind")
	if got := findings(d); got != found("rights", cluster[0], nodes.ErrNoPermission)+"unchecked: +cluster|shards\nunchecked: +cluster|info\n" || len(d.Nodes) < 1 {
		t.Errorf("nodes %v:\n%s", d.Nodes, got)
	}
}

// Doctor does not need WAIT or HELLO. It never reports a server without one of the other commands
// as healthy.
func TestDoctorOfServersWithoutACommand(t *testing.T) {
	for _, command := range []string{"TIME", "ROLE", "INFO", "CONFIG", "FCALL_RO", "FUNCTION", "WAIT", "HELLO"} {
		saves := "yes"
		if command == "CONFIG" {
			saves = "no" // otherwise Doctor does not call CONFIG GET
		}
		addr, _ := startRedis(t, "--appendonly", saves, "--rename-command", command, "")
		rdb := at(t, addr)
		if command != "FUNCTION" && command != "TIME" {
			if _, err := newLoader(t, rdb).Deploy(t.Context(), build(t), loader.Options{}); err != nil {
				t.Fatalf("without %s: %v", command, err)
			}
		}
		d := must[doctor.Diagnosis](t)(doctor.Examine(t.Context(), rdb, time.Minute, nil))
		said := len(d.Findings) + len(d.Unchecked)
		if len(d.Nodes) != 1 || said == 0 && command != "WAIT" && command != "HELLO" {
			t.Errorf("without %s: %+v", command, d)
		}
		if command == "FUNCTION" && findings(d) != found("functions", addr, nodes.ErrNoFunctions) {
			t.Errorf("without functions: %+v", d)
		}
	}
}
