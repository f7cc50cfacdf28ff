// Command mutate measures how well the tests of the library know it: it changes the library's Lua in one place at a time
// and runs the vectors and the tests of lua_test, without the generated ones, in the offline engine. A mutant dies if a
// test fails, or if they take too long. Those that survive are printed; then how many died.
//
//	mutate [-match text] [-sample n] [-v]
//
// `make mutate` runs it over all of functions/src, from the root of the checkout. It exits with 1 if fewer than 95 % of the
// mutants die. What changes nothing that a caller could see is listed in equivalent.tsv, with the reason, and does not
// count.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

const (
	aim   = 95          // % of the mutants that must die
	limit = time.Minute // for a mutant
)

// The tests, in the order in which they are run: those that kill most come first.
var suites = [][]string{
	{"-test.run=^(TestVectors|TestPolicies)$"},
	{"-test.run=^(Test|Fuzz)", "-test.skip=^(TestAgreement|TestExactness|TestVectors|TestPolicies)$"},
}

func main() {
	match := flag.String("match", "", "only the mutants whose place and change contain this, such as gcra.lua:17 or \"-> not\"")
	sample := flag.Int("sample", 0, "how many mutants to try, drawn at random; 0: all")
	verbose := flag.Bool("v", false, "print those that die, too")
	flag.Parse()
	if err := run(*match, *sample, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(match string, sample int, verbose bool) error {
	mutants, err := all(match)
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
	if died, err := try(tests, mutant{}); err != nil || died {
		return fmt.Errorf("the tests fail without any change, %v; run go test ./lua_test", err)
	}
	fmt.Printf("trying %d mutants\n", len(mutants))
	died, err := tryAll(tests, mutants, verbose)
	if err != nil {
		return err
	}
	percent := 100 * float64(died) / float64(max(1, len(mutants)))
	fmt.Printf("%d of %d mutants died: %.1f %%\n", died, len(mutants), percent)
	if percent < aim {
		return fmt.Errorf("fewer than %d %% died: give the survivors a vector, or a reason in internal/mutate/equivalent.tsv", aim)
	}
	return nil
}

// all finds the mutants of the library's sources that match and are not known to be equivalent.
func all(match string) ([]mutant, error) {
	known, err := equivalents()
	if err != nil {
		return nil, err
	}
	var mutants []mutant
	used := map[[3]string]bool{}
	for _, pattern := range []string{"*.lua", "*/*.lua"} {
		files, err := filepath.Glob(filepath.Join("functions", "src", pattern))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("no functions/src/%s here; run it from the root of the checkout (%v)", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			name, err := filepath.Rel("functions", file)
			if err != nil {
				return nil, err
			}
			for _, m := range find(name, string(text)) {
				if known[m.id()] {
					used[m.id()] = true
				} else if strings.Contains(m.String(), match) {
					mutants = append(mutants, m)
				}
			}
		}
	}
	for id := range known {
		if !used[id] {
			return nil, fmt.Errorf("equivalent.tsv: there is no such mutant (any more): %s: %s -> %s", id[0], id[1], id[2])
		}
	}
	return mutants, nil
}

//go:embed equivalent.tsv
var equivalentList string

// equivalents reads equivalent.tsv: a mutant on each line, as file, old text, new text and the reason, with tabs between.
func equivalents() (map[[3]string]bool, error) {
	known := map[[3]string]bool{}
	for i, line := range strings.Split(strings.TrimSuffix(equivalentList, "\n"), "\n") {
		if line == "" {
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) != 4 || fields[3] == "" {
			return nil, fmt.Errorf("equivalent.tsv:%d: want file, old, new and reason, with tabs between: %q", i+1, line)
		}
		known[[3]string(fields[:3])] = true
	}
	return known, nil
}

// tryAll tries mutants on all processors, and returns how many died.
func tryAll(tests string, mutants []mutant, verbose bool) (died int, failure error) {
	var group sync.WaitGroup
	var mu sync.Mutex
	next := 0
	for range runtime.NumCPU() {
		group.Go(func() {
			for {
				mu.Lock()
				at := next
				next++
				stop := at >= len(mutants) || failure != nil
				mu.Unlock()
				if stop {
					return
				}
				dies, err := try(tests, mutants[at])
				mu.Lock()
				switch {
				case err != nil:
					failure = err
				case dies:
					died++
					if verbose {
						fmt.Println("died    ", mutants[at])
					}
				default:
					fmt.Println("SURVIVED", mutants[at])
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return died, failure
}

// try runs the tests on a mutant, and tells whether it dies.
func try(tests string, m mutant) (bool, error) {
	change, err := json.Marshal(m)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for _, suite := range suites {
		cmd := exec.CommandContext(ctx, tests, append(suite, "-test.failfast")...)
		cmd.Dir = "lua_test"
		cmd.Env = append(os.Environ(), "RATELIMIT_MUTANT="+string(change))
		var exit *exec.ExitError
		if err := cmd.Run(); errors.As(err, &exit) {
			return true, nil
		} else if err != nil {
			return false, err
		}
	}
	return false, nil
}
