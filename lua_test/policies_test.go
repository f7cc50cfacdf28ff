package lua_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// policyVectors returns the vectors of policies, and the library for them.
func policyVectors(t *testing.T) (functions.VectorFile, functions.Build) {
	t.Helper()
	files, err := functions.LoadPolicyVectors()
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	build, err := functions.New(functions.WithPolicies(files[0].Policies...))
	if err != nil {
		t.Fatal(err)
	}
	return files[0], build
}

func withPolicies(t *testing.T) (*embedded.Server, functions.Build) {
	t.Helper()
	file, build := policyVectors(t)
	return embedded.Run(t, embedded.WithLibrary(mutated(t, build.Text())), embedded.WithTime(time.UnixMicro(file.StartUS))), build
}

// TestUnknownPolicy checks that the error for an unknown policy names the build.
func TestUnknownPolicy(t *testing.T) {
	server, build := withPolicies(t)
	want := `RATELIMIT NOPOLICY "@none": no such policy in build ` + build.ID() + "; ratelimit_info lists the policies"
	for _, call := range [][]any{{"FCALL", "ratelimit_take", 1, "k", "@none"}, {"FCALL", "ratelimit_acquire", 1, "k", "@none", "id"}} {
		if reply, err := server.Do(call...); err == nil || err.Error() != want {
			t.Errorf("%v: got %v, %v, want %s", call, reply, err, want)
		}
	}
}

// TestInfoOfPolicies checks that ratelimit_info returns the counts of shadow policies since the
// library was loaded, and the names of all policies.
func TestInfoOfPolicies(t *testing.T) {
	server, build := withPolicies(t)
	info := func() []any {
		reply, err := server.Do("FCALL_RO", "ratelimit_info", "0")
		if err != nil {
			t.Fatal(err)
		}
		return reply.([]any)
	}
	want := func(counts string) {
		t.Helper()
		step := functions.Step{Call: []string{"ratelimit_info"}, Reply: json.RawMessage(
			`["version","` + build.Version() + `","contract",1,"build_id","` + build.ID() + `","policies",` +
				`["api","calc","jobs","jobs.try","off","off.try","queue","seen","try","try.both","two-rates","wide","wrong","wrong.too"],"shadow_denied",` + counts + `]`)}
		if err := step.Check(info(), nil); err != nil {
			t.Error(err)
		}
	}
	do := func(call string) {
		t.Helper()
		args := []any{}
		for _, word := range strings.Fields("FCALL ratelimit_" + call) {
			args = append(args, word)
		}
		if _, err := server.Do(args...); err != nil {
			t.Fatal(err)
		}
	}
	want(`["jobs.try",0,"off.try",0,"queue",0,"try",0,"try.both",0]`)
	for range 5 {
		do("take 1 {v}:a @try")
	}
	do("peek 1 {v}:a @try")                       // not counted: a peek
	do("refund 1 {v}:a @try COST 0")              // not counted: a refund
	do("take 1 {v}:a @try COST 0")                // not counted: the shadow policy would allow it
	do("take 2 {v}:a {v}:x @try 1/s COST 1 2")    // not counted: the enforced limit denied
	do("take 3 {v}:b {v}:c {v}:a @try.both @try") // only one of these two would deny
	do("acquire 1 {v}:j @jobs.try a")
	do("acquire 1 {v}:j @jobs.try b")
	do("renew 1 {v}:j @jobs.try c")
	want(`["jobs.try",2,"off.try",0,"queue",0,"try",4,"try.both",0]`)
	if err := server.Load(mutated(t, build.Text())); err != nil {
		t.Fatal(err)
	}
	want(`["jobs.try",0,"off.try",0,"queue",0,"try",0,"try.both",0]`)
}

// TestPoliciesThatLeaveTheCache checks that a policy's limit is parsed again, with the same result,
// after other limits have pushed it out of the library's cache.
func TestPoliciesThatLeaveTheCache(t *testing.T) {
	server, _ := withPolicies(t)
	for i := range 2100 {
		if _, err := server.Do("FCALL", "ratelimit_peek", "1", "{v}:x", strconv.Itoa(i+1)+"/s"); err != nil {
			t.Fatal(err)
		}
		if i%300 == 0 {
			for _, call := range [][]any{
				{"FCALL", "ratelimit_peek", "1", "{v}:a", "@api"},
				{"FCALL", "ratelimit_peek", "2", "{v}:a", "{v}:b", "@calc"},
				{"FCALL", "ratelimit_peek", "1", "{v}:a", "@try"},
			} {
				reply, err := server.Do(call...)
				if err != nil || reply.([]any)[0] != int64(1) {
					t.Errorf("after %d limits: %v: %v, %v", i, call, reply, err)
				}
			}
		}
	}
}
