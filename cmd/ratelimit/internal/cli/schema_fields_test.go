package cli

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/ratelimit-functions/ratelimit/policies"
)

func compileSchema(t *testing.T, text string) *jsonschema.Schema {
	t.Helper()
	document := must[any](t)(jsonschema.UnmarshalJSON(strings.NewReader(text)))
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	require(t, c.AddResource("schema.json", document))
	schema := must[*jsonschema.Schema](t)(c.Compile("schema.json"))
	return schema
}

// valid reports whether a schema accepts a YAML document. ok is false if text is not YAML.
func valid(schema *jsonschema.Schema, text string) (accepted, ok bool) {
	var document yaml.Node
	if err := yaml.Load([]byte(text), &document); err != nil || len(document.Content) != 1 {
		return false, false
	}
	return schema.Validate(plain(document.Content[0], 0)) == nil, true
}

// plain converts a node to the plain value that an editor validates against a schema.
func plain(n *yaml.Node, depth int) any {
	switch {
	case depth > 100:
		return nil
	case n.Kind == yaml.AliasNode:
		return plain(n.Alias, depth+1)
	case n.Kind == yaml.MappingNode:
		object := map[string]any{}
		for pair := range slices.Chunk(n.Content, 2) {
			object[pair[0].Value] = plain(pair[1], depth+1)
		}
		return object
	case n.Kind == yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			list[i] = plain(item, depth+1)
		}
		return list
	case n.ShortTag() == "!!timestamp":
		return n.Value
	}
	var value any
	if err := n.Decode(&value); err != nil {
		return n.Value
	}
	return value
}

// beyondSchemas matches the problems that a schema cannot express.
var beyondSchemas = regexp.MustCompile(strings.Join([]string{
	`is given twice`, `aliases expand`, `the library would have`, `number of costs is`, `number of limits is \d+ and that of the canary`,
	`a limit of several has no key name`, `the canary's limit \d+ is for the key`, `are for one kind|both limits of one kind`, `concurrency with other limits`,
	`track is for ratelimit_take`, `a lease has no cost`, `bytes; it has at most`, `policy p.*: "`, `policy [a-z.]+(, [a-z]+)?: `, // errors from the library about a limit
	`the engine does not|keys and limits`, `YAML|indentation|UTF|control character|directive`,
	`give a whole number from 0 to`, // such as 0x10
	// problems in a file of tests
	`no policy "`, `is before the previous call`, `has no canary`, `the policy .* has \d+$`, `longer than 36500d`, `file makes more than`, `no such file`,
	`there are only \d+ calls`, `needs a call with up_to`, `write the number of a key`, `write true or false`, `years 2002 to 2200`, `lease id|takes \d+ key`,
}, "|"))

// testedPolicies are the policies that the files of tests name.
const testedPolicies = `policies:
  api: 2/s
  calc: {limits: [resource: 10/s, consumer: 1/s]}
  try: {limit: 1/s, shadow: true}
  jobs: concurrency 1 lease=10s
  part: {limit: 5/s, canary: {limit: 2/s, share: 50%, shadow: true}}
  part.jobs: {limit: concurrency 2 lease=10s, canary: {limit: concurrency 1 lease=10s, share: 50%}}
`

// oneTest is the beginning of a test file, up to the list of calls.
const oneTest = "policies: p.yaml\ntests:\n- name: one\n  calls:\n"

// problemLines returns the problems in a file, one per line. If err is not Problems, it returns err as a string.
func problemLines(err error) []string {
	problems, ok := errors.AsType[policies.Mistakes](err)
	if !ok {
		return []string{err.Error()}
	}
	var list []string
	for _, problem := range problems {
		list = append(list, problem.Error())
	}
	return list
}

// inputs returns the input of each case in a file of package policies.
func inputs(t *testing.T, name string) []string {
	t.Helper()
	content := must[[]byte](t)(os.ReadFile(filepath.Join("../../../../policies/testdata", name)))
	var list []string
	for _, c := range strings.Split(strings.TrimPrefix(string(content), "== "), "\n\n== ") {
		_, text, _ := strings.Cut(c, "\n")
		text, _, _ = strings.Cut("\n"+text, "\n=> ")
		list = append(list, strings.TrimPrefix(text, "\n"))
	}
	return list
}

