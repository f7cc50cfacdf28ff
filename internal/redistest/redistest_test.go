package redistest

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestStart(t *testing.T) {
	s, err := Start("redis-server", "--appendonly", "yes")
	if err != nil {
		t.Fatal(err)
	}
	other := Run(t)
	if !s.listens() || !other.listens() || s.Addr == other.Addr {
		t.Errorf("%s listens: %v, %s listens: %v", s.Addr, s.listens(), other.Addr, other.listens())
	}
	s.Stop()
	s.Stop()
	if _, err := os.Stat(s.dir); s.listens() || !os.IsNotExist(err) {
		t.Errorf("after Stop it listens: %v; its files: %v", s.listens(), err)
	}
}

func TestServersThatDoNotStart(t *testing.T) {
	_, err := Start("redis-server", "--no-such-option", "x")
	if !errors.Is(err, errEnded) || !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("%v", err)
	}
	_, err = Start("no-such-server")
	if !errors.Is(err, exec.ErrNotFound) || !strings.HasPrefix(err.Error(), "no no-such-server here; install one") {
		t.Errorf("%v", err)
	}
}
