package main

import (
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestCommandsOfTheDocuments checks that the commands in docs/budgets.md print what the page shows
// if the proxy runs with -offline.
func TestCommandsOfTheDocuments(t *testing.T) {
	redisURL, upstream := startOffline()
	limiter := redistest.Must[*client.Client](t)(client.Open(redisURL, client.WithTimeout(time.Minute)))
	defer limiter.Close()
	base := redistest.Must[*url.URL](t)(url.Parse(upstream))
	accounts := redistest.Must[map[string]account](t)(readAccounts("accounts.json"))
	server := httptest.NewServer(&proxy{limiter: limiter, upstream: base, answer: 1000, accounts: accounts})
	defer server.Close()
	page := redistest.Must[[]byte](t)(os.ReadFile("../../docs/budgets.md"))
	commands := regexp.MustCompile(`(?m)^curl .*$`).FindAllString(string(page), -1)
	wants := [][]string{
		{"\"A \"}}]}\n\ndata: ", "[DONE]"},
		{"200 OK", "\r\nRatelimit: \"org\";r=19984", `"total_tokens":15005`},
		{"429 Too Many Requests", "\r\nRetry-After: 60", "the budget of the user is used up"},
	}
	if len(commands) != len(wants) {
		t.Fatalf("the page has the commands %q, and this test knows %d", commands, len(wants))
	}
	for i, command := range commands {
		if !strings.Contains(command, "http://localhost:8080/v1/chat/completions") {
			t.Errorf("%s: it calls something else", command)
		}
		output, err := exec.Command("sh", "-c", strings.ReplaceAll(command, "http://localhost:8080", server.URL)).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v", command, err)
		}
		for _, want := range wants[i] {
			if !strings.Contains(string(output), want) {
				t.Errorf("%s\nprinted\n%s\nwithout %q", command, output, want)
			}
		}
	}
}

func TestWrongAccounts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "accounts.json")
	for text, want := range map[string]string{
		``:   "accounts.json: unexpected end of JSON input",
		`[]`: "accounts.json: json: cannot unmarshal array",
		`{"": {"org": "acme", "team": "search", "user": "ann"}}`: `the account of the key "" is {Org:acme Team:search User:ann Class:}; give a key,`,
		`{"sk": {"team": "search", "user": "ann"}}`:              `the account of the key "sk" is {Org: Team:search User:ann Class:}`,
		`{"sk": {"org": "acme", "user": "ann"}}`:                 `{Org:acme Team: User:ann Class:}`,
		`{"sk": {"org": "acme", "team": "search"}}`:              `{Org:acme Team:search User: Class:}`,
	} {
		redistest.Require(t, os.WriteFile(file, []byte(text), 0o600))
		if _, err := readAccounts(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := readAccounts(filepath.Join(file, "missing")); err == nil {
		t.Error("read a file that does not exist")
	}
}