// agree checks that a schema accepts what the parser accepts, and that the parser accepts what the
// schema accepts, unless a schema cannot express the problem.
func agree(t *testing.T, schema *jsonschema.Schema, text string, parse func(string) error) {
	t.Helper()
	accepted, ok := valid(schema, text)
	err := parse(text)
	if !ok {
		if err == nil {
			t.Errorf("a text that is no YAML is accepted:\n%s", text)
		}
		return
	}
	switch {
	case err == nil && !accepted:
		t.Errorf("only the parser accepts:\n%s", text)
	case err != nil && accepted && !beyondSchemas.MatchString(problemLines(err)[0]):
		t.Errorf("only the schema accepts:\n%s\nthe parser says: %v", text, err)
	}
}

func parsePolicies(text string) error {
	file, err := policies.Parse("p.yaml", []byte(text))
	if err != nil {
		return err
	}
	found, err := file.Findings()
	if err == nil && len(found.Wrong) > 0 {
		err = found.Wrong
	}
	return err
}

// fieldsOf returns the fields that the parser knows, from its error for an unknown field.
func fieldsOf(t *testing.T, err error) []string {
	t.Helper()
	for _, line := range problemLines(err) {
		if parts := regexp.MustCompile(`unknown field "zzz"; .* has (.*)$`).FindStringSubmatch(line); parts != nil {
			return strings.Split(parts[1], ", ")
		}
	}
	t.Fatalf("%v names no fields", err)
	return nil
}

// propertiesOf returns the properties of the part of a schema at path.
func propertiesOf(schema *jsonschema.Schema, path ...string) []string {
	for _, name := range path {
		next := schema.Properties[name]
		if next == nil {
			next, _ = schema.AdditionalProperties.(*jsonschema.Schema)
		}
		for next != nil && next.Ref != nil {
			next = next.Ref
		}
		schema = next
		for _, any := range schema.AnyOf {
			for any.Ref != nil {
				any = any.Ref
			}
			if len(any.Properties) > 0 {
				schema = any
			}
		}
		if items, ok := schema.Items2020, schema.Items2020 != nil; ok {
			for schema = items; schema.Ref != nil; {
				schema = schema.Ref
			}
		}
	}
	return slices.Sorted(maps.Keys(schema.Properties))
}

