package backend

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ratelimit-functions/ratelimit/integration_test/clock"
)

type spec struct {
	name    string
	program string // "redis-server" or "valkey-server", for a process
	image   string // for a container
	cluster bool
	clock   *clock.File // nil to keep real time
	options []string    // additional command-line options
}

type launcher interface {
	// launch starts a server with the given command-line options, which make it listen on
	// 127.0.0.1. It does not wait until the server replies.
	launch(ctx context.Context, s spec, options []string) (instance, error)
	// close releases the launcher's resources. Callers must remove all servers first.
	close() error
}

type instance interface {
	kill(ctx context.Context) error
	pause(ctx context.Context) error
	resume(ctx context.Context) error
	restart(ctx context.Context) error
	remove() error
	// exited reports whether the server has exited without being killed.
	exited(ctx context.Context) bool
	// log returns what the server printed.
	log() string
}

const startTimeout = 3 * time.Minute

// start starts one server on free ports and waits until it replies. If the server exits at once,
// start tries other ports, because another program may have taken a port.
func start(ctx context.Context, l launcher, s spec) (*Node, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var errs []error
	for range 3 {
		n, err := startOnce(ctx, l, s)
		if err == nil {
			return n, nil
		}
		errs = append(errs, err)
		if !errors.Is(err, errExited) {
			break
		}
	}
	return nil, errors.Join(errs...)
}

var errRunning = errors.New("it is still running: kill it first")

var errExited = errors.New("the server ended at once")

func startOnce(ctx context.Context, l launcher, s spec) (*Node, error) {
	port, busPort, err := twoPorts()
	if err != nil {
		return nil, err
	}
	// The mark is the value of an option that has no effect. It identifies the server started here.
	mark := "ratelimit-test-" + rand.Text()
	options := []string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--rdb-del-sync-files", "yes", // a restarted server is empty
		"--enable-debug-command", "local",
		"--syslog-ident", mark,
	}
	if s.cluster {
		options = append(options, "--cluster-port", strconv.Itoa(busPort))
	}
	inst, err := l.launch(ctx, s, append(options, s.options...))
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", s.name, err)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	n := &Node{Name: s.name, Addr: addr, busPort: busPort, instance: inst, client: newNodeClient(addr)}
	err = Until(ctx, s.name+" to answer", func() error {
		if inst.exited(ctx) {
			return nil
		}
		got, err := n.Client().ConfigGet(ctx, "syslog-ident").Result()
		if err == nil && got["syslog-ident"] != mark {
			err = fmt.Errorf("another server answers at %s", n.Addr)
		}
		return err
	})
	if err == nil && inst.exited(ctx) {
		err = errExited
	}
	if err != nil {
		err = fmt.Errorf("starting %s: %w; what it printed:\n%s", s.name, err, strings.TrimSpace(inst.log()))
		return nil, errors.Join(err, n.remove())
	}
	return n, nil
}

var (
	usedPorts   = map[int]bool{}
	usedPortsMu sync.Mutex
)

// twoPorts returns two free ports on 127.0.0.1. It never returns the same port twice.
func twoPorts() (port, busPort int, err error) {
	usedPortsMu.Lock()
	defer usedPortsMu.Unlock()
	var found []int
	for len(found) < 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, 0, fmt.Errorf("looking for a free port: %w", err)
		}
		defer l.Close() // keep the port in use until two are found, so that they differ
		p := l.Addr().(*net.TCPAddr).Port
		if !usedPorts[p] {
			usedPorts[p] = true
			found = append(found, p)
		}
	}
	return found[0], found[1], nil
}
