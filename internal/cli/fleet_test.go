package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader"
)

// otherLibrary writes the library with another version and build id into a file.
func otherLibrary(t *testing.T, version, id string) string {
	t.Helper()
	text := strings.Replace(functions.Source(), "local VERSION = '"+functions.Version()+"'", "local VERSION = '"+version+"'", 1)
	text = strings.Replace(text, "local BUILD_ID = '"+functions.BuildID()+"'", "local BUILD_ID = '"+id+"'", 1)
	file := filepath.Join(t.TempDir(), "library.lua")
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return file
}

// From a plan to a deployment, a newer one, the way back, and the end.
func TestPlanDeployRollbackDelete(t *testing.T) {
	addr := startRedis(t)
	env := []string{redisURL(addr)}
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(policies, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	has := func(got outcome, code int, stdout ...string) {
		t.Helper()
		if got.code != code || got.stderr != "" {
			t.Errorf("exit code %d, want %d; stderr %q", got.code, code, got.stderr)
		}
		for _, want := range stdout {
			if !strings.Contains(got.stdout, want) {
				t.Errorf("no %q in:\n%s", want, got.stdout)
			}
		}
	}
	write("policies:\n  api: 100/m\n")
	has(run(t, env, "plan", "--policies", policies), exitDiffers, "  load 0.1.0 build ", "\nnothing becomes 0.1.0 build ", "  + function ratelimit_take\n", "  + policy api: 100/m\n")
	has(run(t, env, "deploy", "--policies", policies), exitFine, "  loaded\n", "\ndeployed ratelimit 0.1.0, build ")
	has(run(t, env, "plan", "--policies", policies), exitFine, "  nothing\n", "\nnothing to change\n")
	write("policies:\n  api: 200/m\n")
	has(run(t, env, "plan", "--policies", policies, "--diff"), exitDiffers, "  replace by 0.1.0 build ", "\n  ~ policy api: 100/m becomes 200/m\n\n--- 0.1.0 build ", "\n-  ['api'] = { '100/m' },\n+  ['api'] = { '200/m' },\n")
	var plan struct {
		Empty bool
		Nodes []loader.NodePlan
	}
	got := run(t, env, "plan", "--policies", policies, "--json")
	if err := json.Unmarshal([]byte(got.stdout), &plan); err != nil || got.code != exitDiffers || plan.Empty || len(plan.Nodes) != 1 ||
		len(plan.Nodes[0].Node.Changes) != 1 || plan.Nodes[0].Node.Changes[0] != (loader.Change{Kind: "policy", Name: "api", What: "changed", Old: "100/m", New: "200/m"}) || plan.Nodes[0].Node.Addr != addr {
		t.Errorf("%v: %+v", err, got)
	}
	has(run(t, env, "deploy", "--policies", policies), exitFine, "\n  ~ policy api: 100/m becomes 200/m\n\ndeployed ratelimit 0.1.0, build ")
	has(run(t, env, "status", "--policies", policies), exitFine, "in step; rollback: 0.1.0 build ")
	has(run(t, env, "rollback"), exitFine, "  loaded\n", "\n  ~ policy api: 200/m becomes 100/m\n\nwent back to ratelimit 0.1.0, build ")
	has(run(t, env, "status", "--policies", policies), exitDiffers, "differs from build ")
	write("policies:\n  api: 100/m\n")
	has(run(t, env, "status", "--policies", policies), exitFine, "in step; rollback: 0.1.0 build ")

	newer := otherLibrary(t, "0.2.0", "222222222222")
	refusal := "ratelimit: " + addr + " runs the policy api, which this build does not have; deploy one that has it, as with --policies and their file, or allow the removal with --remove-policies (RemovePolicies)\n"
	run(t, env, "deploy", "--library", newer).want(t, exitError, "", refusal)
	run(t, env, "plan", "--library", newer).want(t, exitError, "", refusal)
	has(run(t, env, "plan", "--library", newer, "--remove-policies"), exitDiffers, "\n  - policy api: 100/m\n")
	has(run(t, env, "deploy", "--library", newer, "--remove-policies"), exitFine, "\n  - policy api: 100/m\n\ndeployed ratelimit 0.2.0, build 222222222222\n")
	has(run(t, env, "rollback"), exitFine, "\n  + policy api: 100/m\n")
	has(run(t, env, "rollback"), exitFine, "\n  - policy api: 100/m\n\nwent back to ratelimit 0.2.0, build 222222222222\n")
	refusal = "ratelimit: " + addr + " runs version 0.2.0, which is newer than 0.1.0; deploy a newer one, or allow it with --allow-downgrade (AllowDowngrade)\n"
	run(t, env, "deploy").want(t, exitError, "", refusal)
	run(t, env, "plan").want(t, exitError, "", refusal)
	has(run(t, env, "plan", "--allow-downgrade"), exitDiffers)
	has(run(t, env, "rollback", "--to", "222222222222"), exitFine, "\nbuild 222222222222 runs already; nothing to do\n")
	run(t, env, "rollback", "--to", "333").want(t, exitError, "", "ratelimit: nothing to go back to: no node holds or keeps build 333; deploy it\n")

	for _, command := range []string{"deploy", "plan", "status"} {
		run(t, env, command, "--library", policies).want(t, exitError, "", "ratelimit: the text is not a build of the library ratelimit: it begins with \"policies:\"; take one that `ratelimit build` wrote\n")
		run(t, env, command, "--library", policies, "--policies", policies).want(t, exitError, "", "ratelimit: --library and --policies contradict each other: the text holds its policies; leave one out\n")
	}

	// It asks.
	question := "delete the library ratelimit from redis://" + addr + "? Calls fail from then on. Type yes: "
	for _, tt := range []struct{ typed, stderr string }{
		{"", question + "\nratelimit: nobody answered, and nothing was deleted; in a script, add --yes\n"},
		{"y\n", question + "ratelimit: the answer was not yes, and nothing was deleted\n"},
	} {
		typing(t, env, tt.typed, "delete").want(t, exitError, "", tt.stderr)
	}
	got = typing(t, env, "yes\n", "delete")
	if got.code != exitFine || got.stderr != question || !strings.HasSuffix(got.stdout, "  deleted\n\ndeleted from 1 server\n") {
		t.Errorf("%+v", got)
	}
	has(run(t, env, "delete", "--yes"), exitFine, "had none\n\ndeleted from 0 servers\n")
	if list := admin(t, addr).FunctionList(t.Context(), redis.FunctionListQuery{}).Val(); len(list) != 0 {
		t.Errorf("%d libraries are left", len(list))
	}
	run(t, env, "rollback").want(t, exitError, "", "ratelimit: nothing to go back to: the servers keep no record of a deployment; deploy the build that is wanted\n")
}

// typing runs a command line of which somebody types the answers.
func typing(t *testing.T, env []string, typed string, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	a := testApp(env, &stdout, &stderr)
	a.stdin = strings.NewReader(typed)
	code := a.execute(t.Context(), args)
	return outcome{code, stdout.String(), stderr.String()}
}

// An interruption at the question leaves at once, also where stdin never delivers anything.
func TestInterruptedQuestion(t *testing.T) {
	addr := startRedis(t)
	if got := run(t, nil, "deploy", "--redis", addr); got.code != exitFine {
		t.Fatalf("%+v", got)
	}
	var stdout bytes.Buffer
	var stderr lockedBuffer
	a := testApp(nil, &stdout, &stderr)
	stdin, typist := io.Pipe()
	defer func() { _ = typist.Close() }() // ends the read that stays behind
	a.stdin = stdin
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	code := make(chan int, 1)
	go func() { code <- a.execute(ctx, []string{"delete", "--redis", addr}) }()
	question := "delete the library ratelimit from redis://" + addr + "? Calls fail from then on. Type yes: "
	eventually(t, "it asks", func() bool { return stderr.String() == question })
	interrupt()
	outcome{<-code, stdout.String(), stderr.String()}.want(t, exitError, "", question+"\nratelimit: interrupted, and nothing was deleted\n")
	if list := admin(t, addr).FunctionList(t.Context(), redis.FunctionListQuery{LibraryNamePattern: functions.Name}).Val(); len(list) != 1 {
		t.Errorf("the server holds %d libraries of this name", len(list))
	}
}

// lockedBuffer may be read while a command writes to it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestStatusWatch(t *testing.T) {
	addr := startRedis(t)
	rdb := admin(t, addr)
	for _, asJSON := range []bool{false, true} {
		var stdout lockedBuffer
		var stderr bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan int, 1)
		args := []string{"status", "--watch", "--interval", "20ms"}
		if asJSON {
			args = append(args, "--json")
		}
		a := testApp([]string{redisURL(addr)}, &stdout, &stderr)
		go func() { ended <- a.execute(ctx, args) }()
		lines := func(n int) func() bool {
			return func() bool { return strings.Count(stdout.String(), "\n") >= n }
		}
		eventually(t, "the first event", lines(1))
		do(t, rdb, "FUNCTION", "FLUSH")
		eventually(t, "the repair", lines(2))
		cancel()
		if code := <-ended; code != exitFine || stderr.Len() != 0 {
			t.Errorf("exit code %d, stderr %q", code, stderr.String())
		}
		last := strings.Split(strings.TrimSpace(stdout.String()), "\n")[1]
		if asJSON {
			var e struct {
				Event string
				Node  loader.Node
			}
			if err := json.Unmarshal([]byte(last), &e); err != nil || e.Event != "repaired" || e.Node.Addr != addr || !e.Node.Changed {
				t.Errorf("%v: %s", err, last)
			}
		} else if !regexp.MustCompile(`^\d\d:\d\d:\d\d\.\d{3}  repaired  ` + addr + ` had no library: loaded build ` + functions.BuildID() + `$`).MatchString(last) {
			t.Error(last)
		}
	}
}

