package policies

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheDocument checks that the policies and tests in docs/policies.md are valid, and that the
// tests pass.
func TestTheDocument(t *testing.T) {
	document := must[[]byte](t)(os.ReadFile("../docs/policies.md"))
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(document), -1)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks of YAML, want policies and their tests", len(blocks))
	}
	file := parse(t, blocks[0][1])
	found, err := file.Findings()
	if err != nil || len(found.Wrong)+len(found.Doubtful) != 0 || len(file.Policies) != 4 {
		t.Errorf("%+v, %v", found, err)
	}
	examples := must[string](t)(filepath.Abs("../examples/policies.yaml"))
	text := strings.Replace(blocks[1][1], "policies: policies.yaml", "policies: "+examples, 1)
	tests := must[*TestFile](t)(readTests(t, text))
	results, err := tests.Run(t.Context(), nil)
	if err != nil || len(results.Tests) != 1 || results.Failed() != 0 {
		t.Errorf("%+v, %v", results, err)
	}
}
