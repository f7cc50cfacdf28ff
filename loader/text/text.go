// Package text reads, writes and joins the text of a node: the source code of the ratelimit library
// with a header that says what was deployed. ../PROTOCOL.md describes both. Package loader uses it;
// other programs need it only to read what a server holds.
package text

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// MaxNumber is the highest number of a part: the end of the year 2999 in ms since the epoch. A
// higher number is not credible, and would leave no room for later ones.
const MaxNumber = 32503679999999

// MaxLog is the number of deployments that a part remembers.
const MaxLog = 10

// Entry describes a deployment.
type Entry struct {
	Number  int64    `json:"number"`
	AtMS    int64    `json:"at"`                // by the leader's clock, in ms since the epoch
	Who     string   `json:"who"`               // user, host and process
	Digest  string   `json:"digest,omitempty"`  // the beginning of the value's digest; "" for a deletion
	Changed []string `json:"changed,omitempty"` // names of policies that it added, changed or removed, and "code"; not all if there are many
	More    int      `json:"more,omitempty"`    // number of names that Changed omits
	Back    bool     `json:"back,omitempty"`    // whether it was a rollback
}

// Part is what a text says about one namespace.
type Part struct {
	Number   int64  // 0 if no deployment put the value there
	Value    string // see Text.Parts; "" is a tombstone, or nothing if Number is 0
	Replaced string // the value that the deployment replaced, or ""
	Log      []Entry

	line string // the part as it stands in a header, without the value; "" if Number is 0
}

// Text is the text of a node.
type Text struct {
	// Parts holds the parts by namespace. The value of the namespace "" is the source code of the
	// library, with the policies that have no namespace. The value of another namespace is its
	// policies as a JSON object per line, sorted by name.
	Parts map[string]Part

	// Highest is the highest number in the header, even of a part that counts as number 0.
	Highest int64

	// Name is unique to the call that wrote the text, or "" if the text has no header. The text
	// registers the function ratelimit_by_<Name>.
	Name string
}

// Compare orders two parts of the namespace: by number and then by content. A part that is not there
// is the lowest. Of two parts with number 0, the newer version is the higher one.
func Compare(a, b Part) int {
	if order := cmp.Or(cmp.Compare(a.Number, b.Number), strings.Compare(a.line, b.line)); order != 0 || a.Number > 0 || a.Value == b.Value {
		return order // a line has the digest of its value
	}
	return cmp.Or(compareVersions(a.Value, b.Value), strings.Compare(withoutBuildID(a.Value), withoutBuildID(b.Value)))
}

func compareVersions(a, b string) int {
	of := func(value string) (int, string) {
		contract, _ := strconv.Atoi(first(contractLine, value))
		return contract, "v" + first(versionLine, value)
	}
	contractA, versionA := of(a)
	contractB, versionB := of(b)
	return cmp.Or(cmp.Compare(contractA, contractB), semver.Compare(versionA, versionB))
}

// Join is rule 2: it returns the text with the higher part of each namespace. It is commutative, associative and
// idempotent. The result has no Name.
func Join(a, b Text) Text {
	joined := Text{Parts: maps.Clone(a.Parts), Highest: max(a.Highest, b.Highest)}
	if joined.Parts == nil {
		joined.Parts = map[string]Part{}
	}
	for namespace, part := range b.Parts {
		if Compare(joined.Parts[namespace], part) < 0 {
			joined.Parts[namespace] = part
		}
	}
	return joined
}

// Within reports whether a has no part that is higher than that of b.
func Within(a, b Text) bool {
	for namespace, part := range a.Parts {
		if Compare(part, b.Parts[namespace]) > 0 {
			return false
		}
	}
	return true
}

// Equal reports whether a and b have the same parts.
func Equal(a, b Text) bool { return Within(a, b) && Within(b, a) }

// With returns t with other parts.
func (t Text) With(parts map[string]Part) Text {
	next := Join(t, Text{})
	for namespace, part := range parts {
		if part.Number > 0 {
			r := record{Namespace: namespace, Number: part.Number, Digest: Digest(part.Value), Log: part.Log}
			part.line = pack(string(marshal(r)) + "\n" + difference(part.Value, part.Replaced))
		}
		next.Parts[namespace] = part
		next.Highest = max(next.Highest, part.Number)
	}
	return next
}

