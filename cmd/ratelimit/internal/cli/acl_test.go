package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
	"github.com/ratelimit-functions/ratelimit/loader/acl"
)

// A server accepts the rules that acl prints, and a user with these rules can run the intended
// commands.
func TestACL(t *testing.T) {
	addr := startRedis(t)
	rdb := admin(t, addr)
	got := run(t, nil, "acl", "--prefix", "rl:", "--cluster")
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	if got.code != exitFine || len(lines) != 5 {
		t.Fatalf("%+v", got)
	}
	if want := "redis-cli ACL SETUSER ratelimit-planner reset on '>PASSWORD' +ping '+function|list' '+function|stats' +role '+cluster|shards'"; lines[4] != want {
		t.Errorf("%s\nwant\n%s", lines[4], want)
	}
	if want := "redis-cli ACL SETUSER ratelimit-deployer reset on '>PASSWORD' +ping '+function|load' '+function|list' '+function|delete' '+function|stats' +time +role +wait '+cluster|shards'"; lines[3] != want {
		t.Errorf("%s\nwant\n%s", lines[3], want)
	}
	// Each shell accepts the printed lines, after the password and the address are filled in.
	_, port, _ := strings.Cut(addr, ":")
	paste := strings.NewReplacer("PASSWORD", "pw", "redis-cli ", "redis-cli -e -p "+port+" ").Replace(got.stdout)
	for _, name := range []string{"bash", "zsh", "sh"} {
		do(t, rdb, "ACL", "DELUSER", "ratelimit-application", "ratelimit-operator", "ratelimit-peek", "ratelimit-deployer", "ratelimit-planner")
		shell := exec.Command(name, "-e")
		shell.Dir, shell.Stdin = t.TempDir(), strings.NewReader(paste)
		said, err := shell.CombinedOutput()
		if left, _ := os.ReadDir(shell.Dir); err != nil || string(said) != strings.Repeat("OK\n", 5) || len(left) != 0 {
			t.Errorf("%s: %v: %s, and left %v", name, err, said, left)
		}
		for _, u := range users(t, "--prefix", "rl:", "--cluster") {
			do(t, rdb, append([]any{"ACL", "SETUSER", "want"}, anys(u.Rules)...)...)
			if made, want := do(t, rdb, "ACL", "GETUSER", u.User).(map[any]any), do(t, rdb, "ACL", "GETUSER", "want").(map[any]any); made["commands"] != want["commands"] || made["keys"] != want["keys"] {
				t.Errorf("%s: %s is %v, want %v", name, u.User, made, want)
			}
		}
	}
	testAccess(t, addr)
	if ci := users(t, "deployer", "--user", "ci"); len(ci) != 1 || ci[0].User != "ci" || ci[0].Rules[0] != "reset" {
		t.Errorf("%+v", ci)
	}
	run(t, nil, "acl", "deployer", "--user", "$(id)").want(t, exitFine,
		"redis-cli ACL SETUSER '$(id)' reset on '>PASSWORD' +ping '+function|load' '+function|list' '+function|delete' '+function|stats' +time +role +wait\n", "")
	// --redis names the servers of the commands.
	run(t, nil, "acl", "planner", "--redis", "rediss://a:7000,b:7001").want(t, exitFine,
		"redis-cli -h a -p 7000 --tls ACL SETUSER ratelimit-planner reset on '>PASSWORD' +ping '+function|list' '+function|stats' +role '+cluster|shards'\n"+
			"redis-cli -h b -p 7001 --tls ACL SETUSER ratelimit-planner reset on '>PASSWORD' +ping '+function|list' '+function|stats' +role '+cluster|shards'\n", "")
	run(t, nil, "acl", "planner", "--redis", "redis-sentinel://a/main").want(t, exitError, "", "ratelimit: --redis names Sentinels; name the server itself, and then each of its replicas\n")
	if all := users(t, "application", "--all-keys"); len(all) != 1 || !slices.Contains(all[0].Rules, "~*") {
		t.Errorf("%+v", all)
	}
}

// testAccess checks which commands each user on a server may run.
func testAccess(t *testing.T, addr string) {
	t.Helper()
	url := func(user string) string { return "redis://ratelimit-" + user + ":pw@" + addr }
	for _, tt := range []struct {
		user string
		args []string
		code int
	}{
		{"application", []string{"deploy"}, exitError},
		{"deployer", []string{"deploy"}, exitFine},
		{"deployer", []string{"take", "rl:a", "1/m"}, exitError},
		{"application", []string{"take", "rl:a", "1/m"}, exitFine},
		{"application", []string{"take", "a", "1/m"}, exitError},
		{"peek", []string{"take", "--dry-run", "rl:a", "1/m"}, exitDiffers},
		{"peek", []string{"take", "rl:a", "1/m"}, exitError},
		{"application", []string{"refund", "rl:a", "1/m"}, exitFine},
		{"application", []string{"acquire", "rl:lease", "concurrency 1 lease=1m", "id"}, exitFine},
		{"application", []string{"release", "rl:lease", "concurrency 1 lease=1m", "id"}, exitFine},
		{"application", []string{"block", "rl:a", "--for", "1m"}, exitError},
		{"application", []string{"override", "rl:a", "5/m", "--for", "1m"}, exitError},
		{"application", []string{"reset", "rl:a"}, exitError},
		{"operator", []string{"override", "rl:a", "5/m", "--for", "1m"}, exitFine},
		{"operator", []string{"block", "rl:a", "--for", "1m"}, exitFine},
		{"operator", []string{"override", "--match", "rl:*"}, exitFine},
		{"operator", []string{"top", "--match", "rl:*"}, exitFine},
		{"operator", []string{"unblock", "rl:a"}, exitFine},
		{"operator", []string{"override", "--end", "rl:a"}, exitFine},
		{"operator", []string{"take", "--dry-run", "rl:a", "1/m"}, exitFine},
		{"operator", []string{"reset", "rl:a"}, exitFine},
		{"operator", []string{"take", "rl:a", "1/m"}, exitError},
		{"operator", []string{"block", "a", "--for", "1m"}, exitError},
		{"planner", []string{"plan"}, exitFine},
		{"planner", []string{"deploy", "--policies", "missing.yaml"}, exitError},
		{"planner", []string{"delete", "--yes"}, exitError},
		{"planner", []string{"take", "rl:a", "1/m"}, exitError},
		{"deployer", []string{"status"}, exitFine},
		{"deployer", []string{"delete", "--yes"}, exitFine},
	} {
		if got := run(t, nil, append(tt.args, "--redis", url(tt.user))...); got.code != tt.code {
			t.Errorf("%s, %v: %+v", tt.user, tt.args, got)
		}
	}
}

