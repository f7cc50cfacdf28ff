package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/luastring"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// evil is text that a malicious server might send. It contains 7-bit and 8-bit escape sequences,
// changes the direction of text, and is not valid UTF-8.
const evil = "\x1b]0;pwned\x07\u009b31m\u202eabc\u2066\x7f\xff\x9b"

// harmful returns part of text that would affect a terminal, or "" if there is none. It ignores our
// own styles.
func harmful(text string) string {
	text = regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(text, "")
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r <= 0x9f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == utf8.RuneError && size == 1 {
			return text[max(0, i-30):min(len(text), i+30)]
		}
	}
	return ""
}

// All text from a server is escaped in the output, in every position.
func TestTextsOfServersArePrintable(t *testing.T) {
	quoted := string(luastring.Append(nil, evil))
	library := "#!lua name=ratelimit\nlocal VERSION = '9.9" + evil + "'\nlocal CONTRACT = 1\nlocal BUILD_ID = 'b" + evil + "'\n" +
		"--@ src/" + evil + ".lua\nredis.register_function{function_name = 'ratelimit_take', callback = function() return " + quoted + " end}\n"
	lists := map[string]any{
		"ours": []any{[]any{"library_name", "ratelimit", "engine", "LUA", "functions", []any{}, "library_code", library}},
		"with a record": []any{
			[]any{"library_name", "ratelimit", "engine", "LUA", "functions", []any{}, "library_code", must[string](t)(text.Text{}.With(map[string]text.Part{
				"": {Number: 1, Value: functions.Source(), Replaced: library, Log: []text.Entry{{Number: 1, Who: evil, Changed: []string{evil}, Back: true}}},
			}).Render("x", evil))},
		},
		"under a lease": []any{
			[]any{"library_name", "ratelimit_lease_" + evil, "engine", "LUA", "functions", []any{[]any{"name", "ratelimit_lease"}}, "library_code",
				"local WHO = " + quoted + "\nlocal FROM_MS = 1700000000000\nlocal UNTIL_MS = 1800000000000\n"},
		},
		"of somebody else": []any{[]any{"library_name", evil, "engine", "LUA", "functions", []any{[]any{"name", "ratelimit_take"}}, "library_code", ""}},
		"foreign":          []any{[]any{"library_name", "ratelimit", "engine", evil, "functions", []any{}, "library_code", evil}},
		"no list":          evil,
	}
	// Each element of replies maps the beginnings of commands to the server's replies.
	replies := []map[string]any{
		{"HELLO": []any{"server", "redis" + evil, "version", "7.0.15" + evil, "proto", 2, "mode", "standalone", "role", "master"}},
		{"HELLO": []any{"server", "redis", "version", evil, "proto", 2, "mode", "cluster", "role", "replica"}, "ROLE": []any{"slave", evil, 7, "connect", 0}},
		{"HELLO": []any{"server", "valkey", "version", evil, "proto", 2, "mode", evil, "role", "master"}, "FUNCTION STATS": []any{"running_script", nil, "engines", []any{evil, []any{}}}},
		{"HELLO": evil}, {"HELLO": []any{"server", evil}}, {"HELLO": errors.New("ERR " + evil), "INFO": "redis_version:" + evil + "\r\nredis_mode:standalone\r\nrole:master\r\n"},
		{"INFO": "maxmemory:" + evil + "\r\nmaxmemory_policy:" + evil + "\r\nrdb_last_bgsave_status:" + evil + "\r\nrole:slave\r\nmaster_host:" + evil +
			"\r\nmaster_port:1\r\nmaster_link_status:" + evil + "\r\nslave0:ip=" + evil + ",port=1,state=" + evil + "\r\n"},
		{"ROLE": []any{"master", 0, []any{[]any{evil, "7", "0"}}}},
		{"CLUSTER SHARDS": []any{[]any{"slots", []any{0, 5}, "nodes", []any{[]any{"port", 7, "endpoint", evil, "role", "master", "health", "online"}}}},
			"CLUSTER SLOTS": []any{[]any{0, 16383, []any{evil, 7, "id"}}}},
		{"CLUSTER INFO": "cluster_state:" + evil + "\r\n"},
		{"FCALL_RO RATELIMIT_INFO": []any{"version", evil, "contract", 1, "build_id", evil, "policies", []any{evil}, "shadow_denied", []any{evil, 1}, "policy_calls", []any{[]any{evil, 1, 2, 3, 4, 5}}}},
		{"FCALL": []any{evil, 1}}, {"FCALL": evil}, {"SCAN": []any{"0", []any{"user:1", evil}}}, {"SCAN": evil},
		{"GETRANGE": fmt.Sprintf("limit:1800000000000:0:%d:%s", len(evil), evil)}, {"TYPE": evil}, {"GETRANGE": []any{evil}},
		{"FUNCTION LIST": lists["ours"], "FUNCTION LOAD": errors.New("ERR Function " + strings.ReplaceAll(evil, "\n", "") + " already exists")},
	}
	for _, list := range lists {
		replies = append(replies, map[string]any{"FUNCTION LIST": list})
	}
	errorsFrom := len(replies) // from this index on, replies has len(codes) errors for each command
	codes := []string{"", "ERR Error ", "NOPERM ", "RATELIMIT BADLIMIT "}
	for _, step := range []string{"HELLO", "PING", "TIME", "SCAN", "HMGET", "TYPE", "GETRANGE", "INFO", "ROLE", "CONFIG", "FCALL", "FUNCTION STATS", "FUNCTION LIST", "FUNCTION LOAD", "CLUSTER"} {
		for _, code := range codes {
			replies = append(replies, map[string]any{step: errors.New(code + evil)})
		}
	}
	commands := [][]string{
		{"status"}, {"plan", "--diff"}, {"doctor"}, {"load", "--limit", "5/m", "--iterations", "2"}, {"top"}, {"override"}, {"usage", "user:1"}, {"policies"}, {"take", "k", "5/m"},
		{"take", "k", "5/m", "--dry-run"}, {"rollback"}, {"history"}, {"delete", "--yes"}, {"deploy", "--replace-foreign", "--allow-downgrade", "--remove-policies"}, {"deploy"},
	}
	srv := withLibrary(t)
	rdb := admin(t, srv.Addr())
	shown := 0
	idle := map[string]bool{} // commands that do not use the replaced reply, and never change the library
	for i, reply := range replies {
		if i <= errorsFrom || (i-errorsFrom)%len(codes) == 0 {
			clear(idle)
		}
		cluster := false
		for step := range reply {
			cluster = cluster || strings.HasPrefix(step, "CLUSTER")
		}
		var asked atomic.Bool
		addr := standIn(t, srv, cluster, func(words []string) string {
			line := strings.ToUpper(strings.Join(words[:min(len(words), 3)], " ")) + " " // the first three words, because the next may be the library's text
			for step, reply := range reply {
				if strings.HasPrefix(line, step+" ") || step == "FCALL" && strings.HasPrefix(line, "FCALL_RO ") {
					asked.Store(true)
					return resp(reply)
				}
			}
			return ""
		})
		require(t, srv.Load(functions.Source()))
		do(t, rdb, "FCALL", "ratelimit_take", 2, "k", "user:1", "5/m", "TRACK")
		do(t, rdb, "FCALL", "ratelimit_take", 2, "k", evil, "5/m", "TRACK")
		do(t, rdb, "FCALL", "ratelimit_override", 1, evil+" limited", "5/m", 3600000)
		for _, command := range commands {
			line := strings.Join(command, " ")
			if idle[line] { // the command does not use the replaced reply
				continue
			}
			asked.Store(false)
			for _, form := range []string{"as text", "as JSON", "on a terminal"} {
				if form != "as text" && !asked.Load() || form == "on a terminal" && command[0] != "top" {
					break
				}
				args := command
				if form == "as JSON" {
					args = append(slices.Clone(command), "--json")
				}
				var stdout, stderr bytes.Buffer
				a := testApp([]string{redisURL(addr), "TERM=xterm"}, &stdout, &stderr)
				a.terminal, a.size = form == "on a terminal", func() (int, int) { return 100, 30 }
				a.execute(t.Context(), args)
				if found := harmful(stdout.String() + stderr.String()); found != "" {
					t.Errorf("%.200q: %s %s prints %q", reply, command, form, found)
				}
				if form == "as JSON" && stdout.Len() > 0 && !json.Valid(stdout.Bytes()) {
					t.Errorf("%.200q: %s prints no JSON: %s", reply, command, stdout.String())
				}
				if strings.Contains(stdout.String()+stderr.String(), "pwned") {
					shown++
				}
			}
			idle[line] = !asked.Load() && !slices.Contains([]string{"rollback", "delete", "deploy"}, command[0])
		}
	}
	if shown < 500 {
		t.Errorf("only %d outputs show a text of the server", shown)
	}
}

