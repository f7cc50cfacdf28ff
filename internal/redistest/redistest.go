// Package redistest starts Redis servers as processes on this machine, for tests and for the
// benchmark.
package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Server is a Redis server that runs as a process on this machine.
type Server struct {
	Addr string // 127.0.0.1:port

	cmd   *exec.Cmd
	dir   string // directory of the server's files, unless the arguments name another
	log   bytes.Buffer
	ended chan struct{} // closed when the process has ended
	stop  sync.Once
}

// longest is the maximum time to wait for a condition. It is long enough even for a busy machine.
const longest = 2 * time.Minute

// errEnded means that a server exited at once, for example because another program took its port.
var errEnded = errors.New("it ended at once")

// Run runs a redis-server with the given arguments until the test ends.
func Run(t testing.TB, args ...string) *Server {
	t.Helper()
	s, err := Start("redis-server", args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// Start starts a server on a free port of 127.0.0.1 and waits until it listens. The port of the
// cluster bus is free too. The first element of args may be a configuration file. To restart a
// stopped server, pass --port and its port in args.
func Start(program string, args ...string) (*Server, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, fmt.Errorf("no %s here; install one (Debian, Ubuntu: apt-get install %[1]s): %w", program, err)
	}
	var s *Server
	for range 3 {
		if s, err = start(path, args); !errors.Is(err, errEnded) {
			break
		}
	}
	return s, err
}

func start(path string, args []string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	if i := slices.Index(args, "--port"); i >= 0 { // the caller restarts a stopped server on its old port
		port = args[i+1]
	}
	listen := []string{"--port", port}
	if slices.Contains(args, "--tls-cert-file") {
		listen = []string{"--port", "0", "--tls-port", port}
	}
	s := &Server{Addr: "127.0.0.1:" + port, ended: make(chan struct{})}
	if s.dir, err = os.MkdirTemp("", "redistest-"); err != nil {
		return nil, err
	}
	dir := s.dir
	if i := slices.Index(args, "--dir"); i >= 0 { // keeps the files of a server that restarts
		dir = args[i+1]
	}
	// By default, replication takes seconds to start, which would slow down tests that wait for it.
	s.cmd = exec.Command(path, slices.Concat(args, listen, []string{
		"--bind", "127.0.0.1", "--save", "", "--dir", dir,
		"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--cluster-node-timeout", "60000",
	})...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	listens := within(func() bool { return s.over() || s.listens() })
	if over := s.over(); over || !listens {
		s.Stop()
		if err = errors.New("it does not listen"); over {
			err = errEnded
		}
		return nil, fmt.Errorf("%s %v: %w:\n%s", path, args, err, s.log.String())
	}
	return s, nil
}

func (s *Server) listens() bool {
	conn, err := net.Dial("tcp", s.Addr)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

func (s *Server) over() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// Stop kills the server and removes its files. It may be called more than once.
func (s *Server) Stop() {
	s.stop.Do(func() {
		_ = s.cmd.Process.Kill()
		<-s.ended
		_ = os.RemoveAll(s.dir)
	})
}

// freePort returns a free port whose cluster bus port, 10000 higher, is free too.
func freePort() (string, error) {
	for range 1000 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		port := listener.Addr().(*net.TCPAddr).Port
		bus, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port+10000)) // fails if the port is above 65535
		_ = listener.Close()
		if err == nil {
			return strconv.Itoa(port), bus.Close()
		}
	}
	return "", errors.New("no free pair of ports")
}

// Eventually waits until condition returns true, and fails the test after two minutes. The parameter
// what describes the condition in the failure. Use Eventually for conditions that depend on another
// process.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	if !within(condition) {
		t.Fatalf("waited %v in vain: %s", longest, what)
	}
}

func within(condition func() bool) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !condition(); <-tick.C {
		if time.Since(began) > longest {
			return false
		}
	}
	return true
}