// A real server loads the printed lines for an aclfile, and each user has the intended permissions.
func TestACLFile(t *testing.T) {
	got := run(t, nil, "acl", "--prefix", "rl:", "--format", "valkey-file")
	file := filepath.Join(t.TempDir(), "users.acl")
	text := "user default on nopass ~* &* +@all\n" + strings.ReplaceAll(got.stdout, "PASSWORD", "pw")
	require(t, os.WriteFile(file, []byte(text), 0o600))
	for _, program := range []string{"redis-server", "valkey-server"} {
		if _, err := exec.LookPath(program); err != nil && program != "redis-server" {
			t.Logf("no %s here; %s is the server of this test", program, "redis-server")
			continue
		}
		server := must[*redistest.Server](t)(redistest.Start(program, "--aclfile", file))
		t.Cleanup(server.Stop)
		testAccess(t, server.Addr)
	}
}

// The formats for services grant the same permissions as the format for Redis.
func TestACLFormats(t *testing.T) {
	rdb := admin(t, startRedis(t))
	for _, u := range users(t, "--prefix", "rl:*[x]", "--cluster") {
		do(t, rdb, append([]any{"ACL", "SETUSER", "want"}, anys(u.Rules)...)...)
		want := do(t, rdb, "ACL", "GETUSER", "want").(map[any]any)
		print := func(format string) string {
			return strings.TrimSpace(run(t, nil, "acl", string(u.Access), "--prefix", "rl:*[x]", "--cluster", "--format", format).stdout)
		}
		aws := wordsOf(print("elasticache"))
		cloud, isCloud := strings.CutPrefix(print("rediscloud"), u.User+": ")
		fields := regexp.MustCompile(`^` + u.User + `\n  categories: (.*)\n  commands: (.*)\n  channels:\n  keys:(.*)$`).FindStringSubmatch(print("aiven"))
		if len(aws) != 4 || aws[0] != "--user-name" || aws[1] != u.User || aws[2] != "--access-string" || !isCloud || fields == nil {
			t.Fatalf("%q, %q, %q", aws, cloud, fields)
		}
		aiven := fields[1] + " " + fields[2]
		for _, pattern := range strings.Fields(fields[3]) {
			aiven += " ~" + pattern
		}
		for format, rules := range map[string]string{"elasticache": aws[3], "rediscloud": cloud, "aiven": aiven} {
			if slices.Contains(strings.Fields(rules), "reset") || strings.Contains(rules, ">") {
				t.Errorf("%s: %s", format, rules)
			}
			do(t, rdb, append([]any{"ACL", "SETUSER", "made", "reset"}, anys(strings.Fields(rules))...)...)
			made := do(t, rdb, "ACL", "GETUSER", "made").(map[any]any)
			keys := want["keys"]
			if format == "aiven" {
				keys = strings.TrimPrefix(fmt.Sprint(keys), "%R") // aiven's fields cannot limit a key to reads
			}
			if sorted(made["commands"]) != sorted(want["commands"]) || made["keys"] != keys {
				t.Errorf("%s: %s is %v, want %v", format, u.User, made, want)
			}
		}
	}
}

// sorted returns text with its words in sorted order.
func sorted(text any) string {
	words := strings.Fields(fmt.Sprint(text))
	slices.Sort(words)
	return strings.Join(words, " ")
}

func TestCompletionOfACL(t *testing.T) {
	if got := run(t, nil, "__complete", "acl", ""); got.stdout != "application\noperator\npeek\ndeployer\nplanner\n:4\n" {
		t.Errorf("%+v", got)
	}
}

// users returns the output of acl --json.
func users(t *testing.T, args ...string) []aclUser {
	t.Helper()
	got := run(t, nil, append([]string{"acl", "--json"}, args...)...)
	var list []aclUser
	if err := json.Unmarshal([]byte(got.stdout), &list); err != nil || got.code != exitFine {
		t.Fatalf("%v: %+v", err, got)
	}
	return list
}

func anys(words []string) []any {
	var list []any
	for _, word := range words {
		list = append(list, word)
	}
	return list
}

// The help lists the permissions that package loader needs.
func TestDeployerHelp(t *testing.T) {
	build := must[functions.Build](t)(functions.New())
	rules := must[[]string](t)(acl.Rules(build.Text(), acl.Deployer, "", true))
	rules = slices.DeleteFunc(rules, func(rule string) bool { return rule == "reset" || rule == "+ping" })
	if named := regexp.MustCompile(`\+[a-z|]+`).FindAllString(deployerHelp, -1); !slices.Equal(named, rules) {
		t.Errorf("the help names %v, and a deployer needs %v", named, rules)
	}
}
