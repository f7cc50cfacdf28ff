package process

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// ports are the listeners of a gateway. admin is nil if there is no admin port.
type ports struct {
	grpc, http, admin net.Listener
	token             string // of the admin port; "" for none
}

// listen opens the ports.
func (g *Gateway) listen(secure bool) (p ports, err error) {
	defer func() {
		for _, port := range []net.Listener{p.grpc, p.http, p.admin} {
			if err != nil && port != nil {
				_ = port.Close()
			}
		}
	}()
	if p.token, err = g.options.adminToken(); err != nil {
		return p, err
	}
	if p.grpc, err = g.openPort("--grpc", g.options.GRPC); err != nil {
		return p, err
	}
	if p.http, err = g.openPort("--http", g.options.HTTP); err != nil || g.options.Admin == "" {
		return p, err
	}
	if p.admin, err = g.openPort("--admin", g.options.Admin); err != nil {
		return p, err
	}
	if addr, ok := p.admin.Addr().(*net.TCPAddr); ok && !addr.IP.IsLoopback() {
		if err = g.options.adminExposed(addr.AddrPort().Addr(), strconv.Itoa(addr.Port), p.token); err != nil {
			return p, err
		}
		if !secure {
			g.options.Log.Warn("the token of the admin port travels unencrypted; give --tls-cert and --tls-key", "admin", addr)
		}
	}
	return p, nil
}

// adminToken returns the token of the admin port, or "" if it has none.
func (o Options) adminToken() (string, error) {
	const shortest = 16
	token, from := strings.TrimSpace(o.AdminToken), "RATELIMIT_ADMIN_TOKEN"
	if o.AdminTokenFile != "" {
		text, err := os.ReadFile(o.AdminTokenFile)
		if err != nil {
			return "", fmt.Errorf("--admin-token-file: %w; name a file that has the token", err)
		}
		token, from = strings.TrimSpace(string(text)), "--admin-token-file "+o.AdminTokenFile
	}
	switch {
	case o.Admin == "" && o.AdminTokenFile != "":
		return "", errors.New("--admin-token-file is for the admin port; give --admin and its address, or leave it out")
	case o.Admin != "" && len(token) < shortest && (token != "" || o.AdminTokenFile != ""):
		return "", fmt.Errorf("%s: the token has %d characters, which can be guessed; give at least %d", from, len(token), shortest)
	}
	return token, nil
}

// openPort opens a port whose connections are limited in number.
func (g *Gateway) openPort(flag, addr string) (net.Listener, error) {
	port, err := listen(flag, addr)
	if err != nil {
		return nil, err
	}
	return &limited{Listener: port, most: int64(g.options.Connections), refused: func() {
		g.full.Do(func() {
			g.options.Log.Error("connections are closed at once, because too many are open", "port", flag, "most", g.options.Connections, "flag", "--max-connections")
		})
	}}, nil
}

// limited is a listener with a maximum number of open connections. It closes further connections
// at once, so that a proxy need not wait until it applies its failure mode.
type limited struct {
	net.Listener
	most    int64
	refused func()
	open    atomic.Int64
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.most {
			return &counted{Conn: conn, open: &l.open}, nil
		}
		l.open.Add(-1)
		_ = conn.Close()
		l.refused()
	}
}

// counted is a connection that counts as open until it is closed.
type counted struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

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
