package backend

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ownerOf returns an identifier of a process: its PID namespace, PID and start time. The identifier
// is unique until the machine restarts. It is "" if the process does not exist.
func ownerOf(pid int) string {
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return ""
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The second field, the program's name in brackets, may contain any character, so skip to its
	// last bracket. The start time is the 22nd field.
	_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return ""
	}
	return fmt.Sprintf("%s %d %s", space, pid, fields[19])
}

// stale reports whether the owner, a process, has exited. Processes in other PID namespaces are not
// visible, so stale assumes that they exit within two hours. No test run takes longer.
func stale(owner string, created time.Time) bool {
	space, rest, _ := strings.Cut(owner, " ")
	number, _, _ := strings.Cut(rest, " ")
	pid, err := strconv.Atoi(number)
	self, _ := os.Readlink("/proc/self/ns/pid")
	if err != nil || space != self {
		return time.Since(created) > 2*time.Hour
	}
	return ownerOf(pid) != owner
}

// ownerFile is the name of a file in a run's directory. The file identifies the run's owner.
const ownerFile = "owner"

// makeDir creates the directory of this run. It removes directories that killed runs left behind.
func makeDir() (string, error) {
	const prefix = "ratelimit-test-"
	old, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*", ownerFile))
	if err != nil {
		return "", err
	}
	for _, file := range old {
		owner, err := os.ReadFile(file)
		info, statErr := os.Stat(file)
		if err != nil || statErr != nil || !stale(string(owner), info.ModTime()) {
			continue // another run is removing it, or still needs it
		}
		if err := os.RemoveAll(filepath.Dir(file)); err != nil {
			return "", fmt.Errorf("removing the folder of an earlier run: %w", err)
		}
	}
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return "", err
	}
	// A server in a container may run as another user, so let others read the directory.
	err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, ownerFile), []byte(ownerOf(os.Getpid())), 0o644))
	return dir, err
}
