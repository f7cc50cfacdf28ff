// Command testsummary runs go test and counts what ran, for tools/test.sh.
//
//	testsummary run -label L -out FILE [-dir DIR] -- go test -json ...
//	testsummary total [-checks-passed N] [-checks-failed N] [-seconds N] [-servers FILE] FILE...
//
// run prints a line for each package that ends, and how far it is after 15 s without one; then one line if everything
// passed, and the whole output of what failed otherwise; it writes the outcome to FILE and exits 1 on any failure.
// total adds the FILEs up, says how many tests ran on which servers, and ends with two lines: "N passed, N failed",
// and how long it took, the counts, and the servers. It exits 1 unless something ran and all of it passed.
//
// A skipped test, a package that does not build, a test without an end and a run without a test are failures.
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
