package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestSecondSignal checks that a second Ctrl-C ends the process while a request is in progress. The
// first one only begins the shutdown.
func TestSecondSignal(t *testing.T) {
	redis := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer func() { _ = redis.Close() }()
	taking := make(chan struct{}, 100)
	go func() {
		for {
			conn, err := redis.Accept()
			if err != nil {
				return
			}
			go func() { // replies to all calls but takes
				defer func() { _ = conn.Close() }()
				buffer := make([]byte, 4096)
				for {
					n, err := conn.Read(buffer)
					if err != nil {
						return
					}
					if bytes.Contains(buffer[:n], []byte("ratelimit_take")) {
						taking <- struct{}{}
						continue
					}
					_, _ = io.WriteString(conn, strings.Repeat("-ERR unknown command\r\n", bytes.Count(buffer[:n], []byte("*"))))
				}
			}()
		}
	}()
	cmd := exec.Command(os.Args[0], "--redis", "redis://"+redis.Addr().String(), "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--timeout", "1m")
	cmd.Env = append(os.Environ(), runMain+"=yes")
	var log redistest.Output
	cmd.Stderr = &log
	require(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	var addr string
	redistest.Eventually(t, "the gateway listens", func() bool {
		found := addresses.FindStringSubmatch(log.String())
		if found != nil {
			addr = found[2]
		}
		return found != nil
	})
	go func() {
		if response, err := http.Get("http://" + addr + "/check/api"); err == nil {
			_ = response.Body.Close()
		}
	}()
	<-taking
	require(t, cmd.Process.Signal(syscall.SIGINT))
	redistest.Eventually(t, "the port is closed", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	redistest.Eventually(t, "a second signal ends the gateway", func() bool { // on a busy machine, one may arrive before the first has been handled
		_ = cmd.Process.Signal(syscall.SIGINT)
		return len(ended) > 0
	})
	<-ended
	if state, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !state.Signaled() || state.Signal() != syscall.SIGINT {
		t.Errorf("%v; the log:\n%s", cmd.ProcessState, &log)
	}
}
