package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/protocol"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// deployerEnv is the environment variable that makes this program a deployer. Its value lists the
// addresses, the namespace, the round, the timeout, and the number of the step before which the
// deployer kills itself (0 for none). Each load of a library with REPLACE and each deletion of a
// lease is a step.
const deployerEnv = "RATELIMIT_TEST_DEPLOYER"

// runDeployer deploys the policies of a namespace if this process is a deployer, and returns the
// exit code and true. Otherwise, it returns false.
func runDeployer() (code int, is bool) {
	words := strings.Fields(os.Getenv(deployerEnv))
	if len(words) != 5 {
		return 0, false
	}
	round, _ := strconv.Atoi(words[2])
	timeout, _ := time.ParseDuration(words[3])
	dies, _ := strconv.Atoi(words[4])
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(words[0], ",")})
	var mu sync.Mutex
	loads := 0
	steps := traceTo(os.Getenv(traceEnv))
	l, err := loader.New(rdb, loader.Config{Namespace: words[1], Timeout: timeout, Steps: steps, Trace: func(_, command string) {
		load := strings.HasPrefix(command, "FUNCTION LOAD REPLACE ratelimit") || strings.HasPrefix(command, "FUNCTION DELETE ratelimit_lease")
		if !load {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if loads++; loads == dies {
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = self.Kill()
			}
			fmt.Fprintln(os.Stderr, "killed:", err)
			select {} // until the signal arrives
		}
	}})
	if err == nil {
		var build functions.Build
		build, err = functions.New(functions.WithPolicies(ofRound(words[1], round)...))
		if err == nil {
			_, err = l.Deploy(context.Background(), build, loader.Options{})
		}
	}
	if err = errors.Join(err, rdb.Close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// traceEnv names the file to which a deployer appends its protocol steps.
const traceEnv = "RATELIMIT_TEST_TRACE"

// traceTo returns a function that appends steps to a file, one JSON object per line. Each step is in
// the file before the deployer continues, so that a killed deployer leaves its trace.
func traceTo(file string) func(protocol.Step) {
	var mu sync.Mutex
	return func(s protocol.Step) {
		mu.Lock()
		defer mu.Unlock()
		line, err := json.Marshal(s)
		if err == nil {
			var f *os.File
			if f, err = os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
				_, err = f.Write(append(line, '\n'))
				err = errors.Join(err, f.Close())
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// checkTraces checks that the steps in a file follow the rules of the protocol, and returns their
// number.
func checkTraces(t *testing.T, file string) int {
	t.Helper()
	data, err := os.ReadFile(file)
	require(t, err)
	var steps []protocol.Step
	for line := range strings.Lines(string(data)) {
		var s protocol.Step
		require(t, json.Unmarshal([]byte(line), &s))
		steps = append(steps, s)
	}
	require(t, protocol.Check(steps))
	return len(steps)
}

// ofRound returns the two policies that a namespace has after a round. Both have the same limit.
func ofRound(namespace string, round int) []functions.Policy {
	var list []functions.Policy
	for _, name := range []string{"a", "b"} {
		limits := []functions.PolicyLimit{{Limit: fmt.Sprintf("%d/m", round+1)}}
		list = append(list, functions.Policy{Name: namespace + "/" + name, Limits: limits})
	}
	return list
}

// TestFleetNamespacesThatRaceAndDie repeatedly deploys three namespaces from three processes at
// once. In each round, one or two deployers are killed during their deployment, before different
// steps (see deployerEnv). After each round, every primary must have all policies of each
// namespace, with the limits of this round or of the previous one. If a deployer succeeds, all
// primaries must have its policies. A killed deployer must succeed when it runs again. With
// RATELIMIT_SOAK, there are 20 rounds, and the leases of killed deployers expire; otherwise, the
// test removes these leases.
func TestFleetNamespacesThatRaceAndDie(t *testing.T) {
	soak := os.Getenv("RATELIMIT_SOAK") != ""
	rounds, timeout := 4, "1m"
	if soak {
		rounds, timeout = 20, "5s"
	}
	namespaces := []string{"payments", "search", "mail"}
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		if soak {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
		}
		primaries := primariesOf(ctx, t, b)
		owner := newBuild(t, functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "100/m"}}})
		deploy(ctx, t, newLoader(t, newClient(t, b)), owner)
		trace := filepath.Join(t.TempDir(), "trace")
		died, completed := 0, 0
		for round := range rounds {
			dies := [3]int{}
			dies[round%3] = round%7 + 1
			if round%2 == 1 {
				dies[(round+1)%3] = round*3%7 + 1
			}
			var group sync.WaitGroup
			var errs [3]error
			for i, namespace := range namespaces {
				group.Go(func() { errs[i] = deployIn(ctx, t, b, primaries, namespace, round, timeout, dies[i], soak, trace) })
			}
			group.Wait()
			least := [3]int{}
			for i := range namespaces {
				switch least[i] = round; {
				case errs[i] == nil:
				case dies[i] == 0:
					t.Errorf("round %d: %s was not killed and failed: %v", round, namespaces[i], errs[i])
				default:
					died++
					least[i] = round - 1
				}
			}
			done, _ := checkNamespaces(ctx, t, primaries, namespaces, least, round)
			for i, namespace := range namespaces {
				if errs[i] == nil {
					continue
				}
				if done[i] {
					completed++ // a later deployment completed the one that was killed
				}
				if err := deployIn(ctx, t, b, primaries, namespace, round, timeout, 0, soak, trace); err != nil {
					t.Errorf("round %d, %s again: %v", round, namespace, err)
				}
			}
			if _, digests := checkNamespaces(ctx, t, primaries, namespaces, [3]int{round, round, round}, round); len(digests) != 1 {
				t.Errorf("round %d: the primaries run %v", round, digests)
			}
			if t.Failed() {
				return
			}
		}
		t.Logf("%d rounds of 3 deployers; %d were killed; others completed %d of these deployments; %d steps follow the rules", rounds, died, completed, checkTraces(t, trace))
	}, ofCluster)
}