// All text from a server is escaped in the events of a watch and in the data of the dashboard's
// page.
func TestTextsOfServersArePrintableLive(t *testing.T) {
	srv := withLibrary(t)
	counted(t, srv, evil)
	addr := standIn(t, srv, false, func(words []string) string {
		switch line := strings.ToUpper(strings.Join(words, " ")); {
		case strings.HasPrefix(line, "HELLO"):
			return resp([]any{"server", "redis", "version", evil, "proto", 2, "mode", "standalone", "role", "master"})
		case strings.HasPrefix(line, "FUNCTION LIST"):
			return resp([]any{[]any{"library_name", evil, "engine", "LUA", "functions", []any{[]any{"name", "ratelimit_take"}}, "library_code", ""}})
		case strings.HasPrefix(line, "FCALL_RO RATELIMIT_INFO"):
			return resp([]any{"version", evil, "contract", 1, "build_id", evil, "policies", []any{evil}, "shadow_denied", []any{evil, 1}, "policy_calls", []any{[]any{evil, 1, 2}}})
		}
		return ""
	})
	for _, flags := range [][]string{nil, {"--json"}} {
		s := start(t, []string{redisURL(addr)}, append([]string{"status", "--watch"}, flags...)...)
		eventually(t, "an event", func() bool { return strings.Contains(s.stdout.String(), "\n") })
		got := s.end()
		if found := harmful(got.stdout + got.stderr); found != "" || !strings.Contains(got.stdout, "pwned") {
			t.Errorf("status --watch %v prints %q of %s", flags, found, got.stdout)
		}
	}
	events := firstLook(t, serveDashboard(t, addr), `"looked_ms":1`)
	var event any
	data := events[strings.LastIndex(events, "data: ")+len("data: "):]
	if err := json.Unmarshal([]byte(data), &event); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	if text := fmt.Sprint(event); harmful(text) != "" || strings.Count(text, "pwned") < 4 { // server, state, policy, key
		t.Errorf("the page gets %q of %s", harmful(text), text)
	}
}

