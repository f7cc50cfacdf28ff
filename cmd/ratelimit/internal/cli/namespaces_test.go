package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/policies"
)

// wantLines checks the exit code of a command, and that its output contains each of the lines.
func wantLines(t *testing.T, got outcome, code int, lines ...string) {
	t.Helper()
	if got.code != code {
		t.Errorf("exit code %d, want %d", got.code, code)
	}
	for _, line := range lines {
		if !strings.Contains("\n"+got.stdout+got.stderr, "\n"+line+"\n") {
			t.Errorf("the line %q is missing in\n%s%s", line, got.stdout, got.stderr)
		}
	}
}

func TestNamespacesOnTheCommandLine(t *testing.T) {
	addr := startRedis(t)
	env := []string{redisURL(addr)}
	inFolder(t, map[string]string{
		"base.yaml": "policies:\n  api: 5/s\n", "pay.yaml": "policies:\n  api: 100/m\n", "more.yaml": "policies:\n  jobs: concurrency 2 lease=30s\n",
		"keys.yaml":  "policies:\n  api: {limit: 100/m, track: true}\n  jobs: concurrency 2 lease=30s\n",
		"other.yaml": "policies:\n  api: fixed_window 50/m\n  jobs: 5/s\n", "note.txt": "mine",
	})
	deploy := func(code int, args ...string) func(lines ...string) {
		t.Helper()
		return func(lines ...string) { t.Helper(); wantLines(t, run(t, env, args...), code, lines...) }
	}
	deploy(exitFine, "deploy", "--policies", "base.yaml")("  + policy api: 5/s")
	deploy(exitFine, "deploy", "--namespace", "payments", "--policies", "pay.yaml", "--policies", "more.yaml")(
		"  + policy payments/api: 100/m", "  + policy payments/jobs: concurrency 2 lease=30s")
	deploy(exitFine, "take", "k", "@payments/api")()
	deploy(exitFine, "status", "--policies", "base.yaml")()
	deploy(exitFine, "plan", "--policies", "base.yaml")("nothing to change")
	deploy(exitDiffers, "status", "--namespace", "payments", "--policies", "pay.yaml")()
	deploy(exitFine, "status", "--namespace", "payments")()
	deploy(exitFine, "status")()

	// Plans show the effect on keys in use. A deployment that would deny calls on these keys fails.
	refused := "ratelimit: " + addr + " has keys in use whose calls this build would deny, although they have units left: payments/jobs (refused until they expire, " +
		"because a key is for leases or for rates); give callers another policy or another key for the new limit first, or add --deny-keys-in-use"
	for _, command := range []string{"plan", "deploy"} {
		deploy(exitError, command, "--namespace", "payments", "--policies", "other.yaml")(refused)
	}
	deploy(exitError, "deploy", "--namespace", "payments", "--policies", "keys.yaml")("ratelimit: " + addr + " has keys in use whose calls this build would deny, although they have units left: " +
		"payments/api (calls with 1 key are refused with BADKEYS until they pass 2); give callers another policy or another key for the new limit first, or add --deny-keys-in-use")
	deploy(exitDiffers, "plan", "--namespace", "payments", "--policies", "keys.yaml", "--deny-keys-in-use")(
		"  ~ policy payments/api: 100/m becomes 100/m (track)", "      keys in use: calls with 1 key are refused with BADKEYS until they pass 2")
	changes := []string{"  ~ policy payments/api: 100/m becomes fixed_window 50/m", "      keys in use: carry over: after 25 units of 100, 25 of 50 are left",
		"  ~ policy payments/jobs: concurrency 2 lease=30s becomes 5/s", "      keys in use: refused until they expire, because a key is for leases or for rates"}
	changes[1] = strings.Replace(changes[1], "25 of 50", carriedOver(t, "100/m", "fixed_window 50/m"), 1)
	deploy(exitDiffers, "plan", "--namespace", "payments", "--policies", "other.yaml", "--deny-keys-in-use")(changes...)
	deploy(exitFine, "deploy", "--namespace", "payments", "--policies", "other.yaml", "--deny-keys-in-use")(changes...)

	// The same rules apply to rollbacks.
	deploy(exitError, "rollback", "--namespace", "payments")("ratelimit: " + addr + " has keys in use whose calls this build would deny, although they have units left: " +
		"payments/jobs (refused until they expire, because a key is for leases or for rates); give callers another policy or another key for the new limit first, or add --deny-keys-in-use")
	deploy(exitDiffers, "rollback", "--plan", "--namespace", "payments", "--deny-keys-in-use")("  ~ policy payments/api: fixed_window 50/m becomes 100/m")
	if got := run(t, env, "rollback", "--plan", "--namespace", "payments", "--deny-keys-in-use"); !strings.Contains(got.stdout, "\nthe rollback would bring back 0.1.0 build ") ||
		!strings.HasSuffix(got.stdout, ", with the policies that the last deployment of payments replaced; the servers keep nothing older\n") {
		t.Errorf("%s%s", got.stdout, got.stderr)
	}
	deploy(exitFine, "rollback", "--namespace", "payments", "--deny-keys-in-use")("  ~ policy payments/api: fixed_window 50/m becomes 100/m")
	deploy(exitError, "rollback", "--namespace", "search")("ratelimit: nothing to go back to: the servers keep no record of a deployment of the namespace search; " +
		"deploy the build that you want: ratelimit deploy --namespace search --policies FILE; without --policies if there are none")

	// A deployment without a file removes the policies of a namespace, if a flag allows it.
	deploy(exitError, "deploy", "--namespace", "payments")("ratelimit: " + addr + " runs the policies payments/api, payments/jobs, which this build does not have; " +
		"give all policies with --policies, or add --remove-policies")
	deploy(exitFine, "deploy", "--namespace", "payments", "--remove-policies")("  - policy payments/api: 100/m")
	deploy(exitFine, "status", "--policies", "base.yaml")()

	// These command lines are rejected before anything is sent.
	for name, want := range map[string]string{
		"..": "is not 1 to 64 of a-z 0-9 _ . -, with a letter or a digit at the beginning", "Payments": "is not 1 to 64 of a-z 0-9 _ . -, with a letter or a digit at the beginning",
	} {
		for _, args := range [][]string{{"deploy"}, {"deploy", "--policies", "pay.yaml"}, {"plan"}, {"status"}, {"rollback"}, {"build"}, {"build", "--policies", "pay.yaml"}, {"dev"}} {
			deploy(exitError, append(args, "--namespace", name)...)(`ratelimit: --namespace: the namespace "` + name + `" ` + want)
		}
	}
	deploy(exitError, "deploy", "--namespace", "")("ratelimit: --namespace is empty; is a shell variable not set? give it a value, or leave it out")
	for _, command := range []string{"deploy", "plan", "status", "build", "verify", "dev"} {
		got := run(t, env, command, "--policies", "pay.yaml", "--policies", "base.yaml")
		if got.code != exitError || !strings.Contains(got.stdout+got.stderr, `base.yaml:2:3: "api" is given twice; the first is at pay.yaml:2:3`) {
			t.Errorf("%s: %d\n%s%s", command, got.code, got.stdout, got.stderr)
		}
	}
	deploy(exitFine, "build", "--namespace", "payments", "--policies", "pay.yaml", "-o", "pay.lua")()
	deploy(exitFine, "build", "--namespace", "payments", "--policies", "pay.yaml", "-o", "pay.lua")() // overwrites the file that build wrote
	deploy(exitError, "deploy", "--namespace", "search", "--library", "pay.lua")("ratelimit: the build has the policy payments/api, which is not in the namespace search; " +
		"give the namespace of its policies with --namespace, or a file without them")
	deploy(exitError, "deploy", "--library", "pay.lua")("ratelimit: the build has the policy payments/api of the namespace payments; " +
		"give the namespace of its policies with --namespace, or a file without them")
	deploy(exitFine, "deploy", "--namespace", "payments", "--library", "pay.lua")("  + policy payments/api: 100/m")
	for _, name := range []string{"note.txt", "pay.yaml"} {
		deploy(exitError, "build", "-o", name)("ratelimit: cannot write the library: " + name + " exists and is another kind of file, so it is not overwritten; choose another file with -o")
	}
	if text, err := os.ReadFile("note.txt"); err != nil || string(text) != "mine" {
		t.Errorf("%s, %v", text, err)
	}
	deploy(exitFine, "__complete", "take", "--policy", "pay")("payments/api")
	deploy(exitFine, "__complete", "backtest", "--policies", "more.yaml", "--policy", "")("jobs")
	deploy(exitFine, "__complete", "take", "--redis", "redis://127.0.0.1:1", "--policy", "")(":4")
}

