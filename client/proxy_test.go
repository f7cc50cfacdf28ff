package client_test

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// proxy stands between a client and a server. Armed, it lets the next FCALL of the library through to the server, waits
// for the reply, and does not pass it on.
type proxy struct {
	ln     net.Listener
	target string
	wg     sync.WaitGroup

	mu    sync.Mutex
	armed int  // how many replies are still to be lost
	hang  bool // lose the reply by silence instead of by closing the connection
	calls int  // FCALLs passed to the server
	conns map[net.Conn]bool
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, target: target, conns: map[net.Conn]bool{}}
	p.wg.Add(1)
	go p.serve()
	t.Cleanup(func() {
		_ = ln.Close()
		p.mu.Lock()
		for conn := range p.conns {
			_ = conn.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.ln.Addr().String() }

func (p *proxy) lose(replies int, hang bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed, p.hang, p.calls = replies, hang, 0
}

func (p *proxy) seen() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

func (p *proxy) serve() {
	defer p.wg.Done()
	for {
		near, err := p.ln.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		p.mu.Lock()
		p.conns[near], p.conns[far] = true, true
		p.mu.Unlock()
		p.wg.Add(1)
		go p.relay(near, far)
	}
}

func (p *proxy) relay(near, far net.Conn) {
	defer p.wg.Done()
	lost := make(chan bool, 1) // whether the reply to what was just sent is to be lost; holds "hang"
	var up sync.WaitGroup
	up.Add(1)
	go func() {
		defer up.Done()
		defer func() { _ = far.Close() }()
		buf := make([]byte, 64<<10)
		for {
			n, err := near.Read(buf)
			if err != nil {
				return
			}
			if bytes.Contains(buf[:n], []byte("ratelimit_")) {
				p.mu.Lock()
				p.calls++
				if p.armed > 0 {
					p.armed--
					lost <- p.hang
				}
				p.mu.Unlock()
			}
			if _, err := far.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := far.Read(buf)
		if err != nil {
			break
		}
		select {
		case hang := <-lost:
			if hang {
				continue
			}
		default:
			if _, err := near.Write(buf[:n]); err == nil {
				continue
			}
		}
		break
	}
	_ = near.Close()
	up.Wait()
	p.mu.Lock()
	delete(p.conns, near)
	delete(p.conns, far)
	p.mu.Unlock()
}
