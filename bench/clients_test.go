package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// TestClientsMeasuresAndWrites runs every contender in every scene, and checks the written page and
// plots.
func TestClientsMeasuresAndWrites(t *testing.T) {
	folder := t.TempDir()
	readme := filepath.Join(folder, "README.md")
	require(t, os.WriteFile(readme, []byte("before\n<!-- table: clients -->\n<!-- end of the table -->\nafter\n"), 0o600))
	var stdout bytes.Buffer
	require(t, run(t.Context(), []string{"clients", "--redis=", "--rounds", "1", "--turn", "5ms", "--write", folder}, &stdout, io.Discard))
	page, err := os.ReadFile(readme)
	if err != nil || string(page) != "before\n<!-- table: clients -->\n"+stdout.String()+"<!-- end of the table -->\nafter\n" {
		t.Errorf("the page does not have what was printed: %v\n%s", err, page)
	}
	for _, c := range clientContenders {
		want := 4 // two rows for distinct keys, and two for the hot key
		if c.hotOnly {
			want = 2
		}
		if got := strings.Count(stdout.String(), "\n| "+c.name+" |"); got != want {
			t.Errorf("%d rows of %s, want %d, in\n%s", got, c.name, want, stdout.String())
		}
	}
	for _, aim := range clientAims {
		if !strings.Contains(stdout.String(), "| "+aim.says+" | ") {
			t.Errorf("nothing about %s", aim.says)
		}
	}
	for _, bad := range []string{"NaN", "Inf", "| **"} {
		if strings.Contains(stdout.String(), bad) {
			t.Errorf("%s in\n%s", bad, stdout.String())
		}
	}
	for _, name := range []string{"clients-distinct.svg", "clients-distinct-p99.svg", "clients-hot.svg", "clients-hot-p99.svg"} {
		svg, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil || strings.Contains(string(svg), "NaN") || strings.Contains(string(svg), "Inf") || strings.Contains(string(svg), "with batches") != strings.Contains(name, "hot") {
			t.Errorf("%s: %v\n%s", name, err, svg)
		}
	}
}

// TestEveryClientDecides checks that each client enforces its limit, because a client that allowed
// everything would appear fast.
func TestEveryClientDecides(t *testing.T) {
	s := testServer(t)
	require(t, s.rdb.FunctionLoad(t.Context(), functions.Source()).Err())
	for i, c := range clientContenders {
		a := must[asker](t)(c.open(s.url, workload{count: 2, period: time.Hour}))
		defer a.close()
		for call, want := range []bool{true, true, false} {
			if got, err := a.allow(t.Context(), key("dec"+string(rune('a'+i)), 1)); err != nil || got != want {
				t.Errorf("%s, call %d: %t, %v, want %t", c.name, call+1, got, err, want)
			}
		}
	}
}

func TestClientsEndsWhenAKeyRunsOut(t *testing.T) {
	r := clientsRunner{turn: time.Minute, keys: []string{"a"}, times: make([][]time.Duration, 1)}
	s := testServer(t)
	a := must[asker](t)(plain(openRedisRate)(s.url, workload{count: 2, period: time.Hour}))
	defer a.close()
	if err := r.measure(t.Context(), clientScene{true, 1}, "c:", a, newFigures()); err == nil || !strings.Contains(err.Error(), "the key c:hot was denied") {
		t.Errorf("the error is %v, want one that names the key", err)
	}
}

// TestThePlotsShowTheTables compares the plots of this directory with the tables in README.md.
func TestThePlotsShowTheTables(t *testing.T) {
	folder := t.TempDir()
	page := must[[]byte](t)(os.ReadFile("README.md"))
	require(t, os.WriteFile(filepath.Join(folder, "README.md"), page, 0o600))
	require(t, run(t.Context(), []string{"clients", "--draw", folder}, io.Discard, io.Discard))
	for name := range must[map[string]string](t)(clientPlots(string(page))) {
		want := must[[]byte](t)(os.ReadFile(filepath.Join(folder, name)))
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s does not show the tables (%v); run go run . clients --draw .", name, err)
		}
	}
	if _, err := clientPlots("\nDecisions a second, distinct keys\n\n| goroutines | 1 |\n|---|---:|\n| ratelimit | 5 **1.00** |\n"); err == nil {
		t.Error("plots of a table that lacks columns")
	}
}

func TestMarksOf(t *testing.T) {
	for _, test := range []struct{ values, want []float64 }{
		{[]float64{8870, 35800}, []float64{5000, 10000, 20000, 50000}},
		{[]float64{67, 2.7e6}, []float64{10, 100, 1e3, 1e4, 1e5, 1e6, 1e7}},
		{[]float64{10, 100}, []float64{10, 20, 50, 100}},
		{[]float64{30, 40}, []float64{20, 50}},
		{[]float64{7, 7}, []float64{5, 10}},
		{[]float64{100, 100}, []float64{100, 200}},
		{[]float64{0.002, 99.6}, []float64{0.001, 0.01, 0.1, 1, 10, 100}},
		{[]float64{0.3, 1}, []float64{0.2, 0.5, 1}},
	} {
		if got := marksOf(test.values); !slices.Equal(got, test.want) {
			t.Errorf("%v: %v, want %v", test.values, got, test.want)
		}
	}
}
