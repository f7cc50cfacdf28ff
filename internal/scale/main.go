// Command scale simulates what docs/scale.md plans with: many processes with batches on one key, keys over many shards, a
// limit split over sub-keys, and regions with servers of their own. It prints the page's tables; with -write it puts them
// and the plot into the page. Each run of a version prints the same.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

func main() {
	exact := flag.Bool("reference", false, "decide with the reference model: the same figures, in hours")
	write := flag.String("write", "", "the `folder` of scale.md, to put the tables and the plot into")
	flag.Parse()
	decide := newQuick
	if *exact {
		decide = newReference
	}
	tables, plot := simulate(decide)
	if *write == "" {
		for _, t := range tables {
			fmt.Printf("%s\n\n%s\n", t.name, t.text)
		}
		return
	}
	if err := update(*write, tables, plot); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A table is one of the page, in Markdown.
type table struct{ name, text string }

// simulate returns the page's tables and its plot.
func simulate(decide maker) (tables []table, plot string) {
	return []table{
		{"hot key", hotTable(hotRows(decide))},
		{"shards", shardsTable()},
		{"servers", serversTable()},
		{"sub-keys", subKeysTable(decide)},
		{"regions", regionsTable(decide)},
	}, plotted(decide)
}

// update puts the tables and the plot into the page.
func update(folder string, tables []table, plot string) error {
	name := filepath.Join(folder, "scale.md")
	page, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	renewed, err := filled(string(page), tables)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := os.WriteFile(name, []byte(renewed), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "scale.svg"), []byte(plot), 0o644)
}

// filled is the page with these tables between its marks.
func filled(page string, tables []table) (string, error) {
	for _, t := range tables {
		begin, end := fmt.Sprintf("<!-- table: %s -->\n", t.name), "<!-- end of the table -->\n"
		before, rest, ok := strings.Cut(page, begin)
		_, after, ends := strings.Cut(rest, end)
		if !ok || !ends {
			return "", fmt.Errorf("no place for the table %q: it goes between %q and %q", t.name, begin, end)
		}
		page = before + begin + t.text + end + after
	}
	return page, nil
}

// inTurns calls do for 0 to n-1, two at a time.
func inTurns(n int, do func(i int)) {
	var all sync.WaitGroup
	places := make(chan struct{}, 2)
	for i := range n {
		places <- struct{}{}
		all.Go(func() {
			do(i)
			<-places
		})
	}
	all.Wait()
}

// percent is a part of a whole.
func percent(part, whole int64) string {
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

// count is a number with three significant digits, grouped by thousands.
func count(f float64) string {
	digits := 1.0
	for f/digits >= 1000 {
		digits *= 10
	}
	s := fmt.Sprintf("%.0f", float64(int64(f/digits+0.5))*digits)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func seconds(us int64) string { return fmt.Sprintf("%g s", float64(us)/1e6) }
