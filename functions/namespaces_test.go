package functions

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func inSpace(name, limit string) Policy {
	return Policy{Name: name, Limits: []PolicyLimit{{Limit: limit}}}
}

func TestNamespaceNames(t *testing.T) {
	for name, want := range map[string]string{
		"api":          "",
		"payments/api": "",
		"0.a_-/-._":    "",
		strings.Repeat("a", 64) + "/" + strings.Repeat("b", 64): "",
		"/api":         `functions: policy "/api": the namespace "" is not 1 to 64 of a-z 0-9 _ . -, with a letter or a digit at the beginning`,
		"../api":       `functions: policy "../api": the namespace ".." is not 1 to 64 of a-z 0-9 _ . -, with a letter or a digit at the beginning`,
		"./api":        `functions: policy "./api": the namespace "." is not 1 to 64 of a-z 0-9 _ . -, with a letter or a digit at the beginning`,
		"Payments/api": `functions: policy "Payments/api": the namespace "Payments" is not 1 to 64 of a-z 0-9 _ . -, with a letter or a digit at the beginning`,
		"zahlungé/a":   `functions: policy "zahlungé/a": the namespace "zahlungé" is not 1 to 64 of a-z 0-9 _ . -, with a letter or a digit at the beginning`,
		strings.Repeat("a", 65) + "/b": `functions: policy "` + strings.Repeat("a", 60) + `...": the namespace "` + strings.Repeat("a", 60) +
			`..." is not 1 to 64 of a-z 0-9 _ . -, with a letter or a digit at the beginning`,
		"payments/":      `functions: the policy name "" is not 1 to 64 of a-z 0-9 _ . -`,
		"payments/Api":   `functions: the policy name "Api" is not 1 to 64 of a-z 0-9 _ . -`,
		"payments/a/b":   `functions: the policy name "a/b" is not 1 to 64 of a-z 0-9 _ . -`,
		"payments/a api": `functions: the policy name "a api" is not 1 to 64 of a-z 0-9 _ . -`,
	} {
		_, err := New(WithPolicies(inSpace(name, "1/m")))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q:\n%s\nwant:\n%s", name, got, want)
		}
	}
}

func TestRebuild(t *testing.T) {
	mine := []Policy{inSpace("payments/api", "5/m"), {Name: "search/x", Limits: []PolicyLimit{{"a", "1/m"}, {"b", "2/m"}}, Track: true,
		Canary: &Canary{[]string{"1/h", "2/h"}, 50, true, 0}}, inSpace("api", "1/s")}
	with := redistest.Must[Build](t)(New(WithPolicies(mine...)))
	if with.Policies()[1].Namespace() != "payments" || with.Policies()[0].Namespace() != "" {
		t.Errorf("%+v", with.Policies())
	}
	for _, from := range []string{Source(), with.Text()} {
		for _, want := range []struct {
			policies []Policy
			text     string
		}{{nil, Source()}, {mine, with.Text()}} {
			if got, err := Rebuild(from, want.policies); err != nil || got != want.text {
				t.Errorf("%v: %s is not %s", err, Digest(got), Digest(want.text))
			}
		}
	}
	found, err := ReadPolicies(with.Text())
	if err != nil || !reflect.DeepEqual(found, with.Policies()) {
		t.Errorf("%v, %+v", err, found)
	}

	// A library of another version keeps its code and its version.
	old := strings.Replace(with.Text(), "local VERSION = '"+Version()+"'", "local VERSION = '0.0.1'", 1)
	got, err := Rebuild(old, nil)
	if err != nil || !strings.Contains(got, "local VERSION = '0.0.1'") || strings.Contains(got, "payments") || strings.Contains(got, with.ID()) {
		t.Errorf("%v", err)
	}
	for _, wrong := range []string{"", "#!lua name=ratelimit\n", strings.Replace(Source(), "local BUILD_ID = '", "local ID = '", 1)} {
		if got, err := Rebuild(wrong, mine); err == nil || got != "" {
			t.Errorf("%.40q is rebuilt", wrong)
		}
	}
}

// TestManyNamespaces checks that a build can have ten thousand namespaces, and that the error for a
// library that is too large names the largest policies.
func TestManyNamespaces(t *testing.T) {
	var many []Policy
	for i := range MostPolicies {
		many = append(many, inSpace(fmt.Sprintf("team%d/api", i), "100/m"))
	}
	build := redistest.Must[Build](t)(New(WithPolicies(many...)))
	again, err := Rebuild(Source(), many)
	if err != nil || again != build.Text() {
		t.Errorf("%v", err)
	}
	if _, err := Rebuild(Source(), append(many, inSpace("one-more/api", "1/m"))); err == nil || err.Error() != "functions: 10001 policies; a build has at most 10000" {
		t.Error(err)
	}
	for i := range many {
		many[i].Name = fmt.Sprintf("%064d/%064d", i, i)
		many[i].Limits[0].Limit = "sliding_window 100/m buckets=10, 2000/h buckets=10, 10000/d buckets=10"
	}
	if _, err := Rebuild(Source(), many); err == nil || !strings.Contains(err.Error(), "a build has at most 2097152; the largest are") {
		t.Error(err)
	}
}
