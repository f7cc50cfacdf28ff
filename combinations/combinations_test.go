// Package combinations tests the client, the library and httplimit together. It draws scenarios in
// which two features meet, for every pair of features that is legal, and some in which more meet. The
// table is in table_test.go.
//
// A scenario runs on a virtual clock, on a server in this process (package embedded). Commands reach
// the server through a hook of go-redis, which loses requests and replies as the scenario says. Each
// command is compared with the model of the contract (lua_test/model). Each exported call of the client
// is compared with what the server did for it.
//
//	table_test.go      the features, and which of them cannot meet
//	limits_test.go     the limits and the policies
//	draw_test.go       draws scenarios; steps_test.go: their steps
//	run_test.go        runs a scenario
//	world_test.go      the server, the model and the clock
//	wire_test.go       the connection, and its faults
//	server_test.go     what must hold for each command; exact_test.go: its numbers
//	foreign_test.go    values that the library did not write
//	act_test.go        the exported calls
//	layer_test.go      layers of a user around the client
//	ledger_test.go     what must hold for each exported call: units, sources, observations
//	wait_test.go, handle_test.go, lease_test.go, close_test.go   the same for calls with a longer life
//	spans_test.go      how many units are admitted in a time span
//	covered_test.go    counts the pairs that took effect
package combinations

import (
	"flag"
	"os"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ratelimit-functions/ratelimit/lua_test/model/generate"
)

// only is a set of features, such as "take,batches", to run 300 scenarios with it.
var only = flag.String("set", "", "run only scenarios with these features, separated by commas")

// eachSet is how often make test runs each of sets. It runs each pair once.
const eachSet = 40

// TestCombinations runs a scenario for each legal pair of features, and several for each of sets. The
// scenarios are always the same. If RATELIMIT_SOAK is set, it is the number of steps; the scenarios
// are then drawn anew. Every pair must take effect at least once.
func TestCombinations(t *testing.T) {
	wanted := generate.Wanted(t, 100000)
	soak := os.Getenv("RATELIMIT_SOAK") != ""
	if err := flag.Set("rapid.nofailfile", "true"); err != nil {
		t.Fatal(err)
	}
	if !soak { // on one processor, goroutines run in nearly the same order each time
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	w, err := newWorld()
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	var c covered
	legal, illegal := pairs()
	all := drawn(legal)
	next, tries, broken := 0, 0, false
	rapid.Check(t, func(rt *rapid.T) {
		if next >= len(all) && (!soak || c.steps >= wanted) && !broken {
			return
		}
		set := all[next%len(all)]
		p := plans(set).Draw(rt, "plan")
		hit := len(set) > 2
		c.begin()
		v := run(t, w, p, func(fired map[string]bool) { hit = c.add(fired, set) || hit })
		if v != nil {
			broken = true // from now on, rapid shrinks the plan
			rt.Fatalf("%s: %s\n%s\n%+v", v.rule, v.text, w.log.String(), p)
		}
		if broken { // the set stays the same
			return
		}
		if tries++; hit || tries == 10 { // a pair may fail to meet, for example if a key is blocked
			next, tries = next+1, 0
		}
	})
	t.Log(c.report(legal, illegal))
	for _, p := range legal {
		if c.counts[p] == 0 && *only == "" && !t.Failed() {
			t.Errorf("the features %q never met", p)
		}
	}
}

// drawn returns the sets of features to draw: the pairs, and the larger sets.
func drawn(legal []pair) (all [][]feature) {
	if *only != "" {
		for range 300 {
			all = append(all, features(strings.Split(*only, ",")))
		}
		return all
	}
	for _, p := range legal {
		all = append(all, features(p[:]))
	}
	for range eachSet {
		for _, set := range sets {
			all = append(all, features(set))
		}
	}
	return all
}

func features(names []string) (all []feature) {
	for _, name := range names {
		all = append(all, find(name))
	}
	return all
}
