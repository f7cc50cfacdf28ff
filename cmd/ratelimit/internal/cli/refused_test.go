package cli

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// doctor, status, top, policies and the dashboard report each command that the user may not run. No
// output suggests that everything is fine.
func TestRefusedEachCommand(t *testing.T) {
	addr := startRedis(t, "--appendonly", "yes")
	rdb := admin(t, addr)
	inFolder(t, map[string]string{"policies.yaml": "policies:\n  api: 5/m\n"})
	fine(t, nil, "deploy", "--policies", "policies.yaml", "--redis", addr)
	fine(t, nil, "take", "k", "5/m", "--usage-key", "user:1", "--redis", addr)
	do(t, rdb, "ACL", "SETUSER", "all", "on", ">pw", "~*", "+@all")
	// Some commands succeed without some permissions. enough maps each such pair, "command
	// permission", to text that the command's output must contain.
	enough := map[string]string{
		"top hmget": "1 key may not be read by this user", "top dbsize": "user:1  ", "policies function|list": "@api  ",
	}
	// look runs a command as a user, and returns its output and whether it reports a problem.
	look := func(command, user string) (troubled bool, said string) {
		at := user + ":pw@" + addr
		switch command {
		case "dashboard":
			said = firstLook(t, serveDashboard(t, at), `"faults":`)
			return regexp.MustCompile(`"faults":\["`).MatchString(said) || !strings.Contains(said, `"good":true`), said
		case "doctor":
			got := run(t, nil, "doctor", "--redis", "redis://"+at)
			return got.code == exitDiffers || strings.Contains(got.stdout, "not checked: "), got.stdout + got.stderr
		}
		got := run(t, nil, command, "--redis", "redis://"+at)
		return got.code == exitError && got.stderr != "", got.stdout + got.stderr
	}
	for _, command := range []string{"doctor", "status", "top", "policies", "dashboard"} {
		do(t, rdb, "CONFIG", "RESETSTAT")
		if troubled, said := look(command, "all"); troubled || said == "" {
			t.Fatalf("%s with all rights says %s", command, said)
		}
		stats := must[string](t)(rdb.Info(t.Context(), "commandstats").Result())
		tested := 0
		for _, found := range regexp.MustCompile(`(?m)^cmdstat_([^:]+):`).FindAllStringSubmatch(stats, -1) {
			right := found[1]
			if slices.Contains([]string{"info", "config|resetstat"}, right) && command != "doctor" || slices.Contains([]string{"hello", "config|resetstat"}, right) {
				continue // a command of this test, or one that every user may run
			}
			tested++
			do(t, rdb, "ACL", "SETUSER", "one", "reset", "on", ">pw", "~*", "+@all", "-"+right)
			troubled, said := look(command, "one")
			if text := enough[command+" "+right]; text != "" {
				troubled = strings.Contains(said, text)
			}
			if !troubled {
				t.Errorf("%s without +%s says %s", command, right, said)
			}
		}
		if tested < 2 {
			t.Errorf("%s: only %d commands in\n%s", command, tested, stats)
		}
	}
}

// In a cluster, the advice about rights includes those that a client needs to find the nodes.
func TestRightsInACluster(t *testing.T) {
	first, second := startCluster(t)
	fine(t, nil, "deploy", "--redis", "redis://"+first)
	for _, addr := range []string{first, second} {
		do(t, admin(t, addr), "ACL", "SETUSER", "guest", "reset", "on", ">pw", "+ping")
	}
	for args, want := range map[string]string{
		"take k 1/s": " acl --cluster --redis redis://guest:PASSWORD@" + first + " --prefix KEY_PREFIX\n",
		"top":        "; the user needs " + topRights + " +cluster|slots +command\n",
		"policies":   "; the user needs +fcall_ro|ratelimit_info +cluster|slots +command\n",
	} {
		got := run(t, nil, append(strings.Fields(args), "--redis", "redis://guest:pw@"+first)...)
		if got.code != exitError || !strings.HasSuffix(got.stderr, want) {
			t.Errorf("%s: %+v\nwant at the end %q", args, got, want)
		}
	}
	look := firstLook(t, serveDashboard(t, "guest:pw@"+first), "does not let the user")
	if !strings.Contains(look, "'+function|list' '+function|stats' +role") || strings.Contains(look, "+function|load") {
		t.Errorf("the dashboard says %s", look)
	}
}

// A file without policies changes nothing on the server.
func TestDeployOfAnEmptyFile(t *testing.T) {
	addr := startRedis(t)
	rdb := admin(t, addr)
	inFolder(t, map[string]string{"good.yaml": "policies:\n  api: 5/m\n", "empty.yaml": "", "comments.yaml": "# nothing yet\n", "none.yaml": "policies:\n"})
	fine(t, nil, "deploy", "--policies", "good.yaml", "--redis", addr)
	before := must[string](t)(rdb.FunctionDump(t.Context()).Result())
	for file, want := range map[string]string{
		"empty.yaml":    "empty.yaml: the file is empty; begin with policies:",
		"comments.yaml": "comments.yaml: the file is empty; begin with policies:",
		"none.yaml":     "none.yaml:1:1: policies is empty; write a policy below it, as in api: 100/m",
	} {
		for _, command := range []string{"plan", "deploy"} {
			if got := run(t, nil, command, "--policies", file, "--redis", addr); got.code != exitError || !strings.Contains(got.stderr, want) {
				t.Errorf("%s: exit code %d, %q; want %q", command, got.code, got.stderr, want)
			}
		}
	}
	if after := must[string](t)(rdb.FunctionDump(t.Context()).Result()); after != before {
		t.Error("the libraries on the server have changed")
	}
}
