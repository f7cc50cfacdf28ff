// Command testsummary runs go test and counts what ran, for scripts/test.sh.
//
//	testsummary run -label L -out FILE [-dir DIR] -- go test -json ...
//	testsummary total [-checks-passed N] [-checks-failed N] [-servers FILE] FILE...
//
// run prints one line for a run in which everything passed, and the whole output of what failed otherwise;
// it writes the outcome to FILE and exits 1 on any failure. total adds the FILEs up, says how many tests ran
// on which servers, and ends with the line "N passed, N failed"; it exits 1 unless something ran and all of it
// passed.
//
// A skipped test, a package that does not build, a test without an end and a run without a test are failures.
package main

import (
	"fmt"
	"os"
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
		ok, err = runCommand(os.Args[2:], os.Stdout)
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