// deployIn runs a deployer; deployerEnv describes its arguments. Unless soak is true, deployIn
// removes the lease of a deployer that killed itself.
func deployIn(ctx context.Context, t *testing.T, b *backend.Backend, primaries []*backend.Node, namespace string, round int, timeout string, dies int, soak bool, trace string) error {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", traceEnv+"="+trace, fmt.Sprintf("%s=%s %s %d %s %d", deployerEnv, strings.Join(b.Addrs(), ","), namespace, round, timeout, dies))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if dies > 0 && !soak {
		for _, n := range primaries {
			list, err := n.Client().FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: "ratelimit_lease_*", WithCode: true}).Result()
			if err != nil {
				t.Error(err)
			}
			for _, library := range list {
				if strings.Contains(library.Code, fmt.Sprintf("process %d\\041", cmd.Process.Pid)) {
					if err := n.Client().FunctionDelete(ctx, library.Name).Err(); err != nil {
						t.Error(err)
					}
				}
			}
		}
	}
	return fmt.Errorf("%w: %s", err, out)
}

// checkNamespaces checks that every primary has all policies of each namespace, and that the
// policies of a namespace come from one round. For namespace i, the rounds from least[i] to last
// are allowed; if least[i] is negative, the namespace may also be missing. checkNamespaces returns
// which namespaces have the policies of the last round on all primaries, and the digests of the
// libraries.
func checkNamespaces(ctx context.Context, t *testing.T, primaries []*backend.Node, namespaces []string, least [3]int, last int) (done [3]bool, digests map[string]bool) {
	t.Helper()
	digests, done = map[string]bool{}, [3]bool{true, true, true}
	var common text.Text
	for _, n := range primaries {
		list, err := n.Client().FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: "ratelimit", WithCode: true}).Result()
		if err != nil || len(list) != 1 {
			t.Fatalf("%s: %v, %d libraries", n, err, len(list))
		}
		held, err := text.Parse(list[0].Code)
		require(t, err)
		for namespace, part := range held.Parts {
			i := slices.Index(namespaces, namespace) // the parts may differ only if the deployer of this round died
			if (i < 0 || least[i] == last) && part.ID() != common.Parts[namespace].ID() && len(common.Parts) > 0 {
				t.Errorf("%s has another part of %q", n, namespace)
			}
		}
		common = held
		digests[functions.Digest(text.Body(list[0].Code))] = true
		policies := must[[]functions.Policy](t)(functions.ReadPolicies(list[0].Code))
		limits := map[string]string{}
		for _, p := range policies {
			limits[p.Name] = p.Limits[0].Limit
		}
		if limits["api"] != "100/m" {
			t.Errorf("%s: the owner's policy is %q", n, limits["api"])
		}
		known := 1
		for i, namespace := range namespaces {
			if least[i] < 0 && limits[namespace+"/a"] == "" && limits[namespace+"/b"] == "" {
				done[i] = false
				continue
			}
			known += 2
			round, err := strconv.Atoi(strings.TrimSuffix(limits[namespace+"/a"], "/m"))
			round--
			if err != nil || limits[namespace+"/a"] != limits[namespace+"/b"] || round < least[i] || round > last {
				t.Errorf("%s in round %d: %s has %q and %q, at least of round %d", n, last, namespace, limits[namespace+"/a"], limits[namespace+"/b"], least[i])
			}
			done[i] = done[i] && round == last
		}
		if len(limits) != known {
			t.Errorf("%s: %v", n, limits)
		}
	}
	return done, digests
}
