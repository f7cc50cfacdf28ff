// Command mutate measures how well the tests cover the library. It changes the library's Lua in one
// place at a time, and runs the tests of lua_test, without the generated calls, in the offline engine.
// A mutant is killed if a test fails, or if a suite of tests takes ten times as long as without the
// change, and half a minute.
// The command prints the mutants that survive, and how many were killed.
//
//	mutate [-match regexp] [-sample n] [-quick] [-v]
//
// `make mutate` runs it over all of functions/src, from the root of the checkout. It exits with 1
// if fewer than 95 % of the mutants are killed. With -quick, it runs only the fast tests, mostly
// vectors. That takes a tenth of the time for each mutant that survives, but some of these would be killed by the other tests.
//
// A survivor is one of three things: a rule without a test, which gets a vector; code without
// effect, which can be deleted; or a change that no caller can see, such as a cache that is emptied
// one entry later. Changes of the last kind are listed in equivalent.tsv, and do not count. A line
// of that file has four fields, separated by tabs: the file and the last function that begins above
// the change; the first changed line, without its comment; what replaces it (nothing, if a statement
// is dropped); and the reason. Each survivor is printed as such a line, without the reason.
// A line in equivalent.tsv is valid as long as the function contains the changed line.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

const aim = 95 // minimum percentage of mutants to kill

// suites lists the tests in the order in which they run. Tests that kill most mutants come first,
// and the slowest come last. Fuzz tests use only their seeds, which are always the same.
var suites = []suite{
	{flags: []string{"-test.run=^(" + quick + ")$"}},
	{flags: []string{"-test.run=^Test", "-test.skip=^(TestAgreement|TestExactness|" + quick + "|" + slow + ")$"}},
	{flags: []string{"-test.run=^(" + slow + ")$"}},
	{flags: []string{"-test.run=^Fuzz"}},
}

const quick = "Test(|Class|Borrow|Shadow)Vectors|TestInfo.*|TestPolicyCalls|TestExamplesOfCalls"

const slow = "TestExactSums|TestWorkOfTheWorstCalls|TestWindowsOfTheCalendar"

// own has the vectors of files, as a regular expression. They come first, because they kill most of the files' mutants.
// Those of an algorithm have its name.
var own = map[string]string{
	"src/20_numbers.lua":     "bad_input|bounds",
	"src/30_states.lua":      "several_rates|override|block|bad_input",
	"src/35_packed.lua":      "several_rates|changes",
	"src/36_gcra_debt.lua":   "gcra",
	"src/37_gcra_expiry.lua": "gcra|override",
	"src/38_gcra_value.lua":  "gcra|several_keys",
	"src/42_calendar.lua":    "fixed_window",
	"src/45_limits.lua":      "bad_input",
	"src/46_never.lua":       "never",
	"src/50_requests.lua":    "bad_input|several_keys|each",
	"src/60_decisions.lua":   "several_keys|each|upto|force|block",
	"src/61_one_key.lua":     "gcra|upto|force|floor|block|override",
	"src/62_borrowing.lua":   "borrow",
	"src/65_tracking.lua":    "once_and_track",
	"src/70_once.lua":        "once_and_track",
	"src/72_overrides.lua":   "override",
	"src/75_leases.lua":      "concurrency",
	"src/80_contents.lua":    "block|override",
	"src/verbs/block.lua":    "block",
	"src/verbs/override.lua": "override",
	"src/verbs/peek.lua":     "several_keys|block",
	"src/verbs/take.lua":     "bad_input|several_keys|each|once_and_track",
	"src/verbs/usage.lua":    "once_and_track",
}

type suite struct {
	flags []string
	limit time.Duration // on one mutant; 0: ten minutes
}

