package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The bill and the notices of the command name its modules, with their licences.
func TestNotices(t *testing.T) {
	program := filepath.Join(t.TempDir(), "ratelimit")
	build := exec.Command("go", "build", "-o", program, "../../cmd/ratelimit")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	name := filepath.Join(t.TempDir(), "program")
	if err := write(name, []string{program, program}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name + ".cdx.json")
	if err != nil {
		t.Fatal(err)
	}
	var found bill
	if err := json.Unmarshal(text, &found); err != nil || found.Format != "CycloneDX" || found.Metadata.Component.Name != "program" {
		t.Fatalf("%v: %s", err, text)
	}
	count := map[string]int{}
	for _, c := range found.Components {
		count[c.Name]++
		if strings.HasPrefix(c.Name, "github.com/ratelimit-functions/") {
			t.Errorf("the project itself is a component: %+v", c)
		}
		if c.Name == "github.com/redis/go-redis/v9" && (c.URL != "pkg:golang/github.com/redis/go-redis/v9@"+c.Version || !strings.HasPrefix(c.Properties[0].Value, "h1:")) {
			t.Errorf("%+v", c)
		}
	}
	if count["std"] != 1 || count["github.com/redis/go-redis/v9"] != 1 {
		t.Errorf("%v", count)
	}
	notices, err := os.ReadFile(name + "_NOTICES.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nThe Go standard library, go1", "\ngithub.com/redis/go-redis/v9 v9", "The github.com/redis/go-redis Authors"} {
		if !strings.Contains(string(notices), want) {
			t.Errorf("%q is not in the notices", want)
		}
	}
	if err := write(name, []string{"main_test.go"}); err == nil || !strings.Contains(err.Error(), "name a program that go build wrote") {
		t.Error(err)
	}
}
