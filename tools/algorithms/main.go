// Command algorithms sends the same traffic through each algorithm of the library, in the offline
// engine, and prints the table of docs/algorithms.md. With -write it updates the page and its
// pictures instead.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/ratelimit-functions/ratelimit/tools/tables"
)

func main() {
	write := flag.String("write", "", "the `folder` of algorithms.md, to put the table and the pictures into")
	flag.Parse()
	if err := run(*write); err != nil {
		fmt.Fprintln(os.Stderr, "algorithms:", err)
		os.Exit(1)
	}
}

func run(folder string) error {
	results, err := decide()
	if err != nil {
		return err
	}
	table := tableOf(results)
	if folder == "" {
		fmt.Print(table)
		return nil
	}
	pictures := map[string]string{}
	for i, t := range traffics {
		if t.file != "" {
			pictures[t.file] = picture(t, results[i])
		}
	}
	return tables.Write(folder, "algorithms.md", []tables.Table{{Name: "decisions", Text: table}}, pictures)
}
