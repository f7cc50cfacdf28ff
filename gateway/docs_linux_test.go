package main

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// blocks returns the code blocks in a language from a section of docs/gateway.md.
func blocks(t *testing.T, section, language string) []string {
	t.Helper()
	file := must[[]byte](t)(os.ReadFile("../docs/gateway.md"))
	_, text, found := strings.Cut(string(file), "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	if !found {
		t.Fatalf("docs/gateway.md has no section %s", section)
	}
	var list []string
	for _, match := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(text, -1) {
		list = append(list, strings.TrimSpace(match[1]))
	}
	return list
}

// shell runs a code block in bash, after replacing the documented addresses of the gateway and nginx.
func shell(t *testing.T, block, gateway, nginx string) string {
	t.Helper()
	block = strings.NewReplacer("127.0.0.1:8080", gateway, "127.0.0.1:8000", nginx).Replace(block)
	out, err := exec.CommandContext(t.Context(), "bash", "-c", block).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", block, err, out)
	}
	return string(out)
}

// TestFiveCommands runs the five commands in docs/gateway.md, and checks that they show a
// limit.
func TestFiveCommands(t *testing.T) {
	commands := blocks(t, "A limited nginx in five commands", "sh")
	if len(commands) != 6 { // the last block shows how to use a Redis server
		t.Fatalf("%d blocks", len(commands))
	}
	args, found := strings.CutPrefix(commands[1], "go run -C gateway . ")
	file, err := os.ReadFile("../examples/policies.yaml") // this test runs in the folder gateway
	if err != nil || !found || !strings.Contains(args, " ../examples/policies.yaml ") || !strings.Contains(string(file), "limit: 10/s burst=20,") {
		t.Fatalf("%v; the second command is %s", err, commands[1])
	}
	// On a busy machine, forty requests may take so long that a limit of 10/s never denies.
	args = strings.Replace(args, "../examples/policies.yaml", policies(t, "20/h"), 1)
	gateway, _ := startGateway(t, strings.Fields(args)...)

	if commands[2] != "/usr/sbin/nginx -e stderr -p examples/gateway -c try-nginx.conf" {
		t.Fatalf("the third command is %s", commands[2])
	}
	application := freePort(t)
	nginx := proxy{
		files:   []string{"try-nginx.conf", "nginx.conf"},
		command: []string{"/usr/sbin/nginx", "-e", "stderr", "-p", ".", "-c", "try-nginx.conf"}, debian: "nginx",
	}.start(t, gateway, application)

	codes := strings.Fields(shell(t, commands[3], gateway, nginx))
	limited := slices.Index(codes, "429")
	if len(codes) != 40 || limited < 20 || slices.Contains(codes[:20], "429") {
		t.Errorf("the fourth command prints %v", codes)
	}
	shown := shell(t, commands[4], gateway, nginx)
	for _, want := range []string{"RateLimit: \"api\";r=", "RateLimit-Policy: \"api\";q=20"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the fifth command prints\n%s\nwithout %s", shown, want)
		}
	}
}

func TestDocumentOfTheAPI(t *testing.T) {
	gateway, _ := startGateway(t, "--dev")
	call, replies := blocks(t, "The plain API", "sh"), blocks(t, "The plain API", "json")
	if got := shell(t, call[0], gateway, ""); !strings.Contains(got, replies[0]+"\n") {
		t.Errorf("%s\nprints\n%s\nwant\n%s", call[0], got, replies[0])
	}
	wrong := strings.Replace(call[0], `"cost"`, `"costs"`, 1)
	if got := shell(t, wrong, gateway, ""); !strings.Contains(got, replies[1]+"\n") {
		t.Errorf("%s\nprints\n%s\nwant\n%s", wrong, got, replies[1])
	}
}
