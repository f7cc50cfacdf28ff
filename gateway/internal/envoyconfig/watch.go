package envoyconfig

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Watcher detects changes in a folder. Its methods must not be called concurrently.
type Watcher struct {
	dir     string
	merge   bool
	seen    string            // paths, sizes and times of the folder's files
	content [sha256.Size]byte // hash of the names and content of the folder's files
}

// NewWatcher returns a Watcher for a folder; see [Load].
func NewWatcher(dir string, merge bool) *Watcher { return &Watcher{dir: dir, merge: merge} }

// Reload loads the folder on the first call, and whenever its content has changed since the last
// call. Otherwise, it returns nil and no error. It reads the folder's files only if a path, a size
// or a time has changed. To replace a ConfigMap, Kubernetes changes a symbolic link, which changes
// the paths.
func (w *Watcher) Reload() (*Config, error) {
	names, _, err := files(w.dir)
	seen := fmt.Sprint(err)
	for _, name := range names {
		path, linkErr := filepath.EvalSymlinks(filepath.Join(w.dir, name))
		info, statErr := os.Stat(path)
		if linkErr != nil || statErr != nil {
			seen += fmt.Sprintln(name, linkErr, statErr)
			continue
		}
		seen += fmt.Sprintln(path, info.Size(), info.ModTime().UnixNano())
	}
	if seen == w.seen {
		return nil, nil
	}
	sum := w.sum(names)
	if w.seen != "" && sum == w.content && err == nil {
		w.seen = seen
		return nil, nil
	}
	w.seen, w.content = seen, sum
	return Load(w.dir, w.merge)
}

// sum returns a hash of the names and the content of the folder's files. A file that cannot be read
// counts as empty.
func (w *Watcher) sum(names []string) (sum [sha256.Size]byte) {
	hash := sha256.New()
	for _, name := range names {
		content, _ := os.ReadFile(filepath.Join(w.dir, name))
		fmt.Fprintf(hash, "%q %d ", name, len(content))
		hash.Write(content)
	}
	hash.Sum(sum[:0])
	return sum
}

// files returns the names of the files to read in a folder, and the names of everything else in it. It leaves out
// names that begin with a dot.
func files(dir string) (names, others []string, err error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("%w; name the folder that has the .yaml files", err)
	}
	for _, entry := range list {
		switch extension := filepath.Ext(entry.Name()); {
		case strings.HasPrefix(entry.Name(), "."):
		case extension == ".yaml" || extension == ".yml":
			names = append(names, entry.Name())
		default:
			others = append(others, entry.Name())
		}
	}
	if len(names) == 0 {
		return nil, nil, fmt.Errorf("%s has no file that ends in .yaml or .yml; put one there, or name another folder", dir)
	}
	return names, others, nil
}