func TestDoctor(t *testing.T) {
	addr := startRedis(t)
	env := []string{redisURL(addr)}
	run(t, env, "doctor").want(t, exitDiffers, "library, "+addr+": it holds no library ratelimit\n"+
		"  means: calls are answered: ERR Function not found\n  do:    load it with: ratelimit deploy --redis redis://"+addr+"\n\n"+
		"persistence, "+addr+": neither snapshots (save) nor the append-only file are on\n"+
		"  means: after a restart the library is gone, as are all counts, and calls answer: ERR Function not found\n"+
		"  do:    turn one on, as with CONFIG SET appendonly yes, or keep this running: ratelimit status --redis redis://"+addr+" --watch\n\n2 findings on 1 server\n", "")
	if got := run(t, env, "deploy"); got.code != exitFine {
		t.Fatalf("%+v", got)
	}
	run(t, env, "doctor").want(t, exitDiffers, "persistence, "+addr+": neither snapshots (save) nor the append-only file are on\n"+
		"  means: after a restart the library is gone, as are all counts, and calls answer: ERR Function not found\n"+
		"  do:    turn one on, as with CONFIG SET appendonly yes, or keep this running: ratelimit status --redis redis://"+addr+" --watch\n\n1 finding on 1 server\n", "")
	var d loader.Diagnosis
	if got := run(t, env, "doctor", "--json"); json.Unmarshal([]byte(got.stdout), &d) != nil || got.code != exitDiffers || len(d.Findings) != 1 || d.Findings[0].Check != "persistence" {
		t.Errorf("%+v", got)
	}
	do(t, admin(t, addr), "CONFIG", "SET", "appendonly", "yes")
	run(t, env, "doctor").want(t, exitFine, "0 findings on 1 server\n", "")
}

