//go:build unix

package docs

import (
	"archive/zip"
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

	"github.com/ratelimit-functions/ratelimit/functions"
)

const module = "github.com/ratelimit-functions/ratelimit"

// Clone is the environment of a new user: a clone of the project, ratelimit and the other programs
// on PATH, and Go with a module proxy that has a release of the clone's content. Documents change
// it, so only one run of the documents may use it at a time.
type Clone struct {
	Dir string // the clone

	env []string
}

// NewClone copies the files of the checkout at root, as they are now, into the folder dir. It
// copies the files that git tracks or would add.
func NewClone(ctx context.Context, root, dir string) (*Clone, error) {
	c := &Clone{Dir: filepath.Join(dir, "clone")}
	bin, proxy := filepath.Join(dir, "bin"), filepath.Join(dir, "proxy")
	names, err := c.copyFiles(ctx, root)
	if err != nil {
		return nil, err
	}
	if err := release(c.Dir, names, proxy); err != nil {
		return nil, err
	}
	if err := programs(bin); err != nil {
		return nil, err
	}
	known, err := goEnv(ctx, "GOMODCACHE", "GOPROXY")
	if err != nil {
		return nil, err
	}
	c.env = append(os.Environ(),
		"PATH="+bin+":"+os.Getenv("PATH"),
		"GOBIN="+bin,
		"GOMODCACHE="+filepath.Join(dir, "modules"),
		// Other modules come from the local download cache, or else from their origin.
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(known[0], "cache", "download")+","+known[1],
		"GONOPROXY=none", "GOSUMDB=off",
		"GOFLAGS=-modcacherw -trimpath", // a removable module cache, and builds that are cached for any folder
	)
	for _, words := range [][]string{
		{"git", "init", "-q"}, {"git", "add", "-A"},
		{"git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false", "commit", "-q", "-m", "all of it"},
		{"go", "install", "./cmd/ratelimit"},
	} {
		if _, failure, err := c.command(ctx, "", words...); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", strings.Join(words, " "), err, failure)
		}
	}
	return c, nil
}

// copyFiles copies the checkout and returns the names of its files.
func (c *Clone) copyFiles(ctx context.Context, root string) ([]string, error) {
	git := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	git.Dir = root
	list, err := git.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files, in %s: %w", root, err)
	}
	names := strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00")
	names = slices.DeleteFunc(names, func(name string) bool {
		_, err := os.Stat(filepath.Join(root, name))
		return errors.Is(err, os.ErrNotExist) // deleted, and not committed yet
	})
	for _, name := range names {
		from, to := filepath.Join(root, name), filepath.Join(c.Dir, name)
		about, err := os.Stat(from)
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(to, text, about.Mode().Perm()); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// release makes a module proxy in a folder, with one version of the module: its files, without
// those of nested modules.
func release(dir string, names []string, proxy string) error {
	version := "v" + functions.Version()
	var others []string
	for _, name := range names {
		if path.Base(name) == "go.mod" && name != "go.mod" {
			others = append(others, path.Dir(name)+"/")
		}
	}
	var archive bytes.Buffer
	writer := zip.NewWriter(&archive)
	for _, name := range names {
		if slices.ContainsFunc(others, func(other string) bool { return strings.HasPrefix(name, other) }) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		entry, err := writer.Create(module + "@" + version + "/" + name)
		if err != nil {
			return err
		}
		if _, err := entry.Write(text); err != nil {
			return err
		}
	}
	if err := writer.Close(); err != nil {
		return err
	}
	gomod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	folder := filepath.Join(proxy, module, "@v")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"list":            []byte(version + "\n"),
		version + ".info": []byte(`{"Version":"` + version + `"}`),
		version + ".mod":  gomod,
		version + ".zip":  archive.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// programs writes into a folder a redis-cli that connects to the test's server, and a link to the
// system's Python, which has the distribution's package of the Redis client.
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
		return nil // use the one on PATH
	}
	return os.Symlink(python, filepath.Join(bin, "python3"))
}

func goEnv(ctx context.Context, names ...string) ([]string, error) {
	text, err := exec.CommandContext(ctx, "go", append([]string{"env"}, names...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	return strings.Split(string(text), "\n"), nil
}

func (c *Clone) environ(redisURL string) []string {
	return append(slices.Clone(c.env), "REDIS_URL="+redisURL)
}

// command runs a program in the clone, found on its PATH.
func (c *Clone) command(ctx context.Context, redisURL string, words ...string) (stdout, stderr string, err error) {
	cmd := exec.CommandContext(ctx, "/usr/bin/env", words...)
	cmd.Dir, cmd.Env = c.Dir, c.environ(redisURL)
	var out, failure strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &failure
	err = cmd.Run()
	return out.String(), failure.String(), err
}

// goProgram runs a program as a part of the clone's module.
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