// A namespace that no server has yet may be misspelled, so plan and deploy say that it is new.
func TestNewNamespaces(t *testing.T) {
	env := []string{redisURL(startRedis(t))}
	inFolder(t, map[string]string{"pay.yaml": "policies:\n  api: 100/m\n", "more.yaml": "policies:\n  api: 200/m\n"})
	has := "no other"
	for i, name := range []string{"a", "b", "c", "d", "e", "f"} {
		line := "the namespace " + name + " is new on these servers; they have " + has
		wantLines(t, run(t, env, "plan", "--namespace", name, "--policies", "pay.yaml"), exitDiffers, line)
		wantLines(t, run(t, env, "deploy", "--namespace", name, "--policies", "pay.yaml"), exitFine, line)
		has = strings.Join([]string{"a", "b", "c", "d", "e", "f"}[:i+1], ", ")
	}
	wantLines(t, run(t, env, "plan", "--namespace", "fs", "--policies", "pay.yaml"), exitDiffers, "the namespace fs is new on these servers; they have a, b, c, d, e, f")
	for _, args := range [][]string{{"deploy", "--namespace", "f", "--policies", "more.yaml"}, {"rollback", "--namespace", "f"}, {"deploy", "--policies", "pay.yaml"}} {
		if got := run(t, env, args...); got.code != exitFine || strings.Contains(got.stdout, " is new ") {
			t.Errorf("%v: %s%s", args, got.stdout, got.stderr)
		}
	}
}

