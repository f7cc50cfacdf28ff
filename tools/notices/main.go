// Command notices lists the modules in Go programs. It writes a bill of materials in the JSON form of
// CycloneDX 1.6, and the licences of the modules, which a release of the programs must include:
//
//	go run ./tools/notices NAME PROGRAM...
//
// writes NAME.cdx.json and NAME_NOTICES.txt. The programs are builds of one command for different
// platforms, whose modules may differ.
package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: notices NAME PROGRAM...")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "notices: %v\n", err)
		os.Exit(1)
	}
}

func write(name string, programs []string) error {
	info, modules, err := read(programs)
	if err != nil {
		return err
	}
	bill, err := json.MarshalIndent(billOf(filepath.Base(name), info, modules), "", "  ")
	if err != nil {
		return err
	}
	notices, err := noticesOf(info, modules)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(name+".cdx.json", append(bill, '\n'), 0o644), os.WriteFile(name+"_NOTICES.txt", notices, 0o644))
}

// read returns what the first program says about its build, and the modules of all programs by path,
// without those of this project.
func read(programs []string) (*debug.BuildInfo, []*debug.Module, error) {
	var first *debug.BuildInfo
	var modules []*debug.Module
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w; name a program that go build wrote", program, err)
		}
		first = cmp.Or(first, info)
		for _, m := range info.Deps {
			if strings.HasPrefix(m.Path, "github.com/ratelimit-functions/") {
				continue
			}
			if m.Replace != nil {
				return nil, nil, fmt.Errorf("%s: %s is replaced by %s, which a release must not contain", program, m.Path, m.Replace.Path)
			}
			modules = append(modules, m)
		}
	}
	slices.SortFunc(modules, func(a, b *debug.Module) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Version, b.Version))
	})
	return first, slices.CompactFunc(modules, func(a, b *debug.Module) bool { return a.Path == b.Path && a.Version == b.Version }), nil
}

// bill is the part of a CycloneDX document that is used here.
type bill struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	URL        string     `json:"purl,omitempty"` // package URL
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func billOf(name string, info *debug.BuildInfo, modules []*debug.Module) bill {
	b := bill{"CycloneDX", "1.6", 1, metadata{component{Type: "application", Name: name}}, nil}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Metadata.Component.Properties = []property{{"git:commit", s.Value}}
		}
	}
	b.Components = append(b.Components, component{Type: "library", Name: "std", Version: info.GoVersion, URL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")})
	for _, m := range modules {
		b.Components = append(b.Components, component{"library", m.Path, m.Version, "pkg:golang/" + m.Path + "@" + m.Version, []property{{"go:sum", m.Sum}}})
	}
	return b
}

var licence = regexp.MustCompile(`(?i)^(licen[sc]e|copying|notice|patents)([.-].*)?$`)

// noticesOf returns the licences of Go's standard library and of the modules.
func noticesOf(info *debug.BuildInfo, modules []*debug.Module) ([]byte, error) {
	root, err := output("go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := add(&text, "The Go standard library, "+info.GoVersion, strings.TrimSpace(string(root))); err != nil {
		return nil, err
	}
	args := []string{"mod", "download", "-json"}
	for _, m := range modules {
		args = append(args, m.Path+"@"+m.Version)
	}
	found, err := output("go", args...)
	if err != nil {
		return nil, err
	}
	for list := json.NewDecoder(bytes.NewReader(found)); ; {
		var m struct{ Path, Version, Dir string }
		switch err := list.Decode(&m); {
		case errors.Is(err, io.EOF):
			return text.Bytes(), nil
		case err != nil:
			return nil, err
		}
		if err := add(&text, m.Path+" "+m.Version, m.Dir); err != nil {
			return nil, err
		}
	}
}

// add appends the files with licences in a folder. It fails if there are none.
func add(text *bytes.Buffer, title, folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	before := text.Len()
	for _, entry := range entries {
		if !licence.MatchString(entry.Name()) || entry.IsDir() || strings.HasSuffix(entry.Name(), ".go") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(text, "%s\n%s: %s\n\n%s\n", strings.Repeat("=", 80), title, entry.Name(), bytes.TrimSpace(content))
	}
	if text.Len() == before {
		return fmt.Errorf("%s has no licence in %s; add it by hand or leave the module out", title, folder)
	}
	return nil
}

func output(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	return cmd.Output()
}
