package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A report never replaces a file that is not a report, such as the log that it was made from.
func TestReportsReplaceOnlyReports(t *testing.T) {
	srv := withLibrary(t)
	tests := "policies: policies.yaml\ntests:\n  - {name: a, calls: [{take: [api, k], expect: {allowed: true}}]}\n"
	files := map[string]string{"access.log": logLines("a", 3), "short": "<!", "policies.yaml": "policies: {api: 1/s}\n", "policies_test.yaml": tests}
	inFolder(t, files)
	for _, args := range [][]string{
		{"backtest", "access.log", "--html", "access.log"},
		{"backtest", "access.log", "--html", "." + string(filepath.Separator) + "short"},
		{"backtest", "access.log", "--policies", "policies.yaml", "--policy", "api", "--html", "policies.yaml"},
		{"load", "--limit", "1/s", "--iterations", "1", "--html", "policies.yaml"},
		{"test", "policies_test.yaml", "--junit", "policies_test.yaml"},
	} {
		got := run(t, []string{redisURL(srv.Addr())}, args...)
		if got.code != exitError || !strings.Contains(got.stderr, args[len(args)-1]+" exists and is another kind of file, so it is not overwritten; choose another file with "+args[len(args)-2]) {
			t.Errorf("%v: %+v", args, got)
		}
	}
	for name, want := range files {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s became %q, %v", name, got, err)
		}
	}
}

// If a command fails, the previous report stays, and no temporary file is left.
func TestAReportStaysIfTheNextFails(t *testing.T) {
	srv := withLibrary(t)
	t.Chdir(t.TempDir())
	const old = "<!DOCTYPE html>\nthe page of yesterday\n"
	files := map[string]string{
		"access.log": logLines("a", 3), "empty.log": "\n", "old.html": old, "old.xml": "<?xml version='1.0'?>\n",
		"policies.yaml": "policies: {api: 1/s}\n", "bad.yaml": "policies: {api: 1/x}\n", "policies_test.yaml": "policies: bad.yaml\ntests: []\n",
	}
	for name, text := range files {
		require(t, os.WriteFile(name, []byte(text), 0o640))
	}
	for _, args := range [][]string{
		{"backtest", "access.log", "--limit", "10/zz", "--html", "old.html"},
		{"backtest", "none.log", "--limit", "10/s", "--html", "old.html"},
		{"backtest", "empty.log", "--limit", "10/s", "--html", "old.html"},
		{"backtest", "access.log", "--policies", "bad.yaml", "--policy", "api", "--html", "old.html"},
		{"load", "--limit", "10/zz", "--iterations", "1", "--html", "old.html"},
		{"test", "policies_test.yaml", "--junit", "old.xml"},
		{"build", "--policies", "none.yaml", "-o", "old.html"},
	} {
		if got := run(t, []string{redisURL(srv.Addr())}, args...); got.code != exitError {
			t.Errorf("%v: %+v", args, got)
		}
		for name, want := range files {
			if got, err := os.ReadFile(name); err != nil || string(got) != want {
				t.Fatalf("%v: %s became %q, %v", args, name, got, err)
			}
		}
	}
	entries, err := os.ReadDir(".")
	if err != nil || len(entries) != len(files) {
		t.Errorf("%v, %v", entries, err)
	}

	// A report is written through a symbolic link, and the link's target keeps its mode.
	require(t, os.Symlink("old.html", "link.html"))
	for _, args := range [][]string{
		{"backtest", "access.log", "--limit", "10/s", "--html", "link.html"},
		{"load", "--limit", "10/s", "--iterations", "1", "--html", "link.html"},
	} {
		if got := run(t, []string{redisURL(srv.Addr())}, args...); got.code != exitFine {
			t.Errorf("%v: %+v", args, got)
		}
		text, err := os.ReadFile("old.html")
		if info, _ := os.Lstat("link.html"); err != nil || string(text) == old || info.Mode().Type() != os.ModeSymlink {
			t.Errorf("%v: %s, %v", args, info.Mode(), err)
		}
		if info, err := os.Stat("old.html"); err != nil || info.Mode() != 0o640 {
			t.Errorf("%v: %s, %v", args, info.Mode(), err)
		}
	}
}
