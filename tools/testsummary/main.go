// Command testsummary runs go test and counts what ran, for tools/test.sh.
//
//	testsummary run -label L -out FILE [-dir DIR] -- go test -json ...
//	testsummary total [-checks-passed N] [-checks-failed N] [-seconds N] [-servers FILE] FILE...
//
// run prints a line for each package that ends, and its progress after 15 s without such a line. At
// the end it prints one line if everything passed, otherwise the whole output of what failed. It
// writes the outcome to FILE and exits with 1 if anything failed. total adds up the FILEs, prints
// how many tests ran on which servers, and ends with two lines: "N passed, N failed"; and the time
// it took, the counts, and the servers. It exits with 1 unless at least one test ran and all
// passed.
//
// A skipped test, a package that does not build, a test that does not end and a run without tests
// are failures.
package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, `testsummary: say what to do: "run" or "total"`)
		os.Exit(2)
	}
	var (
		ok  bool
		err error
	)
	switch os.Args[1] {
	case "run":
		ok, err = runCommand(os.Args[2:], os.Stdout, time.Tick(15*time.Second))
	case "total":
		ok, err = totalCommand(os.Args[2:], os.Stdout)
	default:
		err = fmt.Errorf("unknown command %q; it is \"run\" or \"total\"", os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsummary:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}
