// Command scale runs the simulations for docs/scale.md: many processes with batches on one key,
// keys on many shards, a limit split over sub-keys, and regions with their own servers. It prints
// the page's tables; with -write it writes them and the plot into the page. Every run of a version
// prints the same.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/ratelimit-functions/ratelimit/internal/figures"
	"github.com/ratelimit-functions/ratelimit/internal/replace"
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
			fmt.Printf("%s\n\n%s\n", t.Name, t.Text)
		}
		return
	}
	if err := update(*write, tables, plot); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// simulate returns the page's tables and its plot.
func simulate(decide maker) (tables []figures.Table, plot string) {
	return []figures.Table{
		{Name: "hot key", Text: hotTable(hotRows(decide))},
		{Name: "shards", Text: shardsTable()},
		{Name: "servers", Text: serversTable()},
		{Name: "sub-keys", Text: subKeysTable(decide)},
		{Name: "regions", Text: regionsTable(decide)},
	}, plotted(decide)
}

// update writes the tables and the plot into the page.
func update(folder string, tables []figures.Table, plot string) error {
	if err := figures.Update(filepath.Join(folder, "scale.md"), tables); err != nil {
		return err
	}
	return replace.File(filepath.Join(folder, "scale.svg"), []byte(plot))
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

// percent formats a part of a whole.
func percent(part, whole int64) string {
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

func seconds(us int64) string { return fmt.Sprintf("%g s", float64(us)/1e6) }
