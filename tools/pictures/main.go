// Command pictures draws the diagrams of the documents from the descriptions in this package. It
// prints their file names, or with -write it updates the files.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ratelimit-functions/ratelimit/internal/replace"
)

// A picture is an SVG file in docs, and the page that shows it.
type picture struct {
	file string
	page string // relative to docs
	draw func() (string, error)
}

var pictures = []picture{
	{"overview.svg", "../README.md", overview},
	{"once.svg", "../functions/CALLS.md", once},
	{"breaker.svg", "operating.md", breaker},
	{"batch.svg", "scale.md", batch},
	{"deploy.svg", "deploying.md", deploy},
	{"deploy-dies.svg", "deploying.md", deployDies},
}

func main() {
	write := flag.String("write", "", "the `folder` to put the pictures into")
	flag.Parse()
	for _, p := range pictures {
		svg, err := p.draw()
		if err == nil && *write != "" {
			err = replace.File(filepath.Join(*write, p.file), []byte(svg))
		} else if err == nil {
			fmt.Println(p.file)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "pictures: %s: %v\n", p.file, err)
			os.Exit(1)
		}
	}
}
