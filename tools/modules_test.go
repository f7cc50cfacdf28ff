package tools_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestDependencies checks that the root module has at most ten direct dependencies besides those of
// tests, and that CONTRIBUTING.md gives a reason for each.
func TestDependencies(t *testing.T) {
	forTests := []string{"go.uber.org/goleak", "golang.org/x/sys", "pgregory.net/rapid"}
	var direct []string
	for _, required := range gomod(t, "..").Require {
		if path := required.Mod.Path; !required.Indirect && !slices.Contains(forTests, path) {
			direct = append(direct, strings.TrimPrefix(path, "github.com/"))
		}
	}
	text := string(redistest.Must[[]byte](t)(os.ReadFile("../CONTRIBUTING.md")))
	_, text, _ = strings.Cut(text, "\n## Dependencies\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var explained []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(text, -1) {
		explained = append(explained, row[1])
	}
	slices.Sort(direct)
	slices.Sort(explained)
	if !slices.Equal(direct, explained) {
		t.Errorf("go.mod requires %q, and CONTRIBUTING.md explains %q", direct, explained)
	}
	if len(direct) > 10 {
		t.Errorf("%d direct dependencies; those of client have to be few, at most 10", len(direct))
	}
}

// TestModules checks that released modules can be installed by their version, and that all modules
// require each other in the version of this commit.
func TestModules(t *testing.T) {
	work := redistest.Must[*modfile.WorkFile](t)(modfile.ParseWork("go.work", redistest.Must[[]byte](t)(os.ReadFile("../go.work")), nil))
	if len(work.Use) > 8 {
		t.Errorf("%d modules; a module costs its own versions, so join two", len(work.Use))
	}
	const project = "github.com/ratelimit-functions/ratelimit"
	for _, use := range work.Use {
		file := gomod(t, "../"+use.Path)
		if want := project + strings.TrimPrefix(use.Path, "."); file.Module.Mod.Path != want {
			t.Errorf("%s: the module is called %s; want %s", use.Path, file.Module.Mod.Path, want)
		}
		if len(file.Replace) > 0 || len(file.Exclude) > 0 {
			t.Errorf("%s replaces or excludes modules, so go install refuses it", use.Path)
		}
		for _, required := range file.Require {
			if strings.HasPrefix(required.Mod.Path, project) && required.Mod.Version != "v"+functions.Version() {
				t.Errorf("%s requires %s; run tools/tidy.sh", use.Path, required.Mod)
			}
		}
	}
}

func gomod(t *testing.T, dir string) *modfile.File {
	t.Helper()
	return redistest.Must[*modfile.File](t)(modfile.Parse("go.mod", redistest.Must[[]byte](t)(os.ReadFile(dir+"/go.mod")), nil))
}