// Namespaces returns the namespaces of the parts, sorted.
func (t Text) Namespaces() []string { return slices.Sorted(maps.Keys(t.Parts)) }

// Policies returns the policies in the value of a namespace other than "".
func Policies(value string) ([]functions.Policy, error) {
	var list []functions.Policy
	for line := range strings.Lines(value) {
		var p functions.Policy
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// marshal returns v as JSON. v has only strings, numbers and booleans.
func marshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("text: a value that JSON cannot represent: " + err.Error())
	}
	return text
}

// ValueOf returns the value of a namespace other than "" that has the policies.
func ValueOf(policies []functions.Policy) string {
	sorted := slices.Clone(policies)
	slices.SortFunc(sorted, func(a, b functions.Policy) int { return cmp.Compare(a.Name, b.Name) })
	var b strings.Builder
	for _, p := range sorted {
		b.Write(marshal(p))
		b.WriteByte('\n')
	}
	return b.String()
}

// Body returns the source code of the library with all policies, without the header, or "" if the
// code is a tombstone or not there. If the code has no namespaces, it is the value of "" byte for
// byte. Body fails if the code cannot hold the policies of all namespaces.
func (t Text) Body() (string, error) {
	code := t.Parts[""].Value
	var policies []functions.Policy
	for _, namespace := range t.Namespaces() {
		if namespace == "" {
			continue
		}
		list, err := Policies(t.Parts[namespace].Value)
		if err != nil {
			return "", err
		}
		policies = append(policies, list...)
	}
	if code == "" || len(policies) == 0 {
		return code, nil
	}
	own, err := functions.ReadPolicies(code)
	if err != nil {
		return "", err
	}
	return functions.Rebuild(code, append(own, policies...))
}

// Sorted returns the code with its policies in the order and form in which Body writes them if there are
// namespaces. A digest does not tell the two apart by their build IDs, so Sorted returns the code itself
// if they differ in nothing else, or if it cannot take policies.
func Sorted(code string) string {
	own, err := functions.ReadPolicies(code)
	if err != nil {
		return code
	}
	sorted, err := functions.Rebuild(code, own)
	if err != nil || Digest(sorted) == Digest(code) {
		return code
	}
	return sorted
}

// split returns the values of a body by namespace.
func split(body string) (map[string]string, error) {
	values := map[string]string{}
	if body == "" {
		return values, nil
	}
	all, err := functions.ReadPolicies(body)
	if err != nil {
		if namespaced.MatchString(body) {
			return nil, fmt.Errorf("the policies of namespaces in it cannot be read: %w", err)
		}
		return map[string]string{"": body}, nil
	}
	of := map[string][]functions.Policy{"": {}}
	for _, p := range all {
		of[p.Namespace()] = append(of[p.Namespace()], p)
	}
	if values[""] = body; len(of) > 1 {
		if values[""], err = functions.Rebuild(body, of[""]); err != nil {
			return nil, err
		}
	}
	for namespace, list := range of {
		if namespace != "" {
			values[namespace] = ValueOf(list)
		}
	}
	return values, nil
}

// namespaced matches the name of a policy in a namespace, even in source code that ReadPolicies
// cannot parse.
var namespaced = regexp.MustCompile(`(?m)^\s*\[['"][a-z0-9_.-]+/`)

// Digest returns the digest of a part's value, or "" for a tombstone.
func Digest(value string) string {
	if value == "" {
		return ""
	}
	return functions.Digest(withoutBuildID(value))
}

// withoutBuildID returns the value without the build ID, which changes if policies of namespaces are
// put into the code and taken out again.
func withoutBuildID(value string) string {
	if !strings.Contains(value, "\nlocal POLICIES = {") {
		return value // it cannot take policies
	}
	before, rest, _ := strings.Cut(value, "\nlocal BUILD_ID = '")
	_, after, found := strings.Cut(rest, "'")
	if !found {
		return value
	}
	return before + "\n" + after
}

// ID returns a text that is equal for equal parts.
func (p Part) ID() string { return p.line + "\n" + withoutBuildID(p.Value) }
