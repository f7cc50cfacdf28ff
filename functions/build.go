package functions

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Name is the library's name on the server.
const Name = "ratelimit"

// Contract is the version of the wire contract (CONTRACT.md) that the library speaks.
const Contract = 1

// version is the library's, and the command's: both are released together. The tag of a release is v and this.
const version = "0.1.0"

// Where the build writes what only it knows, in src/00_library.lua; policiesMark is in src/45_policies.lua.
const (
	versionMark = "@VERSION@"
	buildIDMark = "@BUILD_ID@"
)

//go:embed src
var sources embed.FS

//go:embed ratelimit.lua
var source string

// Source returns the library's text without policies, as functions/ratelimit.lua has it.
func Source() string { return source }

// Version returns the library's version, as in "0.1.0".
func Version() string { return version }

// BuildID returns the build id of Source: the first 12 hexadecimal digits of a SHA-256 over the sources, the version
// and the policies. ratelimit_info returns it.
func BuildID() string {
	build, err := New()
	if err != nil {
		// Not for a caller to meet: the sources are part of this program, and a test builds them.
		panic("functions: the embedded sources do not build: " + err.Error())
	}
	return build.ID()
}

// Build is one library text, ready to be loaded. It is immutable and may be shared; the zero value is an empty text.
type Build struct {
	text     string
	id       string
	policies []Policy
}

// Text returns the library as FUNCTION LOAD takes it.
func (b Build) Text() string { return b.text }

// Version returns the version that the text reports of itself.
func (b Build) Version() string { return version }

// ID returns the build id that the text reports of itself: equal sources and policies give an equal id.
func (b Build) ID() string { return b.id }

// Policies returns the policies that the text holds, sorted by name. The slice is the caller's.
func (b Build) Policies() []Policy { return clonePolicies(b.policies) }

// Digest returns the SHA-256 of the text in hexadecimal. A server stores a library byte for byte, so that an equal
// digest of what it lists means that it runs this build.
func (b Build) Digest() string { return Digest(b.text) }

// Digest returns the SHA-256 of a library text in hexadecimal.
func Digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// New builds the library from its sources, with the policies that WithPolicies names. It fails for a policy that cannot
// be written, and names it, and for a text of more than 2 MiB; whether a limit can be read is for the library to say (package
// policies asks it).
func New(opts ...Option) (Build, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	return build(sources, o.policies)
}

// build joins the sources under src: the files of src itself by name, then those of src/algorithms and of src/verbs.
// Each has a scope of its own, but for the first, which opens the library. What a file of src offers to the others it
// puts into the table of its name: src/40_limits.lua fills `limits`.
func build(sources fs.FS, policies []Policy) (Build, error) {
	var text strings.Builder
	fmt.Fprintf(&text, "#!lua name=%s\n-- Built from functions/src; do not edit. `make generate` builds it anew.\n", Name)
	for _, folder := range []string{"src", "src/algorithms", "src/verbs"} {
		names, err := fs.Glob(sources, path.Join(folder, "*.lua"))
		if err != nil {
			return Build{}, err
		}
		if len(names) == 0 {
			return Build{}, fmt.Errorf("functions: no .lua file in %s", folder)
		}
		for _, name := range names {
			content, err := fs.ReadFile(sources, name)
			if err != nil {
				return Build{}, err
			}
			body := strings.TrimRight(string(content), "\n")
			if module := moduleOf(name); module != "library" {
				body = "do\n" + body + "\nend"
				if folder == "src" {
					body = "local " + module + " = {}\n" + body
				}
			}
			fmt.Fprintf(&text, "\n--@ %s\n%s\n", name, body)
		}
	}
	return stamp(text.String(), policies)
}

// moduleOf returns the name of a source file without folder, number and ending: limits of src/40_limits.lua.
func moduleOf(name string) string {
	module := strings.TrimSuffix(path.Base(name), ".lua")
	return strings.TrimLeft(module, "0123456789_")
}

// stamp writes the version, the policies and the build id into the text.
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
	text = strings.Replace(text, policiesMark, entries, 1) // what is written there holds no mark: see luastring
	id := Digest(text)[:12]
	return Build{text: strings.Replace(text, buildIDMark, id, 1), id: id, policies: policies}, nil
}
