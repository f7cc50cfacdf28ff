package tools_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestCheckAfterDeletions checks that tools/check.sh also vets and tests a change that only deletes files. It
// runs the script in a small repository.
func TestCheckAfterDeletions(t *testing.T) {
	dir := t.TempDir()
	script := redistest.Must[[]byte](t)(os.ReadFile("check.sh"))
	for name, text := range map[string]string{
		"tools/check.sh":                       string(script),
		"notes.md":                             "",
		"internal/redistest/redistest.go":      "package redistest\n",
		"internal/redistest/redistest_test.go": "package redistest_test\n\nimport _ \"github.com/ratelimit-functions/ratelimit/internal/redistest\"\n",
		"words/words.go":                       "package words\n\nconst Text = word\n",
		"words/word.go":                        "package words\n\nconst word = \"x\"\n",
		"words/unused.go":                      "package words\n",
		"words/words.txt":                      "x",
		"words/words_test.go":                  "package words\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestFile(t *testing.T) {\n\tif _, err := os.Stat(\"words.txt\"); err != nil {\n\t\tt.Error(err)\n\t}\n}\n",
	} {
		path := filepath.Join(dir, name)
		redistest.Require(t, os.MkdirAll(filepath.Dir(path), 0o755))
		redistest.Require(t, os.WriteFile(path, []byte(text), 0o755))
	}
	for _, args := range [][]string{
		{"go", "mod", "init", "github.com/ratelimit-functions/ratelimit"},
		{"go", "work", "init", "."},
		{"git", "init", "-q"},
		{"git", "add", "-A"},
		{"git", "commit", "-q", "-m", "all files"},
	} {
		must(t, dir, nil, args[0], args[1:]...)
	}
	for _, tt := range []struct {
		deleted string
		fails   bool
		want    string
	}{
		{"words/word.go", true, "undefined: word"},
		{"words/words.txt", true, "--- FAIL: TestFile"},
		{"words/unused.go", false, "ok  \tgithub.com/ratelimit-functions/ratelimit/words"},
		{"notes.md", false, "ok: formats and vet; no package changed"},
		{"", false, "nothing has changed since the last commit"},
	} {
		if tt.deleted != "" {
			redistest.Require(t, os.Remove(filepath.Join(dir, tt.deleted)))
		}
		code, stdout, stderr := command(t, dir, nil, filepath.Join(dir, "tools", "check.sh"))
		if (code != 0) != tt.fails || !strings.Contains(stdout+stderr, tt.want) {
			t.Errorf("without %q: exit code %d, want %q\n%s%s", tt.deleted, code, tt.want, stdout, stderr)
		}
		must(t, dir, nil, "git", "checkout", "-q", ".")
	}
}
