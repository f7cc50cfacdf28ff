// Package examples runs what the documents show, so that it cannot rot: the marked blocks of README.md and the files
// of examples/, against any server that has the library.
package examples

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Example is one piece of code and what it has to print.
type Example struct {
	Name string
	Want string // the output, blanks folded
	run  func(ctx context.Context, root string, env []string) (string, error)
}

// The blocks of README.md, each after a line `<!-- run: LANGUAGE -->`, and what they print. A block that is not listed
// here, or is listed and gone, is an error of All.
var blocks = map[string]struct {
	want string
	run  func(code string) func(context.Context, string, []string) (string, error)
}{
	"sh":     {"1 3 2 0 20000 1 1 3 1 0 * 1 1 3 0 0 * 1 0 3 0 * * 1", shell},
	"go":     {"true 99 0s", goProgram},
	"python": {"1 19", python},
}

var marked = regexp.MustCompile("(?s)<!-- run: (\\w+) -->\n```\\w+\n(.*?)```")

// All returns the examples of the checkout at root.
func All(root string) ([]Example, error) {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		return nil, err
	}
	all := []Example{
		{Name: "examples/first_call.py", Want: "allowed: 99 of 100 left", run: file("python3", "first_call.py")},
		{Name: "examples/first_call.sh", Want: "allowed: 0 of 1 left", run: file("sh", "first_call.sh")},
	}
	found := marked.FindAllStringSubmatch(string(readme), -1)
	if len(found) != len(blocks) {
		return nil, fmt.Errorf("README.md has %d marked blocks, want %d", len(found), len(blocks))
	}
	for _, match := range found {
		block, ok := blocks[match[1]]
		if !ok {
			return nil, fmt.Errorf("README.md has a block to run in %q, which nothing here runs", match[1])
		}
		all = append(all, Example{Name: "README.md " + match[1], Want: block.want, run: block.run(match[2])})
	}
	return all, nil
}

// Run runs the example against a server and compares what it prints. A * in Want stands for any one word.
func (e Example) Run(ctx context.Context, root, redisURL string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	output, err := e.run(ctx, root, append(os.Environ(), "REDIS_URL="+redisURL))
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", e.Name, err, output)
	}
	got, want := strings.Fields(output), strings.Fields(e.Want)
	same := len(got) == len(want)
	for i := 0; same && i < len(want); i++ {
		same = want[i] == "*" || want[i] == got[i]
	}
	if !same {
		return fmt.Errorf("%s printed %q, want %q", e.Name, strings.Join(got, " "), e.Want)
	}
	return nil
}

func file(program, name string) func(context.Context, string, []string) (string, error) {
	return func(ctx context.Context, root string, env []string) (string, error) {
		return command(ctx, filepath.Join(root, "examples"), env, interpreter(program), name)
	}
}

// shell runs the block with redis-cli pointed at the server.
func shell(code string) func(context.Context, string, []string) (string, error) {
	return func(ctx context.Context, root string, env []string) (string, error) {
		server, err := url.Parse(strings.TrimPrefix(env[len(env)-1], "REDIS_URL="))
		if err != nil {
			return "", err
		}
		script := fmt.Sprintf("set -e\nalias redis-cli='redis-cli -h %s -p %s'\n%s", server.Hostname(), server.Port(), code)
		return command(ctx, root, env, "sh", "-c", script)
	}
}

func python(code string) func(context.Context, string, []string) (string, error) {
	return func(ctx context.Context, root string, env []string) (string, error) {
		return command(ctx, root, env, interpreter("python3"), "-c", code)
	}
}

// goProgram runs the block within the checkout's own module.
func goProgram(code string) func(context.Context, string, []string) (string, error) {
	return func(ctx context.Context, root string, env []string) (string, error) {
		folder := filepath.Join(root, ".build", fmt.Sprintf("readme-%d", os.Getpid()))
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return "", err
		}
		defer os.RemoveAll(folder)
		name := filepath.Join(folder, "main.go")
		if err := os.WriteFile(name, []byte(code), 0o644); err != nil {
			return "", err
		}
		return command(ctx, root, env, "go", "run", name)
	}
}

// interpreter prefers the system's Python, for which the distribution's package of the client is installed.
func interpreter(program string) string {
	if system := filepath.Join("/usr/bin", program); program == "python3" {
		if _, err := os.Stat(system); err == nil {
			return system
		}
	}
	return program
}

func command(ctx context.Context, folder string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = folder, env
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failure
	if err := cmd.Run(); err != nil {
		return out.String() + failure.String(), err
	}
	return out.String(), nil
}
