package process

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
)

const unixPrefix = "unix:" // prefix of the address of a Unix socket

// listen opens a port: host:port, or unix:/path. flag names the address in errors.
func listen(flag, addr string) (net.Listener, error) {
	network, name := "tcp", addr
	if path, ok := strings.CutPrefix(addr, unixPrefix); ok {
		network, name = "unix", path
	}
	if name == "" {
		return nil, fmt.Errorf("%s %q names no port; write an address such as 127.0.0.1:8080, or unix:/path", flag, addr)
	}
	port, err := net.Listen(network, name)
	if network == "unix" && errors.Is(err, syscall.EADDRINUSE) && abandoned(name) {
		if err = os.Remove(name); err == nil {
			port, err = net.Listen(network, name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w; choose another address", flag, addr, err)
	}
	return port, nil
}

// abandoned reports whether a file is a socket on which no process listens. A killed process leaves
// such a socket behind.
func abandoned(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return false
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
