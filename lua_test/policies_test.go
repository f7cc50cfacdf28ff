package lua_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/policies"
)

// policyVectors returns the vectors in policies.json, and a library with their policies.
func policyVectors(t *testing.T) (functions.VectorFile, functions.Build) {
	t.Helper()
	return vectorsOf(t, "policies")
}

// vectorsOf returns one file of vectors that need policies, and a library with these policies.
func vectorsOf(t *testing.T, name string) (functions.VectorFile, functions.Build) {
	t.Helper()
	files := must[[]functions.VectorFile](t)(functions.LoadPolicyVectors())
	i := slices.IndexFunc(files, func(file functions.VectorFile) bool { return file.Name == name })
	if i < 0 {
		t.Fatalf("there is no %s.json", name)
	}
	return files[i], must[functions.Build](t)(functions.New(functions.WithPolicies(files[i].Policies...)))
}

// TestClassVectors checks the vectors in class.json, and TestBorrowVectors those in borrow.json.
func TestClassVectors(t *testing.T) {
	file, build := vectorsOf(t, "class")
	runAll(t, embedded.Run(t, embedded.WithLibrary(mutated(t, build.Text()))), []functions.VectorFile{file})
}

func TestBorrowVectors(t *testing.T) {
	file, build := vectorsOf(t, "borrow")
	runAll(t, embedded.Run(t, embedded.WithLibrary(mutated(t, build.Text()))), []functions.VectorFile{file})
}

// TestBorrowFromABlockedKey checks the first call of a server: states that another call has filled would
// hide that those of a blocked key have no units.
func TestBorrowFromABlockedKey(t *testing.T) {
	for _, algorithm := range []string{"gcra", "leaky_bucket", "token_bucket", "fixed_window", "sliding_window", "sliding_log"} {
		for blocked, want := range map[string]string{"{v}:t": "[0 2 0 5000 5000 1]", "{v}:p": "[0 10 0 5000 5000 2]"} {
			server := embedded.Run(t, embedded.WithLibrary(mutated(t, functions.Source())), embedded.WithTime(time.UnixMicro(1700000000000000)))
			must[any](t)(server.Do("FCALL", "ratelimit_block", 1, blocked, 5000))
			if got := textOf(server.Do("FCALL", "ratelimit_take", 2, "{v}:t", "{v}:p", algorithm+" 2/s", algorithm+" 10/s", "BORROW")); got != want {
				t.Errorf("%s, %s is blocked: got %s, want %s", algorithm, blocked, got, want)
			}
		}
	}
}

// TestFirstCallOverAnImpossibleState checks a server's first call whose key has an impossible state: no call with FLOOR has set
// what is kept free.
func TestFirstCallOverAnImpossibleState(t *testing.T) {
	server := start(t)
	must[any](t)(server.Do("FCALL", "ratelimit_take", 1, "{v}:a", "1/d"))
	if got, want := textOf(server.Do("FCALL", "ratelimit_take", 1, "{v}:a", "200/s")), "[1 200 0 0 1000 1]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestShadowVectors checks the vectors in shadow.json, and that shadow.yaml has their policies.
func TestShadowVectors(t *testing.T) {
	file, build := vectorsOf(t, "shadow")
	inYAML := must[*policies.File](t)(policies.Read("../functions/vectors/policies/shadow.yaml"))
	if id := must[functions.Build](t)(inYAML.Build()).ID(); id != build.ID() {
		t.Errorf("the build of shadow.yaml is %s, and that of shadow.json is %s", id, build.ID())
	}
	runAll(t, embedded.Run(t, embedded.WithLibrary(mutated(t, build.Text()))), []functions.VectorFile{file})
}

func withPolicies(t *testing.T) (*embedded.Server, functions.Build) {
	t.Helper()
	file, build := policyVectors(t)
	return embedded.Run(t, embedded.WithLibrary(mutated(t, build.Text())), embedded.WithTime(time.UnixMicro(file.StartUS))), build
}

// withShadow starts a server whose library has a shadow policy, @tried, with this limit.
func withShadow(t *testing.T, limit string) *embedded.Server {
	t.Helper()
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "tried", Limits: []functions.PolicyLimit{{Limit: limit}}, Shadow: true},
	)))
	return embedded.Run(t, embedded.WithLibrary(mutated(t, build.Text())), embedded.WithTime(time.UnixMicro(1700000000000000)))
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

// TestRatesOfPolicies checks that the rates of policies count towards the 250 rates of a call.
func TestRatesOfPolicies(t *testing.T) {
	five := strings.TrimSuffix(strings.Repeat("1/s, ", 5), ", ")
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "ten", Limits: []functions.PolicyLimit{{Key: "a", Limit: five}, {Key: "b", Limit: five}}},
		functions.Policy{Name: "eleven", Limits: []functions.PolicyLimit{{Key: "a", Limit: five}, {Key: "b", Limit: five + ", 1/s"}}},
	)))
	server := embedded.Run(t, embedded.WithLibrary(mutated(t, build.Text())))
	for policy, want := range map[string]string{"@ten": "[1 1 0 0 1000 1]", "@eleven": "RATELIMIT BADARGS 253 rates; one call takes at most 250"} {
		call := []any{"FCALL_RO", "ratelimit_peek", 50}
		for i := range 50 {
			call = append(call, fmt.Sprintf("{v}:%d", i))
		}
		for range 25 {
			call = append(call, policy)
		}
		if got := textOf(server.Do(call...)); got != want {
			t.Errorf("25 x %s: got %s, want %s", policy, got, want)
		}
	}
}

// TestBucketsOfPolicies checks that the bound of buckets counts those of every limit of a policy, up to the one that exceeds it.
func TestBucketsOfPolicies(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{Name: "many", Limits: []functions.PolicyLimit{
		{Key: "a", Limit: "sliding_window 9/100s buckets=1000"}, {Key: "b", Limit: "sliding_window 9/100s"}}})))
	server := embedded.Run(t, embedded.WithLibrary(mutated(t, build.Text())))
	call := append([]string{"FCALL_RO", "ratelimit_peek", "10"}, names(10)...)
	call = append(call, slices.Repeat([]string{"@many"}, 5)...)
	const want = "RATELIMIT BADARGS 3002 buckets; one call takes at most 3000"
	if got := textOf((offline{server}).Do(call...)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestPoliciesThatLeaveTheCache checks that the library parses a policy's limit again, with the
// same result, after other limits have evicted it from the cache.
func TestPoliciesThatLeaveTheCache(t *testing.T) {
	server, _ := withPolicies(t)
	for i := range 2100 {
		must[any](t)(server.Do("FCALL", "ratelimit_peek", "1", "{v}:x", strconv.Itoa(i+1)+"/s"))
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
