package functions

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"sync"
)

// Name is the library's name on the server.
const Name = "ratelimit"

// Contract is the version of the wire contract (CALLS.md and SEMANTICS.md) that the library implements.
const Contract = 1

// version is the version of the library and of the command, which are released together. The Git
// tag of a release is "v" followed by version.
const version = "0.1.0"

// The build replaces these marks, which are in src/00_library.lua, and policiesMark, which is in
// src/40_policies.lua.
const (
	versionMark = "@VERSION@"
	buildIDMark = "@BUILD_ID@"
)

//go:embed src
var sources embed.FS

//go:embed ratelimit.lua
var source string

// Source returns the library's source code without policies, which is the content of
// functions/ratelimit.lua.
func Source() string { return source }

// Version returns the library's version, as in "0.1.0".
func Version() string { return version }

// BuildID returns the build ID of Source: the first 12 hexadecimal digits of the SHA-256 of the
// code without comments, the version and the policies. ratelimit_info returns it.
func BuildID() string {
	build, err := New()
	if err != nil {
		// Unreachable: the sources are embedded, and a test builds them.
		panic("functions: the embedded sources do not build: " + err.Error())
	}
	return build.ID()
}

// Build is a library's source code, ready to be loaded. It is immutable and safe for concurrent
// use. The zero value is empty.
type Build struct {
	text     string
	id       string
	policies []Policy
}

// Text returns the library's source code, as FUNCTION LOAD expects it.
func (b Build) Text() string { return b.text }

// Version returns the version that the library reports.
func (b Build) Version() string { return version }

// ID returns the build ID that the library reports. Equal sources and policies have equal IDs.
func (b Build) ID() string { return b.id }

// Policies returns a copy of the policies in the build, sorted by name.
func (b Build) Policies() []Policy { return clonePolicies(b.policies) }

// Digest returns the SHA-256 of the source code in hexadecimal. A server stores source code
// byte for byte. It therefore runs this build if the code in its reply to FUNCTION LIST has the same
// digest.
func (b Build) Digest() string { return Digest(b.text) }

// Digest returns the SHA-256 of a library's source code in hexadecimal.
func Digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// New builds the library from its sources, with the policies of WithPolicies. It returns an error
// if the source code would exceed 2 MiB or a policy is invalid; the error names the policy. It does
// not parse limits: only the library can. Package policies calls the library to do so.
func New(opts ...Option) (Build, error) {
	var o options
	for _, opt := range opts {
		if opt == nil {
			return Build{}, errors.New("functions: an option is nil; leave it out")
		}
		opt(&o)
	}
	if len(o.policies) == 0 {
		return withoutPolicies()
	}
	return build(joined, o.policies)
}

// withoutPolicies builds the library without policies, once. Commands and tests ask for it often.
var withoutPolicies = sync.OnceValues(func() (Build, error) { return build(joined, nil) })

// joined joins the sources under src, once, without their comments: a server keeps the text in
// memory, and a change of a comment needs no deployment.
var joined = sync.OnceValues(func() (string, error) { return join(sources, withoutComments) })

// build stamps the text that join returns.
func build(join func() (string, error), policies []Policy) (Build, error) {
	text, err := join()
	if err != nil {
		return Build{}, err
	}
	return stamp(text, policies)
}

var (
	// comments matches lines that have only a comment, and comments after code. If there is a quotation
	// mark after --, it is left: the -- may be in a string.
	comments   = regexp.MustCompile(`(?m)^[ \t]*--.*\n|[ \t]+-- [^'"\n]*$`)
	blankLines = regexp.MustCompile(`\n{3,}`)
)

// withoutComments removes comments. The sources have no text or comment of several lines.
func withoutComments(body string) string {
	body = blankLines.ReplaceAllString(comments.ReplaceAllString(body+"\n", ""), "\n\n")
	return strings.Trim(body, "\n")
}

// join joins the sources under src, each changed by edit: the files in src, sorted by name, and then
// those in src/algorithms and src/verbs. Each file has its own scope, except the first. A file in src
// exports its functions in a table named after it: src/45_limits.lua fills `limits`. These tables
// are declared at the end of the first file.
func join(sources fs.FS, edit func(body string) string) (string, error) {
	var text strings.Builder
	fmt.Fprintf(&text, "#!lua name=%s\n-- Built from functions/src, where the comments are; do not edit: run `make generate`.\n", Name)
	for _, folder := range []string{"src", "src/algorithms", "src/verbs"} {
		names, err := fs.Glob(sources, path.Join(folder, "*.lua"))
		if err != nil {
			return "", err
		}
		if len(names) == 0 {
			return "", fmt.Errorf("functions: no .lua file in %s", folder)
		}
		for _, name := range names {
			content, err := fs.ReadFile(sources, name)
			if err != nil {
				return "", err
			}
			body := edit(strings.TrimRight(string(content), "\n"))
			if folder != "src" || moduleOf(name) != "library" {
				body = "do\n" + body + "\nend"
			}
			fmt.Fprintf(&text, "\n--@ %s\n%s\n", name, body)
			if folder == "src" && moduleOf(name) == "library" {
				for _, other := range names[1:] {
					fmt.Fprintf(&text, "local %s = {}\n", moduleOf(other))
				}
			}
		}
	}
	return text.String(), nil
}

// moduleOf returns the name of a source file without its directory, number or extension: "limits" for
// src/45_limits.lua.
func moduleOf(name string) string {
	module := strings.TrimSuffix(path.Base(name), ".lua")
	return strings.TrimLeft(module, "0123456789_")
}

// stamp writes the version, the policies and the build ID into the source code.
func stamp(text string, policies []Policy) (Build, error) {
	for _, mark := range []string{versionMark, policiesMark, buildIDMark} {
		if n := strings.Count(text, mark); n != 1 {
			return Build{}, fmt.Errorf("functions: the sources hold %s %d times, want once", mark, n)
		}
	}
	text = strings.Replace(text, versionMark, version, 1)
	policies, entries, err := bake(policies, mostText-len(text))
	if err != nil {
		return Build{}, err
	}
	text = strings.Replace(text, policiesMark, entries, 1) // entries contain no mark: see luastring
	id := Digest(text)[:12]
	return Build{text: strings.Replace(text, buildIDMark, id, 1), id: id, policies: policies}, nil
}
