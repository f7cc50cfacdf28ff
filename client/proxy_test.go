package client_test

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"
)

// fault is a network fault that a proxy simulates.
type fault int

const (
	none      fault = iota
	closes          // the reply is lost, and the connection is closed
	resets          // the reply is lost, and the connection is reset
	silent          // the reply is lost, and the connection stays open
	dribbles        // the reply comes byte by byte, too slowly to be read in time
	cuts            // half of the reply comes, then the connection is closed
	rubbish         // the client receives bytes that are not a reply
	doubles         // the reply comes twice
	announces       // the client receives the header of an array that does not fit in memory
	holds           // the reply is delayed until release is called
	hole            // nothing that the client sends reaches the server
)

var faults = map[string]fault{
	"closes": closes, "resets": resets, "silent": silent, "dribbles": dribbles, "cuts": cuts, "rubbish": rubbish, "announces": announces, "doubles": doubles, "hole": hole,
}

// proxy is between a client and a server. When armed, it passes the next FCALL of the library to
// the server, waits for the reply, and applies the fault to it.
type proxy struct {
	ln     net.Listener
	target string
	wg     sync.WaitGroup

	mu    sync.Mutex
	armed int // number of replies that the fault will still affect
	fault fault
	calls int    // FCALLs forwarded to the server; FCALLs that arrive together count as one
	then  func() // called once, at the next call

	free     chan struct{} // closed by release
	freeOnce sync.Once
	conns    map[net.Conn]bool
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	ln := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	p := &proxy{ln: ln, target: target, conns: map[net.Conn]bool{}, free: make(chan struct{})}
	p.wg.Add(1)
	go p.serve()
	t.Cleanup(func() {
		p.release()
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
	fault := closes
	if hang {
		fault = silent
	}
	p.arm(replies, fault)
}

// arm makes the proxy apply fault to the next n replies, and sets the count of calls to 0.
func (p *proxy) arm(n int, fault fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed, p.fault, p.calls = n, fault, 0
}

// next counts a call, runs the function given to onNext, and returns the fault for the reply.
func (p *proxy) next() fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	if p.then != nil {
		p.then()
		p.then = nil
	}
	if p.armed == 0 {
		return none
	}
	p.armed--
	return p.fault
}

// release sends the replies that are held back.
func (p *proxy) release() { p.freeOnce.Do(func() { close(p.free) }) }

// onNext makes f run when the next call arrives.
func (p *proxy) onNext(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.then = f
}

// inHole reports whether the proxy drops everything that clients send.
func (p *proxy) inHole() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.armed > 0 && p.fault == hole
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
	lost := make(chan fault, 1) // the fault for the reply to the last request
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
			if p.inHole() {
				continue
			}
			if bytes.Contains(buf[:n], []byte("ratelimit_")) {
				if f := p.next(); f != none {
					lost <- f
				}
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
		fault := none
		select {
		case fault = <-lost:
		default:
		}
		if fault == holds {
			<-p.free
			fault = none
		}
		if !deliver(near, buf[:n], fault) {
			break
		}
	}
	_ = near.Close()
	up.Wait()
	p.mu.Lock()
	delete(p.conns, near)
	delete(p.conns, far)
	p.mu.Unlock()
}

// deliver applies fault to a reply and sends the result. It reports whether the connection stays
// open.
func deliver(near net.Conn, reply []byte, fault fault) bool {
	switch fault {
	case none:
		_, err := near.Write(reply)
		return err == nil
	case silent:
		return true
	case doubles:
		_, err := near.Write(bytes.Repeat(reply, 2))
		return err == nil
	case dribbles:
		for i := range reply {
			if _, err := near.Write(reply[i : i+1]); err != nil {
				return false
			}
			time.Sleep(bound / 10) // a reply has more than ten bytes, so it takes longer than bound
		}
		return true
	case cuts:
		_, _ = near.Write(reply[:len(reply)/2])
	case rubbish:
		_, err := near.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		return err == nil
	case announces:
		_, err := near.Write([]byte("*9223372036854775807\r\n:1\r\n"))
		return err == nil
	case resets:
		_ = near.(*net.TCPConn).SetLinger(0)
	}
	return false
}
