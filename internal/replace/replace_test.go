//go:build unix

package replace

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func must[T any](t testing.TB) func(T, error) T { return redistest.Must[T](t) }

var require = redistest.Require

func TestMain(m *testing.M) {
	unix.Umask(0o022)
	m.Run()
}

// written writes a file with the given mode.
func written(t *testing.T, name, text string, mode fs.FileMode) {
	t.Helper()
	require(t, errors.Join(os.WriteFile(name, []byte(text), 0o600), os.Chmod(name, mode)))
}

// want checks the content and the mode of a file. It also checks that the file's directory contains
// only the given names.
func want(t *testing.T, name, text string, mode fs.FileMode, names ...string) {
	t.Helper()
	got, err := os.ReadFile(name)
	if err != nil || string(got) != text {
		t.Errorf("%s holds %.100q, %v; want %.100q", name, got, err, text)
	}
	if info, err := os.Lstat(name); err != nil || info.Mode() != mode {
		t.Errorf("%s: %v, %v; want %v", name, info.Mode(), err, mode)
	}
	entries := must[[]os.DirEntry](t)(os.ReadDir(filepath.Dir(name)))
	var found []string
	for _, e := range entries {
		found = append(found, e.Name())
	}
	if names = append(names, filepath.Base(name)); !slices.Equal(found, slices.Sorted(slices.Values(names))) {
		t.Errorf("the folder holds %q, want %q", found, names)
	}
}

func TestFile(t *testing.T) {
	defer unix.Umask(unix.Umask(0o027))
	name := filepath.Join(t.TempDir(), "f")
	require(t, errors.Join(Writable(name), File(name, []byte("new"))))
	want(t, name, "new", 0o640)
	for _, mode := range []fs.FileMode{0o600, 0o777, 0o666} {
		written(t, name, "a longer text", mode)
		require(t, errors.Join(Writable(name), File(name, []byte("new"))))
		want(t, name, "new", mode)
	}
}

func TestLinksStay(t *testing.T) {
	folder := t.TempDir()
	for _, sub := range []string{"links", "deep", "deep/down"} {
		require(t, os.Mkdir(filepath.Join(folder, sub), 0o777))
	}
	for name, leads := range map[string]string{"to-file": "../deep/f", "to-link": "to-file", "absolute": filepath.Join(folder, "deep", "f"), "folder": "../deep/down"} {
		require(t, os.Symlink(leads, filepath.Join(folder, "links", name)))
	}
	require(t, os.Symlink("../f", filepath.Join(folder, "deep", "down", "up")))
	file := filepath.Join(folder, "deep", "f")
	for _, name := range []string{"to-file", "to-link", "absolute", "folder/up"} {
		for _, text := range []string{"made", "replaced"} { // the first write goes through a dangling link
			require(t, errors.Join(Writable(filepath.Join(folder, "links", name)), File(filepath.Join(folder, "links", name), []byte(text+name))))
			want(t, file, text+name, 0o644, "down")
			if info, err := os.Lstat(filepath.Join(folder, "links", name)); err != nil || info.Mode().Type() != fs.ModeSymlink {
				t.Errorf("%s is not a link any more: %v, %v", name, info.Mode(), err)
			}
		}
		require(t, os.Remove(file))
	}
	loop := filepath.Join(folder, "loop")
	require(t, os.Symlink("loop", loop))
	if err := File(loop, nil); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a link to itself: %v", err)
	}
}

// TestFailures checks that a failure changes no file, leaves no temporary file, and names the given
// file.
func TestFailures(t *testing.T) {
	folder := t.TempDir()
	name := filepath.Join(folder, "f")
	written(t, name, "old", 0o644)
	for _, wrong := range []string{folder, filepath.Join(folder, "none", "f"), filepath.Join(name, "f"), name + "/"} {
		for _, do := range []func(string) error{Writable, func(name string) error { return File(name, []byte("new")) }} {
			var path *fs.PathError
			if err := do(wrong); !errors.As(err, &path) || path.Path != wrong {
				t.Errorf("%s: %v", wrong, err)
			}
		}
	}
	want(t, name, "old", 0o644)

	// A limit on the size of files simulates a full disk.
	signal.Ignore(unix.SIGXFSZ)
	defer signal.Reset(unix.SIGXFSZ)
	var before unix.Rlimit
	require(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &before))
	require(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1000, Max: before.Max}))
	err := File(name, make([]byte, 2000))
	other := File(filepath.Join(folder, "other"), make([]byte, 2000))
	require(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &before))
	if !errors.Is(err, unix.EFBIG) || !errors.Is(other, unix.EFBIG) || !strings.Contains(err.Error(), name+":") {
		t.Errorf("%v; %v", err, other)
	}
	want(t, name, "old", 0o644)
}

// TestNamedPipe checks that a named pipe stays a pipe and receives the content, and that Writable does
// not wait for a reader of the pipe.
func TestNamedPipe(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	require(t, unix.Mkfifo(name, 0o600))
	if err := Writable(name); err != nil {
		t.Error(err)
	}
	read := make(chan string)
	go func() {
		got, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
		}
		read <- string(got)
	}()
	if err := File(name, []byte("content")); err != nil {
		t.Error(err)
	}
	if got := <-read; got != "content" {
		t.Errorf("read %q", got)
	}
	if info, err := os.Lstat(name); err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := File("/dev/null", []byte("content")); err != nil {
		t.Error(err)
	}
}

// TestOutput checks that the process's own output is written in order, to a file or a pipe.
func TestOutput(t *testing.T) {
	if os.Getenv("REPLACE_TEST") != "" {
		os.Stdout.WriteString("before\n")
		require(t, errors.Join(Writable(os.Getenv("REPLACE_TEST")), File(os.Getenv("REPLACE_TEST"), []byte("content\n"))))
		os.Stdout.WriteString("after\n")
		os.Exit(0)
	}
	file := filepath.Join(t.TempDir(), "out")
	for _, name := range []string{"/dev/stdout", file} {
		out := must[*os.File](t)(os.Create(file))
		cmd := exec.Command(os.Args[0], "-test.run=^TestOutput$")
		cmd.Env, cmd.Stdout = append(os.Environ(), "REPLACE_TEST="+name), out
		require(t, errors.Join(cmd.Run(), out.Close()))
		want(t, file, "before\ncontent\nafter\n", 0o644)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestOutput$")
	cmd.Env = append(os.Environ(), "REPLACE_TEST=/dev/stdout")
	if out, err := cmd.Output(); err != nil || string(out) != "before\ncontent\nafter\n" {
		t.Errorf("a pipe got %q, %v", out, err)
	}
}