func main() {
	match := flag.String("match", "", "only the mutants whose place and change match this regular expression, such as gcra.lua:17 or \"-> not\"")
	sample := flag.Int("sample", 0, "how many mutants to try, drawn at random; 0: all")
	onlyQuick := flag.Bool("quick", false, "only the fast tests, mostly vectors; the other tests kill some of the survivors")
	verbose := flag.Bool("v", false, "print those that die, too")
	flag.Parse()
	if *onlyQuick {
		suites = suites[:1]
	}
	if err := mutate(*match, *sample, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func mutate(match string, sample int, verbose bool) error {
	mutants, equivalent, err := all(match)
	if err != nil {
		return err
	}
	if sample > 0 && sample < len(mutants) {
		rand.New(rand.NewPCG(1, 1)).Shuffle(len(mutants), func(i, j int) { mutants[i], mutants[j] = mutants[j], mutants[i] })
		mutants = mutants[:sample]
	}
	folder, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	tests := filepath.Join(folder, "tests")
	if out, err := exec.Command("go", "test", "-c", "-o", tests, "./lua_test").CombinedOutput(); err != nil {
		return fmt.Errorf("lua_test does not build: %s", out)
	}
	for i := range suites {
		began := time.Now()
		if died, err := run(tests, suites[i], mutant{}); err != nil || died {
			return fmt.Errorf("the tests fail without any change, %v; run go test ./lua_test", err)
		}
		suites[i].limit = max(10*time.Since(began), 30*time.Second)
	}
	fmt.Printf("trying %d mutants\n", len(mutants))
	died, err := tryAll(tests, mutants, verbose)
	if err != nil {
		return err
	}
	percent := 100 * float64(died) / float64(max(1, len(mutants)))
	fmt.Printf("%d of %d mutants died: %.1f %%; %d more are equivalent\n", died, len(mutants), percent, equivalent)
	if percent < aim {
		return fmt.Errorf("fewer than %d %% died: give the survivors a vector, or a reason in tools/mutate/equivalent.tsv", aim)
	}
	return nil
}

// all returns the mutants of the library's sources that match the regular expression, without the
// equivalent ones. It also returns the number of matching equivalent ones.
func all(match string) (mutants []mutant, equivalent int, err error) {
	wanted, err := regexp.Compile(match)
	if err != nil {
		return nil, 0, fmt.Errorf("-match: %w", err)
	}
	known, err := equivalents(equivalentList)
	if err != nil {
		return nil, 0, err
	}
	found := map[id]bool{}
	sources := os.DirFS("functions")
	var files []string
	for _, pattern := range []string{"src/*.lua", "src/*/*.lua"} {
		matches, err := fs.Glob(sources, pattern)
		if err != nil || len(matches) == 0 {
			return nil, 0, fmt.Errorf("no functions/%s here; run it from the root of the checkout (%v)", pattern, err)
		}
		files = append(files, matches...)
	}
	for _, file := range files {
		text, err := fs.ReadFile(sources, file)
		if err != nil {
			return nil, 0, err
		}
		for _, m := range find(file, string(text)) {
			found[m.id()] = true
			switch {
			case !wanted.MatchString(m.String()):
			case known[m.id()]:
				equivalent++
			default:
				mutants = append(mutants, m)
			}
		}
	}
	for id := range known {
		if !found[id] {
			fmt.Fprintf(os.Stderr, "equivalent.tsv: there is no such mutant any more; take it out: %s\n", id)
		}
	}
	return mutants, equivalent, nil
}

//go:embed equivalent.tsv
var equivalentList string

func equivalents(list string) (map[id]bool, error) {
	known := map[id]bool{}
	for i, line := range strings.Split(strings.TrimSuffix(list, "\n"), "\n") {
		if line == "" {
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) != 4 || fields[3] == "" {
			return nil, fmt.Errorf("equivalent.tsv:%d: want place, old, new and reason, with tabs between: %q", i+1, line)
		}
		known[id{fields[0], fields[1], fields[2]}] = true
	}
	return known, nil
}

// tryAll tries mutants, GOMAXPROCS at a time, and returns how many were killed. It prints the
// mutants that survive and, if verbose is true, also the killed ones.
func tryAll(tests string, mutants []mutant, verbose bool) (died int, failure error) {
	var group sync.WaitGroup
	var mu sync.Mutex
	places := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, m := range mutants {
		places <- struct{}{}
		group.Go(func() {
			dies, err := try(tests, m)
			<-places
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				failure = err
			case !dies:
				fmt.Printf("SURVIVED %s\n%s\n", m, m.id())
			default:
				died++
				if verbose {
					fmt.Println("died    ", m)
				}
			}
		})
	}
	group.Wait()
	return died, failure
}

// try reports whether a suite kills the mutant. The vectors of the file that the mutant changes come first,
// for one of the two kinds of servers.
func try(tests string, m mutant) (bool, error) {
	all, vectors := suites, own[m.File]
	if name, ok := strings.CutPrefix(m.File, "src/algorithms/"); ok {
		vectors = strings.TrimSuffix(name, ".lua")
	}
	if vectors != "" {
		first := suite{flags: []string{"-test.run=^TestVectors$/^on/^(" + vectors + ")$"}, limit: suites[0].limit}
		all = slices.Concat([]suite{first}, suites)
	}
	for _, s := range all {
		if died, err := run(tests, s, m); died || err != nil {
			return died, err
		}
	}
	return false, nil
}

// run reports whether the suite kills the mutant.
func run(tests string, s suite, m mutant) (bool, error) {
	change, err := json.Marshal(m)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(s.limit, 10*time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, tests, append(slices.Clip(s.flags), "-test.failfast")...)
	cmd.Dir = "lua_test"
	cmd.Env = append(os.Environ(), "RATELIMIT_MUTANT="+string(change))
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		return true, nil
	} else if err != nil {
		return false, err
	}
	return false, nil
}