func TestSchemaOfPolicies(t *testing.T) {
	schema := compileSchema(t, policies.Schema)
	for _, tt := range []struct {
		text string
		path []string
	}{
		{"policies:\n  p: {limit: 1/m, zzz: 1}", []string{"policies", "p"}},
		{"policies:\n  p: {limit: 1/m, canary: {limit: 1/m, share: 1%, zzz: 1}}", []string{"policies", "p", "canary"}},
	} {
		fields := fieldsOf(t, parsePolicies(tt.text))
		slices.Sort(fields)
		if properties := propertiesOf(schema, tt.path...); !slices.Equal(fields, properties) {
			t.Errorf("%v: the parser has %v, and the schema %v", tt.path, fields, properties)
		}
	}

	for _, text := range inputs(t, "policies.txt") {
		agree(t, schema, text, parsePolicies)
	}
	fields := append(fieldsOf(t, parsePolicies("policies:\n  p: {limit: 1/m, zzz: 1}")), "zzz")
	values := []string{"100/m", `""`, "~", "5", "-1", "1.5", "true", "yes", "[]", "{}", "[a: 1/m]", "[a: 1/m, b: 2/m]", "[{a: 1/m, b: 2/m}]", "[A: 1/m]", "[5]", "[1, 2]", `"@api"`,
		"5%", "0%", "0.0%", "0.1%", "100.0%", "100.1%", "005.5%", "5.55%", "{limit: 1/m, share: 5%}", "{limits: [a: 1/m], share: 5%}", "{limit: 1/m}", "{share: 5%}",
		"{limit: 1/m, share: 5%, shadow: x}", "{limit: 1/m, limits: [a: 1/m], share: 5%}", "{limit: 1/m, share: 5}", "9007199254740993", "2026-01-01", "[[1]]", "text"}
	good := map[string]string{"description": "text", "limit": "1/m", "limits": "[a: 1/m]", "cost": "1", "shadow": "true", "track": "false", "canary": "{limit: 1/m, share: 5%}", "zzz": "1"}
	for _, value := range values {
		agree(t, schema, "policies:\n  p: "+value, parsePolicies)
		agree(t, schema, "policies: "+value, parsePolicies)
		agree(t, schema, value, parsePolicies)
		agree(t, schema, "policies:\n  p: 1/m\nmore: "+value, parsePolicies)
		for _, field := range fields {
			agree(t, schema, fmt.Sprintf("policies:\n  p: {%s: %s}", field, value), parsePolicies)
			if !strings.HasPrefix(field, "limit") {
				agree(t, schema, fmt.Sprintf("policies:\n  p: {limit: 1/m, %s: %s}", field, value), parsePolicies)
			}
		}
		agree(t, schema, fmt.Sprintf("policies:\n  p: {limit: 1/m, canary: {limit: 2/m, share: %s}}", value), parsePolicies)
		agree(t, schema, fmt.Sprintf("policies:\n  p: {limit: 1/m, canary: {limit: %s, share: 5%%}}", value), parsePolicies)
	}
	for _, one := range fields {
		for _, other := range fields {
			if one != other {
				agree(t, schema, fmt.Sprintf("policies:\n  p: {%s: %s, %s: %s}", one, good[one], other, good[other]), parsePolicies)
			}
		}
	}
	for _, name := range []string{"api", "Api", "a b", "5", "1.5", "true", "a/b", "..", `""`, "~", strings.Repeat("a", 64), strings.Repeat("a", 65)} {
		agree(t, schema, "policies:\n  "+name+": 1/m", parsePolicies)
		agree(t, schema, "policies:\n  p: {limits: [{"+name+": 1/m}]}", parsePolicies)
	}
	for _, limit := range []string{"gcra 10/s burst=20, 1000/h", "  1/5m ", "1/m,2/h", "token_bucket 5/10s  burst=7", "leaky_bucket 5/s burst=10", "sliding_window 100/m buckets=10",
		"fixed_window 10/d align=clock", "fixed_window 2000000/mo align=clock from=31 zone=+05:30", "fixed_window 1/w align=clock from=sunday", "fixed_window 1/y align=clock", "0/h",
		"sliding_log 5/m, 20/h", "concurrency 2 lease=30s", "concurrency  2  lease=1d", strings.Repeat("1/m, ", 15) + "2/m",
		"100", "100/x", "100/", "/m", "gcra", "sometimes 1/m", "1/m burst", "1/m 2/m", "1/m,", "concurrency 2", "concurrency lease=1s", "concurrency 2/m", "-1/m", "1.5/m", "1/m @b"} {
		agree(t, schema, fmt.Sprintf("policies:\n  p: %q", limit), parsePolicies)
	}
	content, err := os.ReadFile("../../../../examples/policies.yaml")
	if err != nil || !strings.HasPrefix(string(content), "# yaml-language-server: $schema=../policies/policies.schema.json\n") {
		t.Errorf("%v, %.100s", err, content)
	}
	agree(t, schema, string(content), parsePolicies)
}

