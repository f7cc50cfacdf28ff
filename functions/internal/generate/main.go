// Command generate writes functions/ratelimit.lua from functions/src. With -check it writes
// nothing, and fails if ratelimit.lua differs from the build of the sources.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/replace"
)

func main() {
	check := flag.Bool("check", false, "fail when the file is stale instead of writing it")
	file := flag.String("o", "ratelimit.lua", "the file to write or check")
	flag.Parse()
	if err := run(*file, *check); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(file string, check bool) error {
	build, err := functions.New()
	if err != nil {
		return err
	}
	if !check {
		return replace.File(file, []byte(build.Text()))
	}
	have, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if string(have) != build.Text() {
		return fmt.Errorf("%s is stale: it is not what functions/src builds; run: make generate", file)
	}
	return nil
}
