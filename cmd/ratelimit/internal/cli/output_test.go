package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A report never replaces a file with other content, such as the log that it was made from.
func TestReportsReplaceOnlyReports(t *testing.T) {
	srv := withLibrary(t)
	t.Chdir(t.TempDir())
	tests := "policies: policies.yaml\ntests:\n  - {name: a, calls: [{take: [api, k], expect: {allowed: true}}]}\n"
	files := map[string]string{"access.log": logLines("a", 3), "short": "<!", "policies.yaml": "policies: {api: 1/s}\n", "policies_test.yaml": tests}
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"backtest", "access.log", "--html", "access.log"},
		{"backtest", "access.log", "--html", "." + string(filepath.Separator) + "short"},
		{"backtest", "access.log", "--policies", "policies.yaml", "--policy", "api", "--html", "policies.yaml"},
		{"load", "--limit", "1/s", "--iterations", "1", "--html", "policies.yaml"},
		{"test", "policies_test.yaml", "--junit", "policies_test.yaml"},
	} {
		got := run(t, []string{redisURL(srv.Addr())}, args...)
		if got.code != exitError || !strings.Contains(got.stderr, args[len(args)-1]+" is there already and is no such file, so that it is left as it is; choose another file with "+args[len(args)-2]) {
			t.Errorf("%v: %+v", args, got)
		}
	}
	for name, want := range files {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s became %q, %v", name, got, err)
		}
	}
}
