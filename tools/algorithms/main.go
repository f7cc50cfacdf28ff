// Command algorithms sends the same traffic through each algorithm of the current library, in the
// offline engine. It prints the table of docs/algorithms.md; with -write it writes the table into
// the page, and the pictures beside the page.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ratelimit-functions/ratelimit/internal/figures"
	"github.com/ratelimit-functions/ratelimit/internal/replace"
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
	if err := figures.Update(filepath.Join(folder, "algorithms.md"), []figures.Table{{Name: "decisions", Text: table}}); err != nil {
		return err
	}
	for i, t := range traffics {
		if err := replace.File(filepath.Join(folder, t.file), []byte(picture(t, results[i]))); err != nil {
			return err
		}
	}
	return nil
}
