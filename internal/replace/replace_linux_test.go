package replace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPermissions checks that a writable file is written even in a read-only directory, and that a
// read-only file is not replaced even in a writable directory.
func TestPermissions(t *testing.T) {
	folder := t.TempDir()
	name := filepath.Join(folder, "f")
	require(t, os.Chmod(filepath.Dir(folder), 0o755))
	for _, row := range []struct {
		file, folder fs.FileMode
		named        string
		holds        string
		want         error
	}{
		{0o666, 0o555, name, "new", nil},
		{0o666, 0o555, name + "2", "old", fs.ErrPermission},
		{0o444, 0o777, name, "old", fs.ErrPermission},
	} {
		written(t, name, "old", row.file)
		require(t, os.Chmod(folder, row.folder))
		asNobody(t, func() {
			for _, err := range []error{Writable(row.named), File(row.named, []byte("new"))} {
				if !errors.Is(err, row.want) {
					t.Errorf("%s, %v in %v: %v, want %v", row.named, row.file, row.folder, err, row.want)
				}
			}
		})
		require(t, os.Chmod(folder, 0o777))
		want(t, name, row.holds, row.file)
		require(t, os.Remove(name))
	}
}

// asNobody calls the function do on a thread without root's file permissions. The thread ends
// afterwards.
func asNobody(t *testing.T, do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if os.Geteuid() == 0 {
			if _, err := unix.SetfsuidRetUid(65534); err != nil {
				t.Error(err)
			}
		}
		do()
	}()
	<-done
}
