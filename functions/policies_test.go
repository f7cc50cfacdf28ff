package functions

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"runtime"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/luastring"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func one(name, limit string) Policy {
	return Policy{Name: name, Limits: []PolicyLimit{{Limit: limit}}}
}

func withCanary(share int, limits ...string) Policy {
	return Policy{Name: "a", Limits: one("", "1/m").Limits, Canary: &Canary{Limits: limits, Share: share}}
}

var mixed = []Policy{
	{Name: "calc", Limits: []PolicyLimit{{"resource", "1000/m"}, {"consumer", "sliding_log 3/10s, 100/h"}}, Shadow: true, Track: true},
	one("api", "gcra 10/s burst=20"),
	{Name: "a.b-c_9", Limits: []PolicyLimit{{"who", "100/m"}}, Track: true},
	{Name: "s", Limits: []PolicyLimit{{Limit: "100/m"}}, Shadow: true},
	{Name: "t", Limits: []PolicyLimit{{Limit: "100/m"}}, Canary: &Canary{Limits: []string{"60/m"}, Share: 50}},
	{Name: "u", Limits: []PolicyLimit{{"a", "1/m"}, {"b", "2/m"}}, Shadow: true, Track: true, Canary: &Canary{Limits: []string{"3/m", "4/m, 5/h"}, Share: 1000}},
	{Name: "v", Limits: []PolicyLimit{{Limit: "100/m"}}, Track: true, Canary: &Canary{Limits: []string{"60/m"}, Share: 1, Shadow: true}},
	{Name: "w", Limits: []PolicyLimit{{Limit: "5/m"}}, Shadow: true, Track: true, AnyClass: true, Canary: &Canary{Limits: []string{"6/m"}, Share: 1},
		Penalty: &Penalty{time.Minute, time.Hour, 24 * time.Hour}, Warn: 80},
	{Name: "x", Limits: []PolicyLimit{{Limit: "5/m"}}, Warn: 100},
}

func TestABuildWithPoliciesCanBeReadBack(t *testing.T) {
	build := redistest.Must[Build](t)(New(WithPolicies(mixed...)))
	want := []Policy{mixed[2], mixed[1], mixed[0], mixed[3], mixed[4], mixed[5], mixed[6], mixed[7], mixed[8]} // sorted by name
	got, err := ReadPolicies(build.Text())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v (%v), want %+v", got, err, want)
	}
	if !reflect.DeepEqual(build.Policies(), want) {
		t.Errorf("the build says %+v", build.Policies())
	}
	build.Policies()[0].Limits[0].Limit = "1/d"
	build.Policies()[4].Canary.Share, build.Policies()[5].Canary.Limits[0] = 1, "1/d"
	build.Policies()[7].Penalty.First = time.Second
	if !reflect.DeepEqual(build.Policies(), want) {
		t.Error("a caller changed the build through what Policies returned")
	}
	if policies, err := ReadPolicies(Source()); err != nil || len(policies) != 0 {
		t.Errorf("of the text without policies: %v, %v", policies, err)
	}
}

func TestTheBuildIDCoversThePolicies(t *testing.T) {
	id := func(opts ...Option) string {
		build := redistest.Must[Build](t)(New(opts...))
		return build.ID()
	}
	all := id(WithPolicies(mixed...))
	if all == BuildID() {
		t.Error("policies left the build id as it was")
	}
	if again := id(WithPolicies(mixed[2], mixed[3], mixed[8], mixed[6], mixed[7]), WithPolicies(mixed[1], mixed[5], mixed[4], mixed[0])); again != all {
		t.Error("another order of the same policies gave another build id")
	}
	if id(WithPolicies()) != BuildID() {
		t.Error("no policies gave another build id than none were asked for")
	}
	seen := map[string]bool{BuildID(): true, all: true}
	for _, policy := range []Policy{
		one("api", "100/m"), one("api", "101/m"), one("apj", "100/m"),
		{Name: "api", Limits: one("", "100/m").Limits, Shadow: true}, {Name: "api", Limits: one("", "100/m").Limits, Track: true},
		{Name: "api", Limits: []PolicyLimit{{"who", "100/m"}}},
		{Name: "api", Limits: one("", "100/m").Limits, Canary: &Canary{Limits: []string{"60/m"}, Share: 50}},
		{Name: "api", Limits: one("", "100/m").Limits, Canary: &Canary{Limits: []string{"60/m"}, Share: 51}},
		{Name: "api", Limits: one("", "100/m").Limits, Canary: &Canary{Limits: []string{"61/m"}, Share: 50}},
		{Name: "api", Limits: one("", "100/m").Limits, Canary: &Canary{Limits: []string{"60/m"}, Share: 50, Shadow: true}},
		{Name: "api", Limits: one("", "100/m").Limits, Penalty: &Penalty{time.Minute, time.Hour, 24 * time.Hour}},
		{Name: "api", Limits: one("", "100/m").Limits, Penalty: &Penalty{time.Minute, time.Hour, 25 * time.Hour}},
		{Name: "api", Limits: one("", "100/m").Limits, Warn: 50},
		{Name: "api", Limits: one("", "100/m").Limits, Warn: 51},
	} {
		got := id(WithPolicies(policy))
		if seen[got] {
			t.Errorf("%+v has the build id of another", policy)
		}
		seen[got] = true
	}
}