// All text from files and from the command line is escaped in the output.
func TestTextsOfFilesArePrintable(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		require(t, os.WriteFile(name, []byte(text), 0o666))
		return name
	}
	line := func(key string) string {
		return key + ` - - [01/Mar/2026:18:00:00 +0000] "GET /` + key + ` HTTP/1.1" 200 512 "-" "` + key + `"` + "\n"
	}
	log := file("access.log", strings.Repeat(line("a"+evil), 5)+evil+"\n"+line("b"))
	inYAML := strings.Trim(strconv.Quote(strings.ToValidUTF8(evil, "")), `"`)
	wrong := file("wrong.yaml", "policies:\n  \"p"+inYAML+"\": 10/m\n  api: \"10/m "+inYAML+"\"\n  \""+inYAML+"\": {limit: 1/s, \""+inYAML+"\": 1}\n")
	right := file("right.yaml", "policies:\n  api: {limit: 10/m, description: \""+inYAML+"\"}\n")
	tests := file("tests.yaml", "policies: right.yaml\ntests:\n  - name: \""+inYAML+"\"\n    calls:\n      - at: 0s\n        take: [api, \""+inYAML+"\"]\n        expect: {remaining: 3}\n")
	shown := 0
	for _, command := range [][]string{
		{"backtest", log, "--limit", "1/m"}, {"backtest", log, "--limit", "1/m", "--key", "agent"}, {"backtest", log}, {"backtest", log, "--cost", "agent"}, {"backtest", log, "--cost", evil}, {"backtest", log, "--limit", "1/m " + evil}, {"backtest", evil, "--limit", "1/m"},
		{"verify", "--policies", wrong}, {"verify", "--policies", right}, {"verify", "--policies", log}, {"verify", "--library", log}, {"verify", "--library", evil}, {"test", tests}, {"test", log}, {"test", tests, "--run", evil},
		{"build", "--policies", wrong}, {"build", "--policies", right, "-o", filepath.Join(dir, "out"+evil)}, {"plan", "--library", log}, {"take", evil, evil}, {"take", "k", "1/s", "--redis", evil}, {evil}, {"take", "--" + evil},
		{"acl", "--prefix", evil}, {"acl", "--prefix", "pwned\u009b"}, {"acl", "deployer", "--user", "pwned\u009b"}, {"acl", "application", "--user", evil, "--prefix", "rl:"}, {"top", "--by", evil}, {"load", "--limit", "1/m", "--draw", evil}, {"dashboard", "--listen", evil}, {"dev", "--addr", evil},
	} {
		for _, form := range []string{"as text", "as JSON", "on a terminal"} {
			args := command
			if form == "as JSON" {
				args = append(slices.Clone(command), "--json")
			}
			var stdout, stderr bytes.Buffer
			a := testApp([]string{"REDIS_URL=redis://127.0.0.1:1", "TERM=xterm"}, &stdout, &stderr)
			a.terminal, a.size = form == "on a terminal", func() (int, int) { return 40, 30 }
			a.execute(t.Context(), args)
			if found := harmful(stdout.String() + stderr.String()); found != "" {
				t.Errorf("%q %s prints %q", command, form, found)
			}
			if form == "as JSON" && stdout.Len() > 0 && !json.Valid(stdout.Bytes()) {
				t.Errorf("%q prints no JSON: %s", command, stdout.String())
			}
			if strings.Contains(stdout.String()+stderr.String(), "pwned") {
				shown++
			}
		}
	}
	if shown < 50 {
		t.Errorf("only %d outputs show a text of a file", shown)
	}
}
