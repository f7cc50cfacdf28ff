package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/functions"
)

func TestVerify(t *testing.T) {
	t.Run("all vectors", func(t *testing.T) { testVerify(t, functions.LoadVectors, nil) })
	t.Run("few vectors", func(t *testing.T) { testVerify(t, fewVectors, fewVectors, "--json") })
}

// vectorsFrom returns vectors for verify.
type vectorsFrom = func() ([]functions.VectorFile, error)

// testVerify checks the output of verify as text, or as JSON if flags has --json. verify runs the
// vectors from load, or its own if load is nil. They must be the vectors that want returns.
func testVerify(t *testing.T, want, load vectorsFrom, flags ...string) {
	t.Helper()
	files := must[[]functions.VectorFile](t)(want())
	vectors, steps := 0, 0
	rows := [][]string{{"VECTORS OF", "COUNT", "STEPS", "RESULT"}}
	for _, file := range files {
		n := 0
		for _, v := range file.Vectors {
			n += len(v.Steps)
		}
		rows = append(rows, []string{file.Name, fmt.Sprint(len(file.Vectors)), fmt.Sprint(n), "ok"})
		vectors += len(file.Vectors)
		steps += n
	}
	result := table(rows)
	end := "\nok: " + plural(vectors, "vector") + ", " + plural(steps, "step") + "\n"
	size := grouped(int64(len(functions.Source()))) + " bytes\n\n"

	got := verifyWith(t, load, flags...)
	if len(flags) == 0 {
		got.want(t, exitFine, "ratelimit "+functions.Version()+", build "+functions.BuildID()+": loads, "+size+result+end, "")
		return
	}
	var report verifyReport
	require(t, json.Unmarshal([]byte(got.stdout), &report))
	if got.code != exitFine || !report.OK || report.Vectors != vectors || report.Steps != steps || len(report.Files) != len(files) ||
		len(report.Failures) != 0 || report.Digest != functions.Digest(functions.Source()) {
		t.Errorf("%+v", got)
	}
}

// verifyWith runs verify with vectors from load, or with its own if load is nil.
func verifyWith(t *testing.T, load vectorsFrom, flags ...string) outcome {
	t.Helper()
	var stdout, stderr strings.Builder
	a := testApp(nil, &stdout, &stderr)
	if a.vectors = load; load == nil {
		a.vectors = newApp(nil, io.Discard, io.Discard).vectors
	}
	code := a.execute(t.Context(), append([]string{"verify"}, flags...))
	return outcome{code, stdout.String(), stderr.String()}
}

// verify detects a library that decides wrongly, and shows each wrong reply with the right one.
func TestVerifyFails(t *testing.T) {
	wrong := strings.ReplaceAll(functions.Source(), "'COST'", "'KOST'")
	if wrong == functions.Source() {
		t.Fatal("the library no longer names COST in this way; spoil another place")
	}
	file := libraryFile(t, wrong)
	files := slices.Clone(must[[]functions.VectorFile](t)(fewVectors()))
	for i, file := range must[[]functions.VectorFile](t)(functions.LoadVectors()) {
		if file.Name == "gcra" {
			files[i] = file
		}
	}
	vectors := func() ([]functions.VectorFile, error) { return files, nil }
	got := verifyWith(t, vectors, "--library", file)
	var report verifyReport
	asJSON := verifyWith(t, vectors, "--library", file, "--json")
	require(t, json.Unmarshal([]byte(asJSON.stdout), &report))
	if report.OK || len(report.Failures) == 0 {
		t.Fatalf("%+v", report)
	}
	failed := fmt.Sprintf(" in %d of %d vectors", len(report.Failures), report.Vectors)
	if got.code != exitError || asJSON.code != exitError || !strings.Contains(got.stderr, failed) || asJSON.stderr != got.stderr {
		t.Errorf("exit codes %d and %d, stderr %q and %q, want 1 and %q", got.code, asJSON.code, got.stderr, asJSON.stderr, failed)
	}
	const shown = "\ngcra: the cost is charged at once or not at all, step 1, at 0 µs\n" +
		"  FCALL ratelimit_take 1 {v}:a 10/s COST 7: got the error \"RATELIMIT "
	begin := file + ": loads, " + grouped(int64(len(wrong))) + " bytes\n\nVECTORS OF "
	if !strings.HasPrefix(got.stdout, begin) || !strings.Contains(got.stdout, shown) || !strings.Contains(got.stdout, ", want [1, 10, 3, 0, 700, 1]\n") {
		t.Errorf("stdout:\n%s\nwant at the beginning:\n%s\nand in it:\n%s", got.stdout, begin, shown)
	}
	if !strings.Contains(got.stdout, " FAILED\n") || strings.Contains(got.stdout, "\nok:") {
		t.Errorf("stdout:\n%s", got.stdout)
	}
}

func TestVerifyWhatDoesNotLoad(t *testing.T) {
	file := libraryFile(t, "#!lua name=ratelimit\nredis.call('PING')\n")
	newMessages(t, "a library that does not load", file, "library.lua").fails(nil, "verify", "--library", file)
	t.Run("no vectors", func(t *testing.T) {
		if _, err := runVectors(t.Context(), "x", functions.Source(), nil); err == nil {
			t.Errorf("%v", err)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var stdout, stderr strings.Builder
		code := Execute(ctx, []string{"verify"}, func(string) string { return "" }, &stdout, &stderr)
		if code != exitError || stdout.Len() > 0 || !strings.HasPrefix(stderr.String(), "ratelimit: interrupted ") {
			t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
		}
	})
}

func libraryFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "library.lua")
	require(t, os.WriteFile(file, []byte(text), 0o666))
	return file
}

// verify also reports a function that no vector calls.
func TestVerifyRules(t *testing.T) {
	file := libraryFile(t, functions.Source()+"redis.register_function('ratelimit_extra', function(keys) return 1 end)\n")
	got := run(t, nil, "verify", "--library", file)
	if got.code != exitError || !strings.Contains(got.stderr, " breaks 1 rule") {
		t.Errorf("%+v", got)
	}
	for _, want := range []string{
		"\nno vector calls ratelimit_extra\n",
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("stdout lacks %q:\n%s", want, got.stdout)
		}
	}
	if strings.Contains(got.stdout, "\nok:") {
		t.Errorf("stdout:\n%s", got.stdout)
	}
}