// delete names what is lost, and asks again before it deletes the policies of other teams.
func TestDeleteNamesWhatIsLost(t *testing.T) {
	addr := startRedis(t)
	env := []string{redisURL(addr)}
	inFolder(t, map[string]string{"base.yaml": "policies:\n  api: 5/s\n", "pay.yaml": "namespace: payments\npolicies:\n  api: 100/m\n"})
	wantLines(t, run(t, env, "deploy", "--policies", "base.yaml"), exitFine)
	wantLines(t, run(t, env, "deploy", "--policies", "pay.yaml"), exitFine, "  + policy payments/api: 100/m")
	from := " from redis://" + addr + "? "
	first := "delete the library ratelimit and its policies (api)" + from + "Calls fail from then on. Type yes: "
	again := "this also deletes the policies of other teams, and no rollback brings them back: payments/api. Type yes again: "
	typing(t, env, "yes\n", "delete").want(t, exitError, "", first+again+"\nratelimit: no answer; nothing was deleted; in a script, add --yes\n")
	typing(t, env, "yes\nno\n", "delete").want(t, exitError, "", first+again+"ratelimit: the answer is not yes; nothing was deleted\n")
	run(t, env, "delete", "--yes").want(t, exitError, "", "ratelimit: redis://"+addr+" also has the policies of the namespaces payments, and no rollback would bring them back; nothing was deleted; "+
		"delete one namespace with --namespace, or all with --all-namespaces\n")
	question := "delete the policies of the namespace payments (payments/api)" + from + "Calls that name them fail from then on. Type yes: "
	got := typing(t, env, "yes\n", "delete", "--namespace", "payments")
	if got.code != exitFine || got.stderr != question || !strings.HasSuffix(got.stdout, "  deleted\n\ndeleted the policies of payments from 1 server; bring them back with: ratelimit rollback --namespace payments\n") {
		t.Errorf("%+v", got)
	}
	wantLines(t, run(t, env, "rollback", "--namespace", "payments"), exitFine, "  + policy payments/api: 100/m")
	got = typing(t, env, "yes\nyes\n", "delete")
	if got.code != exitFine || got.stderr != first+again {
		t.Errorf("%+v", got)
	}
	wantLines(t, run(t, env, "deploy", "--policies", "pay.yaml"), exitFine)
	wantLines(t, run(t, env, "delete", "--yes", "--all-namespaces"), exitFine, "deleted from 1 server")
}

// A file can name its namespace, which a flag must not contradict. Policies without a namespace get
// a hint on servers that have namespaces.
func TestFilesThatNameTheirNamespace(t *testing.T) {
	env := []string{redisURL(startRedis(t))}
	inFolder(t, map[string]string{"pay.yaml": "namespace: payments\npolicies:\n  api: 100/m\n", "base.yaml": "policies:\n  api: 5/s\n"})
	for _, command := range []string{"deploy", "plan", "status", "build", "dev"} {
		wantLines(t, run(t, env, command, "--namespace", "search", "--policies", "pay.yaml"), exitError,
			"ratelimit: --policies: pay.yaml belongs to the namespace payments, not to search; leave out the namespace, or name the files of search")
	}
	wantLines(t, run(t, env, "deploy", "--policies", "pay.yaml"), exitFine, "  + policy payments/api: 100/m", "the namespace payments is new on these servers; they have no other")
	wantLines(t, run(t, env, "take", "k", "@payments/api"), exitFine)
	wantLines(t, run(t, env, "status", "--policies", "pay.yaml"), exitFine)
	hint := "these servers have the namespaces payments, and the new policies api have none; if a team owns them, use --namespace, or name it in the file"
	wantLines(t, run(t, env, "plan", "--policies", "base.yaml"), exitDiffers, hint)
	wantLines(t, run(t, env, "deploy", "--policies", "base.yaml"), exitFine, hint)
	if got := run(t, env, "plan", "--policies", "base.yaml"); strings.Contains(got.stdout, hint) {
		t.Errorf("a hint without a new policy: %s", got.stdout)
	}
}

// carriedOver returns the units that are left after a change, as in "25 of 50".
func carriedOver(t *testing.T, before, after string) string {
	t.Helper()
	build := must[functions.Build](t)(functions.New())
	policy := func(limit string) functions.Policy {
		return functions.Policy{Name: "p", Limits: []functions.PolicyLimit{{Limit: limit}}}
	}
	found := must[[]functions.Effect](t)(policies.Effects(build.Text(), [][2]functions.Policy{{policy(before), policy(after)}}))
	_, left, _ := strings.Cut(found[0].Keys, ", ")
	return strings.TrimSuffix(left, " are left")
}

func TestSchemas(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{{[]string{"policies", "schema"}, policies.Schema}, {[]string{"policies", "schema", "--tests"}, policies.TestSchema}} {
		if got := run(t, nil, tt.args...); got.code != exitFine || got.stdout != tt.want {
			t.Errorf("%v: %d, %.100s", tt.args, got.code, got.stdout)
		}
	}
	if _, err := os.Stat(filepath.Join("..", "..", "..", "..", "policies", "tests.schema.json")); err != nil {
		t.Error(err)
	}
}