// What acl prints is what a server takes, and lets that user do what it is for.
func TestACL(t *testing.T) {
	addr := startRedis(t)
	rdb := admin(t, addr)
	got := run(t, nil, "acl", "--prefix", "rl:", "--cluster")
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	if got.code != exitFine || len(lines) != 3 {
		t.Fatalf("%+v", got)
	}
	if want := "redis-cli ACL SETUSER ratelimit-deployer reset on '>PASSWORD' +ping '+function|load' '+function|list' '+function|delete' '+function|stats' +time +role +wait '+cluster|shards'"; lines[2] != want {
		t.Errorf("%s\nwant\n%s", lines[2], want)
	}
	// Each shell takes the lines as they stand, but for the password and the address of the server.
	_, port, _ := strings.Cut(addr, ":")
	paste := strings.NewReplacer("PASSWORD", "pw", "redis-cli ", "redis-cli -e -p "+port+" ").Replace(got.stdout)
	for _, name := range []string{"bash", "zsh", "sh"} {
		do(t, rdb, "ACL", "DELUSER", "ratelimit-application", "ratelimit-peek", "ratelimit-deployer")
		shell := exec.Command(name, "-e")
		shell.Dir, shell.Stdin = t.TempDir(), strings.NewReader(paste)
		said, err := shell.CombinedOutput()
		if left, _ := os.ReadDir(shell.Dir); err != nil || string(said) != "OK\nOK\nOK\n" || len(left) != 0 {
			t.Errorf("%s: %v: %s, and left %v", name, err, said, left)
		}
		for _, u := range users(t, "--prefix", "rl:", "--cluster") {
			do(t, rdb, append([]any{"ACL", "SETUSER", "want"}, anys(u.Rules)...)...)
			if made, want := do(t, rdb, "ACL", "GETUSER", u.User).(map[any]any), do(t, rdb, "ACL", "GETUSER", "want").(map[any]any); made["commands"] != want["commands"] || made["keys"] != want["keys"] {
				t.Errorf("%s: %s is %v, want %v", name, u.User, made, want)
			}
		}
	}
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
		{"peek", []string{"peek", "rl:a", "1/m"}, exitDiffers},
		{"peek", []string{"take", "rl:a", "1/m"}, exitError},
		{"deployer", []string{"status"}, exitFine},
		{"deployer", []string{"delete", "--yes"}, exitFine},
	} {
		if got := run(t, nil, append(tt.args, "--redis", url(tt.user))...); got.code != tt.code {
			t.Errorf("%s, %v: %+v", tt.user, tt.args, got)
		}
	}
	if ci := users(t, "deployer", "--user", "ci"); len(ci) != 1 || ci[0].User != "ci" || ci[0].Rules[0] != "reset" {
		t.Errorf("%+v", ci)
	}
	run(t, nil, "acl", "deployer", "--user", "$(id)").want(t, exitFine,
		"redis-cli ACL SETUSER '$(id)' reset on '>PASSWORD' +ping '+function|load' '+function|list' '+function|delete' '+function|stats' +time +role +wait\n", "")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{}, "acl needs the prefix of the keys that may be limited; --prefix '' allows every key; as in: ratelimit acl --prefix rl:"},
		{[]string{"a", "b"}, "acl takes one kind of user, but got 2; as in: ratelimit acl application --prefix rl:"},
		{[]string{"root", "--prefix", ""}, `there is no access "root"; choose application, peek or deployer`},
		{[]string{"--user", "x", "--prefix", "y"}, "--user names one user; say which of application, peek and deployer it is; as in: ratelimit acl application --user web --prefix 'rl:'"},
		{[]string{"peek", "--user", "x y", "--prefix", "y"}, `--user "x y" holds a space or a control character; choose another name`},
	} {
		run(t, nil, append([]string{"acl"}, tt.args...)...).want(t, exitError, "", "ratelimit: "+tt.want+"\n")
	}
}

