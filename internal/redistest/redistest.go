// Package redistest starts servers as processes of this machine, for tests and for the bench.
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
	"syscall"
	"testing"
	"time"
)

// Server is a server of its own: nobody else knows of it.
type Server struct {
	Addr string // 127.0.0.1:port

	cmd   *exec.Cmd
	dir   string // its files
	log   bytes.Buffer
	ended chan struct{} // closed when the process is over
	stop  sync.Once
}

// longest is how long a condition is waited for, however busy the machine is.
const longest = 2 * time.Minute

// errEnded is of a server that ends at once, as where another program has taken its port.
var errEnded = errors.New("it ended at once")

// Run runs a redis-server with these arguments until the test ends.
func Run(t testing.TB, args ...string) *Server {
	t.Helper()
	s, err := Start("redis-server", args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// Start starts a server, on a port of 127.0.0.1 that is free as is that of a cluster's bus, and waits until it listens.
// A file of configuration is the first of args; --port in them is that of a server that was stopped.
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
	if i := slices.Index(args, "--port"); i >= 0 { // that of a server that was stopped
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
	// What is waited for in tests must not wait for the usual seconds.
	s.cmd = exec.Command(path, slices.Concat(args, listen, []string{
		"--bind", "127.0.0.1", "--save", "", "--dir", s.dir,
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

// Pause stops the server where it is, as a machine that hangs: its connections stay, and nothing is replied.
func (s *Server) Pause() error { return s.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume lets a paused server go on.
func (s *Server) Resume() error { return s.cmd.Process.Signal(syscall.SIGCONT) }

// Stop ends the server at once, and removes its files. It may be called again.
func (s *Server) Stop() {
	s.stop.Do(func() {
		_ = s.cmd.Process.Kill()
		<-s.ended
		_ = os.RemoveAll(s.dir)
	})
}

// freePort finds a port that is free, and whose port of the cluster bus, 10000 above, is free too.
func freePort() (string, error) {
	for range 1000 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		port := listener.Addr().(*net.TCPAddr).Port
		bus, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port+10000)) // an error above 65535
		_ = listener.Close()
		if err == nil {
			return strconv.Itoa(port), bus.Close()
		}
	}
	return "", errors.New("no free pair of ports")
}

// Eventually waits for a condition that another process makes true.
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
