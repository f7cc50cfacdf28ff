// Package clock sets the wall clock of a running server under test.
//
// The package compiles a small C library, which tests load into the server with LD_PRELOAD. When
// the server asks for the time, the C library returns a time that it reads from a file. This
// package and the C library both map the file into memory, so a new time takes effect when the
// server next asks. This works for processes and, with the directory mounted, for containers. It
// works on Linux only.
package clock

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"
)

//go:embed shim/clock.c
var source []byte

// Env is the environment variable that holds the path of the clock's file.
const Env = "RATELIMIT_CLOCK_FILE"

// LibraryName is the file name of the compiled shim in a clock's directory.
const LibraryName = "clock.so"

// Build compiles the shim into dir and returns its path. It needs a C compiler named cc or gcc.
func Build(dir string) (string, error) {
	if runtime.GOOS != "linux" {
		return "", fmt.Errorf("the clock shim works on Linux only, and this is %s", runtime.GOOS)
	}
	compiler, err := exec.LookPath("cc")
	if err != nil {
		if compiler, err = exec.LookPath("gcc"); err != nil {
			return "", errors.New("the clock shim needs a C compiler, and there is neither cc nor gcc: install gcc")
		}
	}
	in, out := filepath.Join(dir, "clock.c"), filepath.Join(dir, LibraryName)
	if err := os.WriteFile(in, source, 0o644); err != nil {
		return "", fmt.Errorf("writing the clock shim's source: %w", err)
	}
	text, err := exec.Command(compiler, "-std=gnu11", "-O2", "-shared", "-fPIC", "-o", out, in).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("compiling the clock shim with %s: %w\n%s", compiler, err, text)
	}
	// A server in a container may run as another user, so let others read the library.
	if err := os.Chmod(out, 0o755); err != nil {
		return "", err
	}
	return out, nil
}

// File is the clock of one or more servers. Its methods other than Close are safe for concurrent
// use.
type File struct {
	path   string
	memory []byte
}

// Create creates the clock's file at path, set to real time.
func Create(path string) (*File, error) {
	if err := os.WriteFile(path, make([]byte, 8), 0o644); err != nil {
		return nil, fmt.Errorf("making the clock's file: %w", err)
	}
	if err := os.Chmod(path, 0o644); err != nil { // set explicitly, regardless of the umask, because the server may run as another user
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the clock's file: %w", err)
	}
	defer f.Close()
	memory, err := syscall.Mmap(int(f.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping the clock's file %s: %w", path, err)
	}
	return &File{path: path, memory: memory}, nil
}

// Path returns the path of the clock's file.
func (f *File) Path() string { return f.path }

// Set stops the clock at the given microseconds since the epoch, which must be above 0.
func (f *File) Set(us int64) error {
	if us <= 0 {
		return fmt.Errorf("the clock cannot be set to %d µs since the epoch: the time must be above 0", us)
	}
	f.store(us)
	return nil
}

// Real sets the clock to real time.
func (f *File) Real() { f.store(0) }

func (f *File) store(us int64) {
	var little [8]byte
	binary.LittleEndian.PutUint64(little[:], uint64(us))
	// The mapping begins on a page boundary, so the value is aligned. The store is atomic, so no
	// server ever reads half of a new time.
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&f.memory[0])), binary.NativeEndian.Uint64(little[:]))
}

// Close unmaps the clock's file. The servers keep the time that was last set.
func (f *File) Close() error { return syscall.Munmap(f.memory) }