// users are what acl --json prints.
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

// Through Sentinels: the primary that they name, and the next one after a failover.
func TestSentinel(t *testing.T) {
	primary := startRedis(t)
	host, port, _ := strings.Cut(primary, ":")
	replica := startRedis(t, "--replicaof", host+" "+port)
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	text := "sentinel monitor mymaster " + host + " " + port + " 1\nsentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 3000\n"
	if err := os.WriteFile(config, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	sentinel := startSentinel(t, config)
	watching := admin(t, sentinel)
	eventually(t, "the Sentinel knows the replica", func() bool {
		state, err := watching.Do(t.Context(), "SENTINEL", "CKQUORUM", "mymaster").Text()
		list, _ := watching.Do(t.Context(), "SENTINEL", "REPLICAS", "mymaster").Slice()
		return err == nil && strings.HasPrefix(state, "OK") && len(list) == 1
	})
	for _, servers := range [][]string{{"--redis", "redis-sentinel://" + sentinel + "/mymaster"}, {"--redis", "redis://" + sentinel, "--sentinel", "mymaster"}} {
		if got := run(t, nil, append([]string{"deploy"}, servers...)...); got.code != exitFine || !strings.Contains(got.stdout, primary+"  primary") {
			t.Errorf("%v: %+v", servers, got)
		}
		if got := run(t, nil, append([]string{"take", "a", "100/m"}, servers...)...); got.code != exitFine {
			t.Errorf("%v: %+v", servers, got)
		}
	}
	servers := []string{"--redis", "redis-sentinel://" + sentinel + "/mymaster"}
	following := admin(t, replica)
	eventually(t, "the replica has the library", func() bool {
		list, err := following.FunctionList(t.Context(), redis.FunctionListQuery{LibraryNamePattern: functions.Name}).Result()
		return err == nil && len(list) == 1
	})
	eventually(t, "the replica takes over", func() bool {
		// A Sentinel may find the replica unfit yet, or give a failover up: it is asked until one is done.
		if reply, err := watching.Do(t.Context(), "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster").StringSlice(); err == nil && net.JoinHostPort(reply[0], reply[1]) == primary {
			_ = watching.Do(t.Context(), "SENTINEL", "FAILOVER", "mymaster").Err()
		}
		got := run(t, nil, append([]string{"status"}, servers...)...)
		return got.code == exitFine && strings.Contains(got.stdout, replica+"  primary")
	})
	run(t, nil, "status", "--redis", "redis-sentinel://"+sentinel).want(t, exitError, "",
		"ratelimit: --redis does not name the primary that the Sentinels watch; write redis-sentinel://host:26379,host:26379/name; give one such as redis://user:password@host:6379\n")
	run(t, nil, "status", "--redis", "redis://"+sentinel, "--sentinel", "x", "--cluster").want(t, exitError, "",
		"ratelimit: --cluster and Sentinels contradict each other: Sentinels watch a primary that is no cluster; leave one out\n")
	// One sentence, whichever command asks.
	plain, nowhere := startRedis(t), "127.0.0.1:1"
	do(t, watching, "SENTINEL", "MONITOR", "gone", "127.0.0.1", "1", "1")
	const none = "; check the URL and that the server runs, or start one that needs no Redis with: ratelimit dev"
	for _, tt := range []struct {
		args           []string
		want, fleetful string
	}{
		{[]string{"--redis", "redis://" + sentinel, "--sentinel", "nobody"},
			`cannot reach the primary "nobody" of redis://` + sentinel + ": the Sentinels watch no primary of this name; give the name that they know with --sentinel (MasterName)", ""},
		{[]string{"--redis", "redis://" + plain, "--sentinel", "mymaster"},
			`cannot reach the primary "mymaster" of redis://` + plain + ": it is no Sentinel; give the addresses of the Sentinels, whose port is usually 26379, or leave out --sentinel (redis-sentinel://)", ""},
		{[]string{"--redis", "redis-sentinel://" + nowhere + "/mymaster"},
			`cannot reach the primary "mymaster" of redis-sentinel://` + nowhere + "/mymaster: no Sentinel answers: connection refused" + none,
			"cannot reach the primary: no Sentinel answers: connection refused; check the address, and that the server runs"},
		{[]string{"--redis", "redis-sentinel://" + sentinel + "/gone"},
			`cannot reach the primary "gone" of redis-sentinel://` + sentinel + "/gone, at " + nowhere + ": connection refused" + none,
			"cannot reach " + nowhere + ": connection refused; check the address, and that the server runs"},
		{[]string{"--redis", "redis://" + sentinel},
			"redis://" + sentinel + " is a Sentinel, which holds no data; name the primary that it watches with --sentinel, or connect to that primary",
			sentinel + " is a Sentinel, which holds no data; name the primary that it watches with --sentinel (MasterName), or connect to that primary"},
	} {
		if tt.fleetful == "" {
			tt.fleetful = tt.want
		}
		run(t, nil, append([]string{"take", "a", "1/s"}, tt.args...)...).want(t, exitError, "", "ratelimit: "+tt.want+"\n")
		run(t, nil, append([]string{"deploy"}, tt.args...)...).want(t, exitError, "", "ratelimit: "+tt.fleetful+"\n")
	}
}

func TestTLSFiles(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.pem")
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--redis", "redis://h:1", "--tls-ca", none}, "--tls-ca, --tls-cert and --tls-key are about TLS, and the URL does not ask for it; write rediss:// in place of redis://"},
		{[]string{"--redis", "rediss://h:1", "--tls-ca", none}, "--tls-ca: open " + none + ": no such file or directory; name a file with certificates"},
		{[]string{"--redis", "rediss://h:1", "--tls-ca", empty}, "--tls-ca: " + empty + " holds no certificate; name a file in PEM form"},
		{[]string{"--redis", "rediss://h:1", "--tls-cert", empty}, "--tls-cert and --tls-key go together; give both"},
		{[]string{"--redis", "rediss://h:1", "--tls-cert", empty, "--tls-key", empty}, "--tls-cert and --tls-key: tls: failed to find any PEM data in certificate input; name files in PEM form that belong together"},
	} {
		run(t, nil, append([]string{"status"}, tt.args...)...).want(t, exitError, "", "ratelimit: "+tt.want+"\n")
	}
}
