package process_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// relay forwards connections to a server, and counts the takes. It can hold back the replies, as if
// the server hung.
type relay struct {
	addr string

	mu    sync.Mutex
	moved sync.Cond // signaled when held has changed
	held  bool
	late  bool // takes are held
	takes int
	sent  []byte // to the server
	conns []net.Conn
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	port := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	r := &relay{addr: port.Addr().String()}
	r.moved.L = &r.mu
	var all sync.WaitGroup
	all.Go(func() {
		for {
			from, err := port.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, from, to)
			r.mu.Unlock()
			var takes atomic.Bool
			all.Go(func() {
				pass(from, to, func(text []byte) {
					r.count(text)
					takes.Store(takes.Load() || bytes.Contains(text, []byte("ratelimit_take")))
				})
			})
			all.Go(func() { pass(to, from, func([]byte) { r.wait(takes.Load()) }) })
		}
	})
	t.Cleanup(func() {
		_ = port.Close()
		r.hold(false)
		r.holdTakes(false)
		r.mu.Lock()
		for _, conn := range r.conns {
			_ = conn.Close()
		}
		r.mu.Unlock()
		all.Wait()
	})
	return r
}

// hold starts holding back replies if held is true, and stops otherwise.
func (r *relay) hold(held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = held
	r.moved.Broadcast()
}

// holdTakes is hold for the connections that have sent a take, so that new connections can be opened.
func (r *relay) holdTakes(late bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.late = late
	r.moved.Broadcast()
}

// wait waits while the replies on a connection are held back. takes says whether it has sent a take.
func (r *relay) wait(takes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.held || r.late && takes {
		r.moved.Wait()
	}
}

func (r *relay) count(text []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takes += bytes.Count(text, []byte("ratelimit_take"))
	r.sent = append(r.sent, text...)
}

// forget makes [relay.saw] ignore what was sent so far.
func (r *relay) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = nil
}

// saw reports whether each of the texts was sent to the server.
func (r *relay) saw(texts ...string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(texts, func(text string) bool { return !bytes.Contains(r.sent, []byte(text)) })
}

// calls returns the number of takes so far.
func (r *relay) calls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.takes
}

// pass copies data until an error occurs. It calls see with each piece of data before it writes the
// piece.
func pass(from, to net.Conn, see func([]byte)) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			see(buffer[:n])
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}