// TestALimitCannotLeaveItsLiteral checks that no limit can end its string literal in the Lua code.
// For any bytes, the limit that is read back is the same, and the rest of the library is unchanged.
func TestALimitCannotLeaveItsLiteral(t *testing.T) {
	var every strings.Builder
	for c := range 256 {
		every.WriteByte(byte(c))
	}
	plain := redistest.Must[Build](t)(New(WithPolicies(one("x", "PLACE"))))
	literal := regexp.MustCompile(`^'([^'\\\x00-\x1f]|\\[0-9]{3})*'$`)
	before, after, _ := strings.Cut(plain.Text(), "'PLACE'")
	before, after = strings.Replace(before, plain.ID(), "", 1), strings.Replace(after, plain.ID(), "", 1)
	for _, limit := range []string{
		"' } } redis.log(redis.LOG_WARNING, 'here') --", `\' .. x .. \'`, "a\nb\r\n]]", "x --[[@POLICIES@]] @VERSION@ @BUILD_ID@",
		"'] = { ' }, keys = { ', shadow = true, track = true }", `\`, `\039`, every.String(), "\x00", "100/m ünï\u2028",
	} {
		build, err := New(WithPolicies(one("x", limit)))
		if err != nil {
			t.Fatalf("%q: %v", limit, err)
		}
		got, err := ReadPolicies(build.Text())
		if err != nil || len(got) != 1 || got[0].Limits[0].Limit != limit {
			t.Errorf("%q was read back as %+v (%v)", limit, got, err)
		}
		full := Policy{Name: "y", Limits: []PolicyLimit{{"a", limit}, {"b", limit}}, Shadow: true, Canary: &Canary{Limits: []string{limit, limit}, Share: 5}}
		if whole, err := New(WithPolicies(full)); err != nil {
			t.Errorf("%q: %v", limit, err)
		} else if got, err := ReadPolicies(whole.Text()); err != nil || !reflect.DeepEqual(got, []Policy{full}) {
			t.Errorf("%q was read back as %+v (%v)", limit, got, err)
		}
		text := strings.Replace(build.Text(), build.ID(), "", 1)
		if !strings.HasPrefix(text, before) || !strings.HasSuffix(text, after) || !literal.MatchString(string(luastring.Append(nil, limit))) {
			t.Errorf("%q changed the text around it", limit)
		}
	}
}

func TestPoliciesThatCannotBeWritten(t *testing.T) {
	long := strings.Repeat("x", 70)
	many := make([]PolicyLimit, MostPolicyLimits+1)
	for _, tt := range []struct {
		policies []Policy
		want     string
	}{
		{[]Policy{one("", "1/m")}, `functions: the policy name "" is not 1 to 64 of a-z 0-9 _ . -`},
		{[]Policy{one("Api", "1/m")}, `functions: the policy name "Api" is not 1 to 64 of a-z 0-9 _ . -`},
		{[]Policy{one("a\n", "1/m")}, `functions: the policy name "a\n" is not 1 to 64 of a-z 0-9 _ . -`},
		{[]Policy{one("@a", "1/m")}, `functions: the policy name "@a" is not 1 to 64 of a-z 0-9 _ . -`},
		{[]Policy{one(long, "1/m")}, `functions: the policy name "` + long[:60] + `..." is not 1 to 64 of a-z 0-9 _ . -`},
		{[]Policy{one("a", "1/m"), one("b", "1/m"), one("a", "2/m")}, `functions: two policies are named a`},
		{[]Policy{{Name: "a"}}, `functions: policy a has 0 limits; give it 1 to 16`},
		{[]Policy{{Name: "a", Limits: many}}, `functions: policy a has 17 limits; give it 1 to 16`},
		{[]Policy{one("a", " ")}, `functions: policy a: an empty limit; give one such as 100/m`},
		{[]Policy{one("a", " @b")}, `functions: policy a: the limit "@b" is a policy; a policy is made of limits such as 100/m`},
		{[]Policy{one("a", strings.Repeat("1", 1025))}, `functions: policy a: a limit of 1025 bytes; it has at most 1024`},
		{[]Policy{{Name: "a", Limits: []PolicyLimit{{"k", "1/m"}, {"", "2/m"}}}}, `functions: policy a: a limit of several has no key name; name what each is for`},
		{[]Policy{{Name: "a", Limits: []PolicyLimit{{"k", "1/m"}, {"k", "2/m"}}}}, `functions: policy a: the key name "k" is given twice`},
		{[]Policy{{Name: "a", Limits: []PolicyLimit{{"K k", "1/m"}}}}, `functions: policy a: the key name "K k" is not 1 to 64 of a-z 0-9 _ . -`},
		{[]Policy{withCanary(0, "1/m")}, `functions: policy a: a canary for 0 of 1000 keys; give it 1 to 1000`},
		{[]Policy{withCanary(1001, "1/m")}, `functions: policy a: a canary for 1001 of 1000 keys; give it 1 to 1000`},
		{[]Policy{withCanary(5)}, `functions: policy a: the number of limits is 1 and that of the canary 0; give the canary one for each`},
		{[]Policy{withCanary(5, "1/m", "2/m")}, `functions: policy a: the number of limits is 1 and that of the canary 2; give the canary one for each`},
		{[]Policy{withCanary(5, " ")}, `functions: policy a: an empty limit; give one such as 100/m`},
		{[]Policy{withCanary(5, "@b")}, `functions: policy a: the limit "@b" is a policy; a policy is made of limits such as 100/m`},
		{[]Policy{withCanary(5, strings.Repeat("1", 1025))}, `functions: policy a: a limit of 1025 bytes; it has at most 1024`},
		{make([]Policy, MostPolicies+1), `functions: 10001 policies; a build has at most 10000`},
	} {
		if _, err := New(WithPolicies(tt.policies...)); err == nil || err.Error() != tt.want {
			t.Errorf("got  %v\nwant %s", err, tt.want)
		}
	}
}

// TestTheTextIsBounded checks that a library that is too large for servers is rejected before it is
// built. A small file of aliases could otherwise repeat the same long limits thousands of times,
// and use up the memory.
func TestTheTextIsBounded(t *testing.T) {
	bomb := func(n, bytes int) []Policy {
		limits := make([]PolicyLimit, MostPolicyLimits)
		for i := range limits {
			limits[i] = PolicyLimit{Key: fmt.Sprintf("k%d", i), Limit: "1/s" + strings.Repeat(" ", bytes-3)}
		}
		list := make([]Policy, n)
		for i := range list {
			list[i] = Policy{Name: fmt.Sprintf("p%04d", i), Limits: limits}
		}
		list[n/2].Limits = []PolicyLimit{{Limit: strings.Repeat("{", 1024)}}
		return list
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := New(WithPolicies(bomb(9990, 900)...))
	runtime.ReadMemStats(&after)
	want := regexp.MustCompile(`^functions: the library would have 14\d{7} bytes with these policies, and a build has at most 2097152; ` +
		`the largest are p0000 \(14\d{3} bytes\), p0001 \(14\d{3} bytes\), p0002 \(14\d{3} bytes\): shorten their limits, or take policies out$`)
	if err == nil || !want.MatchString(err.Error()) {
		t.Errorf("%v", err)
	}
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 50 {
		t.Errorf("%d MiB were allocated before a text of 140 MB was refused", took)
	}
	// The error names the policies in the order of their sizes, not of their names.
	list := bomb(1500, 100)
	if _, err := New(WithPolicies(list...)); err == nil || !strings.Contains(err.Error(), "the largest are p0750 (4118 bytes), p0000 (1795 bytes), p0001 (1795 bytes): shorten") {
		t.Errorf("%v", err)
	}

	// A build may be as large as the bound, but not larger.
	n := sort.Search(len(list), func(n int) bool {
		_, err := New(WithPolicies(list[:n]...))
		return err != nil
	})
	build, err := New(WithPolicies(list[:n-1]...))
	if size := len(build.Text()); err != nil || size > mostText || size < mostText-4200 {
		t.Errorf("%d policies make a text of %d bytes (%v), and %d are refused", n-1, size, err, n)
	}
}

func TestATextOfAnotherFormHasNoPoliciesToRead(t *testing.T) {
	build := redistest.Must[Build](t)(New(WithPolicies(mixed...)))
	for _, text := range []string{
		"", "#!lua name=ratelimit\n", "\nlocal POLICIES = {", "\nlocal POLICIES = {\n}\n",
		strings.Replace(build.Text(), "'consumer' }, shadow = true, track = true }", "'consumer' }, track = true, shadow = true }", 1),
		strings.Replace(build.Text(), "['api'] = {", "['Api'] = {", 1),
		strings.Replace(build.Text(), "share = 50 }", "share = 050 }", 1),
		strings.Replace(build.Text(), "share = 50 }", "share = 0 }", 1),
		strings.Replace(build.Text(), "share = 50 }", "share = 50, track = true }", 1),
		strings.Replace(build.Text(), "canary = { '60/m', share", "canary = { '60/m', '70/m', share", 1),
		strings.Replace(build.Text(), "keys = { 'a', 'b' }", "keys = { 'a', 'b', 'c' }", 1),
		strings.Replace(build.Text(), "'1000/m'", "f()", 1),
		strings.Replace(build.Text(), "\n  ['api']", "\n\n  ['api']", 1),
	} {
		if got, err := ReadPolicies(text); !errors.Is(err, errNoPolicies) {
			t.Errorf("got %v, %v", got, err)
		}
	}
}
