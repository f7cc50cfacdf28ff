package cli

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader"
)

// Each command that a text in the sources suggests exists, and is printed so that it can be typed.
func TestSuggestionsInTheSources(t *testing.T) {
	a := testApp(nil, nil, nil)
	a.program = "prog"
	a.root()
	a.servers.url = "redis://127.0.0.1:1"
	command := regexp.MustCompile("(as in)?: *[\"`]?ratelimit ([a-z]+)")
	asked := []string{"block", "delete", "demo", "deploy", "status", "unblock"} // commands for servers, where they are suggested
	goName := regexp.MustCompile(`\([A-Z]+[a-z]\w*\)`)
	found := map[string]bool{}
	for _, dir := range []string{"../../../../loader", "../../../../client", "."} {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("no sources in %s: %v", dir, err)
		}
		before := len(found)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				literal, ok := n.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					return true
				}
				text, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				if got := a.typable(text); goName.MatchString(got) {
					t.Errorf("%s: %q goes out with a name of the Go API: %q", name, text, got)
				}
				for _, m := range command.FindAllStringSubmatch(text, -1) {
					found[dir+" "+m[2]] = true
					want := ": prog " + m[2]
					if m[1] == "" && slices.Contains(asked, m[2]) {
						want += " --redis redis://127.0.0.1:1"
					}
					if got := a.typable(text); !strings.Contains(got, want) || command.MatchString(got) {
						t.Errorf("%s: %q goes out as %q, want %q in it", name, text, got, want)
					}
				}
				return true
			})
		}
		if len(found) == before {
			t.Errorf("no suggestion in %s: does this test still find them?", dir)
		}
	}
	for _, want := range []string{"../../../../loader delete", "../../../../loader verify", "../../../../client deploy", ". unblock"} {
		if !found[want] {
			t.Errorf("%s is not among the suggestions %v", want, found)
		}
	}
}

// A suggested command gets only flags that it has, in every text.
func TestTypable(t *testing.T) {
	var stdout bytes.Buffer
	a := testApp(nil, &stdout, nil)
	a.root()
	a.servers.url, a.policies = "redis://127.0.0.1:1", "my policies.yaml"
	for _, tt := range []struct{ text, want string }{
		{"put it there with: ratelimit deploy", "put it there with: ratelimit deploy --redis redis://127.0.0.1:1 --policies 'my policies.yaml'"},
		{"keep this running: ratelimit status --watch", "keep this running: ratelimit status --redis redis://127.0.0.1:1 --policies 'my policies.yaml' --watch"},
		{"take it away with: ratelimit delete", "take it away with: ratelimit delete --redis redis://127.0.0.1:1"},
		{"start one with: ratelimit dev", "start one with: ratelimit dev"},
		{"no key; as in: ratelimit reset user:42", "no key; as in: ratelimit reset user:42"},
		{"run: ratelimit nothing", "run: ratelimit nothing"},
		{"ratelimit: take failed", "ratelimit: take failed"},
	} {
		if got := a.typable(tt.text); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
	event := loader.Event{Time: time.Unix(0, 0), Kind: loader.Left, Text: "put this one there with: ratelimit deploy"}
	const want = "with: ratelimit deploy --redis redis://127.0.0.1:1 --policies 'my policies.yaml'"
	for _, a.json = range []bool{false, true} {
		stdout.Reset()
		if err := a.printEvent(event); err != nil || !strings.Contains(stdout.String(), want) {
			t.Errorf("%v: %s", err, stdout.String())
		}
	}
}

// The help lists the rights that package loader needs.
func TestDeployerHelp(t *testing.T) {
	build, err := functions.New()
	if err != nil {
		t.Fatal(err)
	}
	rules, err := loader.Rules(build, loader.Deployer, "", true)
	if err != nil {
		t.Fatal(err)
	}
	rules = slices.DeleteFunc(rules, func(rule string) bool { return rule == "reset" || rule == "+ping" })
	if named := regexp.MustCompile(`\+[a-z|]+`).FindAllString(deployerHelp, -1); !slices.Equal(named, rules) {
		t.Errorf("the help names %v, and a deployer needs %v", named, rules)
	}
}
