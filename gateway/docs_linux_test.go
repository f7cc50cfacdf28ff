package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pages is the folder with a page for each proxy.
const pages = "../docs/gateway/"

// blocks returns the code blocks in a language from a section of a document.
func blocks(t *testing.T, document, section, language string) []string {
	t.Helper()
	file := must[[]byte](t)(os.ReadFile(document))
	_, text, found := strings.Cut(string(file), "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	if !found {
		t.Fatalf("%s has no section %s", document, section)
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

// TestPages compares the pages of docs/gateway with the recipes. The pages of tested proxies must also
// state the responses that TestRecipes checks.
func TestPages(t *testing.T) {
	files := map[string][]string{"traefik": {"traefik.yaml"}, "envoy": {"envoy-ext-authz.yaml"}}
	for name, p := range proxies {
		name, short, _ := strings.Cut(name, ", ")
		files[name] = append(files[name], p.files...)
		page := string(must[[]byte](t)(os.ReadFile(pages + name + ".md")))
		rows := map[string]int{"the gateway has no decision, because Redis is down or lacks the library": p.undecided, "the gateway is down": p.down,
			"the server does not have the policy, or the request lacks its key": p.wrong}
		for row, status := range rows {
			response := fmt.Sprint("status ", status)
			if status == http.StatusOK {
				response = "the application's response, without these fields"
			}
			if row = "| " + row + " | " + response + " |\n"; !strings.Contains(page, row) {
				t.Errorf("the page of %s has no row %s", name, row)
			}
		}
		if row := "| allowed | the application's response, with `RateLimit` and `RateLimit-Policy` |\n"; strings.Contains(page, row) != p.fields && short == "" {
			t.Errorf("the page of %s is wrong about the fields of allowed requests", name)
		}
	}
	var shape []string
	for name, list := range files {
		page := string(must[[]byte](t)(os.ReadFile(pages + name + ".md")))
		for _, file := range list {
			if text := must[[]byte](t)(os.ReadFile(recipes + file)); !strings.Contains(page, "\n"+string(text)+"```\n") {
				t.Errorf("the page of %s has another text of %s", name, file)
			}
		}
		headings := regexp.MustCompile(`(?m)^## .*`).FindAllString(page, -1)
		if shape == nil {
			shape = headings
		}
		if len(headings) != 4 || !slices.Equal(headings, shape) {
			t.Errorf("the page of %s has the headings %q, another %q", name, headings, shape)
		}
	}
	if listed := must[[]string](t)(filepath.Glob(pages + "*.md")); len(listed) != len(files) {
		t.Errorf("%d pages for %d proxies", len(listed), len(files))
	}
}

// TestFiveCommands runs the five commands in docs/gateway.md, and checks that they show a
// limit.
func TestFiveCommands(t *testing.T) {
	commands := blocks(t, "../docs/gateway.md", "A limited nginx in five commands", "sh")
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
	call, replies := blocks(t, "../docs/gateway.md", "The plain API", "sh"), blocks(t, "../docs/gateway.md", "The plain API", "json")
	if got := shell(t, call[0], gateway, ""); !strings.Contains(got, replies[0]+"\n") {
		t.Errorf("%s\nprints\n%s\nwant\n%s", call[0], got, replies[0])
	}
	wrong := strings.Replace(call[0], `"cost"`, `"costs"`, 1)
	if got := shell(t, wrong, gateway, ""); !strings.Contains(got, replies[1]+"\n") {
		t.Errorf("%s\nprints\n%s\nwant\n%s", wrong, got, replies[1])
	}
}

func TestDocumentOfReservations(t *testing.T) {
	gateway, _ := startGateway(t, "--dev")
	const document, section = "../docs/reservations.md", "In JSON"
	calls, replies := blocks(t, document, section, "sh"), blocks(t, document, section, "json")
	if len(calls) != 2 || len(replies) != 2 {
		t.Fatalf("%d calls and %d replies", len(calls), len(replies))
	}
	id := regexp.MustCompile(`"reservation_id":"(\w+)"`)
	documented := id.FindStringSubmatch(replies[0])[1]
	made := shell(t, calls[0], gateway, "")
	got := id.FindStringSubmatch(made)
	if got == nil || len(got[1]) != len(documented) || !strings.Contains(strings.Replace(made, got[1], documented, 1), replies[0]+"\n") {
		t.Fatalf("%s\nprints\n%s\nwant\n%s", calls[0], made, replies[0])
	}
	if committed := shell(t, strings.Replace(calls[1], documented, got[1], 1), gateway, ""); !strings.Contains(committed, replies[1]+"\n") {
		t.Errorf("%s\nprints\n%s\nwant\n%s", calls[1], committed, replies[1])
	}
}
