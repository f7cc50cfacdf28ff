package cli

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/policies"
)

// inFolder creates a directory with the given files, and makes it the working directory.
func inFolder(t *testing.T, files map[string]string) {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		require(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	t.Chdir(folder)
}

const smallPolicies = `policies:
  calc: {limits: [resource: 10/m, consumer: 1/m]}
  export: {limit: 10/d, shadow: true, track: true}
`

var smallFiles = map[string]string{
	"policies.yaml":   smallPolicies,
	"doubtful.yaml":   "policies:\n  api: 10/s, 1000/m\n",
	"wrong.yaml":      "policies:\n  api: 10/x\n  b: -1/s\n",
	"canary.yaml":     "policies:\n  calc: {limits: [a: 9/m, b: 2/m], track: true, canary: {limits: [a: 7/m, b: 1/m], share: 0.5%, shadow: true}}\n  export: {limit: 10/d, canary: {limit: 9/d, share: 20%}}\n  off: {limits: [a: 5/s, b: 0/h], cost: 1}\n",
	"broken.yaml":     "policies:\n  api: {limits: 10/s}\n",
	"empty.yaml":      "policies:\n",
	"wrong_test.yaml": "policies: wrong.yaml\ntests:\n- name: x\n  calls:\n  - {take: [api, k], expect: {allowed: true}}\n",
	"good_test.yaml": `policies: policies.yaml
tests:
- name: one a minute
  calls:
  - {take: [calc, r, c], times: 2, expect: {allowed: 1, index: consumer}}
`,
	"bad_test.yaml": `policies: policies.yaml
tests:
- name: one a minute
  calls:
  - {at: 1s, take: [calc, r, c], expect: {remaining: 1, index: resource}}
- name: shadow
  calls:
  - {take: [export, e, u], expect: {allowed: true}}
`,
}

func buildOf(t *testing.T, text string) functions.Build {
	t.Helper()
	file := must[*policies.File](t)(policies.Parse("x", []byte(text)))
	build := must[functions.Build](t)(file.Build())
	return build
}

func TestPoliciesInTheLibrary(t *testing.T) {
	inFolder(t, smallFiles)
	build := buildOf(t, smallPolicies)
	run(t, nil, "build", "--policies", "policies.yaml").want(t, exitFine, build.Text(), "")
	run(t, nil, "build", "--policies", "policies.yaml", "-o", "r.lua").want(t, exitFine,
		"wrote r.lua: ratelimit "+functions.Version()+", build "+build.ID()+" with 2 policies, "+grouped(int64(len(build.Text())))+" bytes\n", "")
	var report buildReport
	if err := json.Unmarshal([]byte(run(t, nil, "build", "--policies", "policies.yaml", "--json").stdout), &report); err != nil || report.Policies != 2 || report.BuildID != build.ID() {
		t.Errorf("%v: %+v", err, report)
	}

	server := embedded.Run(t, embedded.WithTime(began))
	deployed := run(t, []string{redisURL(server.Addr())}, "deploy", "--policies", "policies.yaml")
	if deployed.code != exitFine || !strings.HasSuffix(deployed.stdout, "build "+build.ID()+"\n") {
		t.Errorf("%+v", deployed)
	}
	asked := func(code int, stdout string, args ...string) {
		t.Helper()
		run(t, []string{redisURL(server.Addr())}, args...).want(t, code, stdout, "")
	}
	asked(exitFine, "allowed  0 of 1 left for consumer9:{a} (@calc) · full again in 1 min\n", "take", "--policy", "calc", "calc:{a}", "consumer9:{a}")
	asked(exitDiffers, "would be denied  0 of 1 left for consumer9:{a} (@calc) · try again in 1 min · full again in 1 min\n", "take", "--dry-run", "--policy", "@calc", "calc:{a}", "consumer9:{a}")
	asked(exitFine, "allowed  10 of 10 left for e:{a} (@export) · full now · a shadow policy would deny it for e:{a}\n", "take", "--policy", "export", "e:{a}", "u:{a}", "--cost", "11")
	asked(exitFine, "allowed  0 of 10 left · full again in 1 d\n", "take", "e:{b}", "10/d", "--cost", "10")
	asked(exitFine, "would be allowed  0 of 10 left after it · full again in 1 d · a shadow policy would deny it for e:{b}, and allow it in 2 h 24 min\n", "take", "--dry-run", "e:{b}", "@export")
	asked(exitFine, `{
  "allowed": true,
  "limit": 10,
  "remaining": 0,
  "retry_after_ms": 0,
  "reset_after_ms": 86400000,
  "index": 1,
  "key": "e:{b}",
  "shadow": {
    "allowed": false,
    "retry_after_ms": 8640000,
    "index": 1
  }
}
`, "take", "--dry-run", "e:{b}", "@export", "--json")
}

func TestPoliciesThatAreRefused(t *testing.T) {
	inFolder(t, smallFiles)
	m := newMessages(t, "policies")
	for _, file := range []string{"none.yaml", "broken.yaml", "empty.yaml", "doubtful.yaml", "wrong.yaml"} {
		if file != "doubtful.yaml" {
			for _, command := range []string{"build", "deploy", "dev"} {
				m.fails(nil, command, "--policies", file)
			}
		}
		m.add(m.failsAfter(nil, "verify", "--policies", file))
	}
	m.fails(nil, "test", "wrong_test.yaml")
	m.fails(nil, "take", "--policy", "calc")
	m.fails(nil, "verify", "--policies", "policies.yaml", "--library", "x.lua")
}

func TestVerifyPolicies(t *testing.T) {
	inFolder(t, smallFiles)
	build := buildOf(t, smallPolicies)
	got := run(t, nil, "verify", "--policies", "policies.yaml")
	const listed = `policies.yaml: 2 policies

POLICY   KEY       LIMIT
@calc    resource  10/m
         consumer  1/m
@export  -         10/d   shadow, track

`
	if got.code != exitFine || got.stderr != "" || !strings.HasPrefix(got.stdout, listed+"ratelimit "+functions.Version()+", build "+build.ID()+" with 2 policies: loads, ") ||
		!strings.Contains(got.stdout, "\nok: ") {
		t.Errorf("%+v", got)
	}
	var report verifyReport
	if err := json.Unmarshal([]byte(run(t, nil, "verify", "--policies", "policies.yaml", "--json").stdout), &report); err != nil || !report.OK ||
		report.Digest != build.Digest() || report.Policies == nil || len(report.Policies.Policies) != 2 || len(report.Policies.Problems) != 0 {
		t.Errorf("%v: %+v", err, report)
	}
	const canaries = `canary.yaml: 3 policies

POLICY   KEY  LIMIT
@calc    a    9/m    track
         b    2/m
         a    7/m    canary for 0.5% of the keys, shadow
         b    1/m
@export  -    10/d
         -    9/d    canary for 20% of the keys
@off     a    5/s
         b    0/h

canary.yaml:4:29: policy off, b: 0/h never allows a call
`
	if got := run(t, nil, "verify", "--policies", "canary.yaml"); got.code != exitFine || !strings.HasPrefix(got.stdout, canaries) {
		t.Errorf("%+v", got)
	}
	report = verifyReport{}
	err := json.Unmarshal([]byte(run(t, nil, "verify", "--policies", "canary.yaml", "--json").stdout), &report)
	if want := (verifiedCanary{[]string{"7/m", "1/m"}, "0.5%", true}); err != nil || !report.OK || !reflect.DeepEqual(report.Policies.Policies[0].Canary, &want) ||
		len(report.Policies.Problems) != 0 || len(report.Policies.Notes) != 1 || report.Policies.Notes[0].Column != 29 {
		t.Errorf("%v: %+v", err, report)
	}
	lines := "policies:\n"
	for i := range 60 {
		lines += fmt.Sprintf("  P%d: 1/m\n", i)
	}
	require(t, os.WriteFile("many.yaml", []byte(lines), 0o666))
	if many := run(t, nil, "verify", "--policies", "many.yaml"); many.stderr != "ratelimit: many.yaml has more than 50 problems, listed on stdout\n" {
		t.Errorf("%+v", many)
	}
	failed := run(t, nil, "verify", "--policies", "wrong.yaml", "--json")
	report = verifyReport{}
	if err := json.Unmarshal([]byte(failed.stdout), &report); err != nil || failed.code != exitError || report.OK || len(report.Policies.Problems) != 2 ||
		report.Policies.Problems[1].Line != 3 || report.Policies.Problems[1].Column != 6 {
		t.Errorf("%v: %+v", err, failed)
	}
}

func TestTest(t *testing.T) {
	inFolder(t, smallFiles)
	run(t, nil, "test", "good_test.yaml").want(t, exitFine, "ok    good_test.yaml: 1 test, 2 calls\n", "")
	const failures = `ok    good_test.yaml: 1 test, 2 calls
FAIL  one a minute
  bad_test.yaml:5:54: take @calc r c at 1s
    remaining: expected 1
               got      0
  bad_test.yaml:5:64: take @calc r c at 1s
    index: expected 1 (resource)
           got      2 (consumer)
FAIL  bad_test.yaml: 2 tests, 2 calls, 1 failed
`
	m := newMessages(t, "tests of policies")
	wantText(t, "stdout", m.failsAfter(nil, "test", "good_test.yaml", "bad_test.yaml", "--junit", "r.xml"), failures)
	content := must[[]byte](t)(os.ReadFile("r.xml"))
	var suites struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
	}
	if err := xml.Unmarshal(content, &suites); err != nil || suites.Tests != 3 || suites.Failures != 1 {
		t.Errorf("%v: %s", err, content)
	}
	got := run(t, nil, "test", "bad_test.yaml", "--json")
	var report testReport
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.code != exitError || report.OK || report.Tests != 2 || report.Failed != 1 ||
		len(report.Files) != 1 || len(report.Files[0].Tests[0].Failures) != 2 || report.Files[0].Tests[0].Failures[0].Line != 5 {
		t.Errorf("%v: %+v", err, got)
	}
	run(t, nil, "test", "bad_test.yaml", "--run", "^sha").want(t, exitFine, "ok    bad_test.yaml: 1 test, 1 call\n", "")

	for _, args := range []string{"", "none.yaml", "policies.yaml", "good_test.yaml --run (", "good_test.yaml --run nothing", "good_test.yaml --junit none/r.xml"} {
		m.fails(nil, append([]string{"test"}, strings.Fields(args)...)...)
	}
}
