package ci

import (
	"archive/zip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/ratelimit-functions/ratelimit"

var scratch string // a folder for all tests

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "ratelimit-ci-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		scratch = dir
		return m.Run()
	}())
}

// image returns the environment of the golang image. Its Go module proxy has this checkout as the
// released version; other modules come from the local download cache, or as usual. Jobs share what
// they install, as on a runner with a cache.
func image(t *testing.T, released string) []string {
	t.Helper()
	if released != version {
		t.Fatalf("the jobs install %q, want %s", released, version)
	}
	proxies, err := proxy(released)
	if err != nil {
		t.Fatal(err)
	}
	goPath := filepath.Join(scratch, "go")
	return []string{"GOPATH=" + goPath, "PATH=" + filepath.Join(goPath, "bin") + string(os.PathListSeparator) + os.Getenv("PATH"),
		"GOPROXY=" + proxies, "GOSUMDB=off"}
}

var (
	proxyOnce sync.Once
	proxies   string
	proxyErr  error
)

func proxy(released string) (string, error) {
	proxyOnce.Do(func() {
		known, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
		if err != nil {
			proxyErr = err
			return
		}
		cache, usual, _ := strings.Cut(strings.TrimSpace(string(known)), "\n")
		dir := filepath.Join(scratch, "proxy")
		proxies = "file://" + dir + ",file://" + filepath.Join(cache, "cache", "download") + "," + usual
		proxyErr = release(filepath.Join(dir, filepath.FromSlash(module), "@v", released), module+"@"+released)
	})
	return proxies, proxyErr
}

// release writes the files that a proxy serves for a version.
func release(name, prefix string) error {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(name), 0o755),
		os.WriteFile(filepath.Join(filepath.Dir(name), "list"), []byte(filepath.Base(name)+"\n"), 0o644),
		os.WriteFile(name+".info", []byte(`{"Version":"`+filepath.Base(name)+`"}`), 0o644),
		os.WriteFile(name+".mod", mod, 0o644),
		pack(name+".zip", prefix))
}

// pack writes the files of the module, without those of nested modules.
func pack(name, prefix string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	out := zip.NewWriter(file)
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			_, none := os.Stat(filepath.Join(path, "go.mod"))
			if path != root && (none == nil || strings.HasPrefix(entry.Name(), ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		within, err := filepath.Rel(root, path)
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		w, err := out.Create(prefix + "/" + filepath.ToSlash(within))
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	})
	return errors.Join(err, out.Close(), file.Close())
}