func TestSchemaOfTests(t *testing.T) {
	schema := compileSchema(t, policies.TestSchema)
	cases := inputs(t, "tests.txt")
	content, err := os.ReadFile("../../../../examples/policies_test.yaml")
	if err != nil || !strings.HasPrefix(string(content), "# yaml-language-server: $schema=../policies/tests.schema.json\n") {
		t.Errorf("%v, %.100s", err, content)
	}
	if accepted, _ := valid(schema, string(content)); !accepted {
		t.Error("the schema refuses the example")
	}
	folder := t.TempDir()
	for name, text := range map[string]string{"p.yaml": testedPolicies, "wrong.yaml": "policies:\n  a: 1/x\n", "broken.yaml": "policies: [\n"} {
		require(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	t.Chdir(folder)
	parse := func(text string) error {
		require(t, os.WriteFile("t.yaml", []byte(text), 0o600))
		_, err := policies.ReadTests("t.yaml", "")
		return err
	}
	if parse("tests: []") == nil {
		t.Error("a file without policies is accepted")
	}
	const call = oneTest + "  - {take: [api, k], "
	for _, tt := range []struct {
		text string
		path []string
	}{
		{"policies: p.yaml\ntests: []\nzzz: 1", nil},
		{"policies: p.yaml\ntests: [{name: x, zzz: 1}]", []string{"tests"}},
		{call + "zzz: 1}", []string{"tests", "calls"}},
	} {
		fields := fieldsOf(t, parse(tt.text))
		slices.Sort(fields)
		if properties := propertiesOf(schema, tt.path...); !slices.Equal(fields, properties) {
			t.Errorf("%v: the parser has %v, and the schema %v", tt.path, fields, properties)
		}
	}
	for _, text := range cases {
		if strings.HasPrefix(text, " ") {
			text = oneTest + text
		}
		agree(t, schema, text, parse)
	}
	values := []string{"1", "0", "-1", "1.5", "true", "text", `""`, "~", "[]", "{}", "[1, 2]", "[api, k]", "[api]", "[jobs, k, id]", "[[api], k]", "1s", "1m30s", "90", "never", "1.5s",
		"{allowed: true}", "{allowed: 1}", "{error: RATELIMIT}", "{error: x, allowed: true}", "{changed: 1}", "{each: {1: {remaining: 1}}}", "{each: {1: {index: 1}}}", "{zzz: 1}",
		"{retry_after: never}", "{reset_after: never}", "{reset_after: 1s}", "{index: 1}", "{index: 0}", "{index: consumer}", "{taken: 1}", "{would_allowed: 1}", "1000001"}
	verbs := map[string]string{"take": "[api, k]", "peek": "[api, k]", "refund": "[api, k]", "acquire": "[jobs, k, id]", "renew": "[jobs, k, id]", "release": "[jobs, k, id]",
		"reset": "[k]", "block": "[k], for: 1s", "unblock": "[k]",
		"override": "[k], limit: 5/m, for: 1s", "override_end": "[k]"}
	for _, value := range values {
		agree(t, schema, "policies: "+value+"\ntests: [{name: x, calls: [{reset: [k]}]}]", parse)
		agree(t, schema, "policies: p.yaml\ntests: "+value, parse)
		for _, field := range []string{"name", "start", "calls"} {
			all := map[string]string{"name": "x", "calls": "[{reset: [k]}]"}
			all[field] = value
			text := ""
			for name, value := range all {
				text += ", " + name + ": " + value
			}
			agree(t, schema, "policies: p.yaml\ntests: [{"+text[2:]+"}]", parse)
		}
		for verb := range verbs {
			agree(t, schema, oneTest+"  - {"+verb+": "+value+"}", parse)
		}
	}
	for verb, words := range verbs {
		for _, field := range []string{"at", "cost", "up_to", "force", "canary", "limit", "for", "times", "expect", "zzz"} {
			for _, value := range values {
				if strings.Contains(words, field+":") || !slices.Contains([]string{"take", "release", "block", "override"}, verb) && field != "expect" {
					continue
				}
				agree(t, schema, fmt.Sprintf("%s  - {%s: %s, %s: %s}", oneTest, verb, words, field, value), parse)
			}
			for _, other := range []string{"force: true", "up_to: 5", "force: false", "peek: [api, k]"} {
				agree(t, schema, fmt.Sprintf("%s  - {%s: %s, %s: 1, %s}", oneTest, verb, words, field, other), parse)
			}
		}
	}
}
