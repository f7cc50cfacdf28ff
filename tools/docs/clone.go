//go:build unix

package docs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// Clone is the environment of a new user: a clone of the project, a PATH with ratelimit and the
// other programs, and a Go module proxy with a release of the clone's content. The examples change
// the clone, so only one run of the documents may use it at a time.
type Clone struct {
	Dir string // the clone

	bin string // the directory with ratelimit, which is first on PATH
	env []string
}

// NewClone clones the checkout at root into dir, including uncommitted changes. The clone contains
// the files that git tracks or would add.
func NewClone(ctx context.Context, root, dir string) (*Clone, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	c := &Clone{Dir: filepath.Join(dir, "clone"), bin: filepath.Join(dir, "bin")}
	proxy := filepath.Join(dir, "proxy")
	if err := os.Mkdir(c.Dir, 0o755); err != nil {
		return nil, err
	}
	if err := programs(c.bin); err != nil {
		return nil, err
	}
	env, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	known := strings.Split(string(env), "\n")
	c.env = append(append(os.Environ(), onPath(c.bin)...),
		"GOMODCACHE="+filepath.Join(dir, "modules"),
		// Other modules come from the local download cache or, if they are not there, from their
		// origin.
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(known[0], "cache", "download")+","+known[1],
		"GONOPROXY=none", "GOSUMDB=off",
		"GOFLAGS=-modcacherw -trimpath", // so that the module cache can be removed, and cached builds can be used in any directory
	)
	for _, words := range [][]string{
		{"git", "init", "-q"},
		{"git", "--git-dir=.git", "--work-tree=" + root, "add", "-A"},
		{"git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false", "commit", "-q", "-m", "all of it"},
		{"git", "reset", "-q", "--hard"}, // checks out the added files
	} {
		if err := c.must(ctx, words...); err != nil {
			return nil, err
		}
	}
	for _, module := range []string{".", "cmd/ratelimit"} {
		if err := c.release(module, proxy); err != nil {
			return nil, err
		}
	}
	const command = "github.com/ratelimit-functions/ratelimit/cmd/ratelimit"
	return c, errors.Join(c.must(ctx, "go", "install", command+"@v"+functions.Version()), c.must(ctx, "go", "install", "./cmd/ratelimit"))
}

// Copy makes another clone in dir, with the content of c before any example ran in it. Copy is much
// faster than NewClone, because both clones share the proxy and Go's module cache, and nothing is
// compiled. No example may run in c before Copy returns.
func (c *Clone) Copy(ctx context.Context, dir string) (*Clone, error) {
	other := &Clone{Dir: filepath.Join(dir, "clone"), bin: filepath.Join(dir, "bin")}
	other.env = append(slices.Clone(c.env), onPath(other.bin)...)
	if err := programs(other.bin); err != nil {
		return nil, err
	}
	return other, errors.Join(c.must(ctx, "git", "clone", "-q", c.Dir, other.Dir), c.must(ctx, "cp", filepath.Join(c.bin, "ratelimit"), other.bin))
}

// onPath returns environment variables that make shells search bin first, and go install write to
// bin.
func onPath(bin string) []string {
	return []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "GOBIN=" + bin}
}

// must runs a command, and discards its output unless it fails.
func (c *Clone) must(ctx context.Context, words ...string) error {
	if _, failure, err := c.command(ctx, "", words...); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(words, " "), err, failure)
	}
	return nil
}

// release adds a version of a module to the module proxy in the directory proxy. dir is the module's path within
// the clone; "." is the root module.
func (c *Clone) release(dir, proxy string) error {
	version := module.Version{Path: path.Join("github.com/ratelimit-functions/ratelimit", dir), Version: "v" + functions.Version()}
	var archive bytes.Buffer
	if err := zip.CreateFromDir(&archive, version, filepath.Join(c.Dir, dir)); err != nil {
		return err
	}
	gomod, err := os.ReadFile(filepath.Join(c.Dir, dir, "go.mod"))
	if err != nil {
		return err
	}
	folder := filepath.Join(proxy, version.Path, "@v")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"list":                    []byte(version.Version + "\n"),
		version.Version + ".info": []byte(`{"Version":"` + version.Version + `"}`),
		version.Version + ".mod":  gomod,
		version.Version + ".zip":  archive.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// programs creates a directory with a redis-cli that connects to the test's server, and with a link
// to the system's Python, which can import the distribution's Redis client.
func programs(bin string) error {
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		return fmt.Errorf("%w; install it (Debian, Ubuntu: apt-get install redis-tools)", err)
	}
	script := "#!/bin/sh\nexec '" + cli + "' -u \"$REDIS_URL\" \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "redis-cli"), []byte(script), 0o755); err != nil {
		return err
	}
	const python = "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		return nil // use the python3 on PATH
	}
	return os.Symlink(python, filepath.Join(bin, "python3"))
}

func (c *Clone) environ(redisURL string) []string {
	return append(slices.Clone(c.env), "REDIS_URL="+redisURL)
}

// command runs a program from the clone's PATH in the clone.
func (c *Clone) command(ctx context.Context, redisURL string, words ...string) (stdout, stderr string, err error) {
	cmd := exec.CommandContext(ctx, "/usr/bin/env", words...)
	cmd.Dir, cmd.Env = c.Dir, c.environ(redisURL)
	var out, failure strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &failure
	err = cmd.Run()
	return out.String(), failure.String(), err
}

// goProgram runs a Go program within the clone's module.
func (c *Clone) goProgram(ctx context.Context, code, redisURL string) (stdout, stderr string, err error) {
	folder, err := os.MkdirTemp(c.Dir, "program")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "main.go")
	if err := os.WriteFile(file, []byte(code), 0o644); err != nil {
		return "", "", err
	}
	return c.command(ctx, redisURL, "go", "run", file)
}
