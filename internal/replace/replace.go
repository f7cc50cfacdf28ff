// Package replace replaces files atomically. A file keeps its old content until the new content is
// complete. If writing fails, it keeps the old content.
package replace

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
)

// File writes content to the named file. It writes a temporary file in the same directory and
// renames it. The file keeps its mode but not its owner, and a symbolic link stays a link.
//
// File writes in place in three cases: if the name is not a regular file, if it is this process's
// own output (such as /dev/stdout), or if the file is writable but its directory or a mount
// prevents replacing it.
func File(name string, content []byte) error {
	if err := Writable(name); err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return beside(name, content, nil)
	}
	for _, output := range []*os.File{os.Stdout, os.Stderr} {
		if about, err := output.Stat(); err == nil && os.SameFile(about, info) {
			_, err := output.Write(content)
			return err
		}
	}
	if info.Mode().IsRegular() {
		err := beside(name, content, info)
		if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EBUSY) {
			return err
		}
	}
	return os.WriteFile(name, content, 0o666)
}

// Writable returns an error if the named file cannot be written, as far as Writable can tell without
// writing to it. Writable changes nothing.
func Writable(name string) error {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		file, _, err := create(name)
		if err != nil {
			return err
		}
		return errors.Join(file.Close(), os.Remove(file.Name()))
	case err == nil && !info.Mode().IsRegular() && !info.IsDir():
		return nil // opening a named pipe can block forever
	}
	file, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return file.Close()
}

// beside writes content to a temporary file, and renames that file to name or, if name is a
// symbolic link, to its target. info describes the existing file; it is nil if the file does not
// exist.
func beside(name string, content []byte, info fs.FileInfo) error {
	file, target, err := create(name)
	if err != nil {
		return err
	}
	if info != nil {
		err = file.Chmod(info.Mode().Perm())
	}
	if err == nil {
		_, err = file.Write(content)
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(file.Name(), target)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return withName(name, err)
}

// create creates an empty temporary file. It resolves the symbolic links of name to target, and
// puts the temporary file into the directory of target.
func create(name string) (file *os.File, target string, err error) {
	if target, err = follow(name); err == nil {
		beside := filepath.Join(filepath.Dir(target), fmt.Sprintf(".ratelimit-%016x", rand.Uint64()))
		file, err = os.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	}
	return file, target, withName(name, err)
}

// follow resolves a symbolic link. The link's target need not exist. follow returns any other name
// unchanged.
func follow(name string) (string, error) {
	for range 40 { // Linux also follows at most 40 links
		link, err := os.Readlink(name)
		if err != nil {
			return name, nil
		}
		if !filepath.IsAbs(link) {
			folder, err := filepath.EvalSymlinks(filepath.Dir(name))
			if err != nil {
				return "", err
			}
			link = filepath.Join(folder, link)
		}
		name = link
	}
	return "", &fs.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
}

// withName replaces the file name in err with name, which the caller gave.
func withName(name string, err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return &fs.PathError{Op: path.Op, Path: name, Err: path.Err}
	}
	if link, ok := errors.AsType[*os.LinkError](err); ok {
		return &fs.PathError{Op: link.Op, Path: name, Err: link.Err}
	}
	return err
}
