// Command scale runs the simulations for docs/scale.md: many processes with batches on one key,
// many keys on many shards, a limit split over sub-keys, and regions with their own servers. It
// prints the page's tables. With -write it updates the page and its plot instead. Every run prints
// the same output.
package main

import (
	"flag"
	"fmt"
	"os"
	"sync"

	"github.com/ratelimit-functions/ratelimit/tools/tables"
)

func main() {
	write := flag.String("write", "", "the `folder` of scale.md, to put the tables and the plot into")
	flag.Parse()
	all := []tables.Table{
		{Name: "hot key", Text: hotTable()},
		{Name: "shards", Text: shardsTable()},
		{Name: "servers", Text: serversTable()},
		{Name: "sub-keys", Text: subKeysTable()},
		{Name: "regions", Text: regionsTable()},
	}
	if *write == "" {
		for _, t := range all {
			fmt.Printf("%s\n\n%s\n", t.Name, t.Text)
		}
		return
	}
	if err := tables.Write(*write, "scale.md", all, map[string]string{"scale.svg": plotted()}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// concurrently calls the function do with each number from 0 to n-1, two calls at a time.
func concurrently(n int, do func(i int)) {
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

func percent(part, whole int64) string {
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

func seconds(us int64) string { return fmt.Sprintf("%g s", float64(us)/1e6) }
