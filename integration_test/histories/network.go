package histories

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// cut is a network fault that happens to one request.
type cut int

const (
	noCut     cut = iota
	cutBefore     // the connection breaks before the request is sent
	cutHalf       // the connection breaks after half of the request
	cutAfter      // the server gets the request, and the connection breaks before the reply arrives
	cutReply      // the connection breaks after half of the reply
	silent        // the reply is lost, and the connection stays open
	late          // the request arrives later, perhaps after the client has closed the connection
)

var errCut = errors.New("the connection was cut")

// network makes the connections of all clients of a run.
type network struct {
	delivery func(write func() error) // runs write, which delivers a late request, when its time has come

	mu    sync.Mutex
	armed []cut // for the next requests
	held  sync.WaitGroup
	late  int            // requests that have yet to be delivered
	sent  map[string]int // how many requests were sent that a client may have repeated
}

// arm makes the next requests suffer the given faults, one each.
func (n *network) arm(faults ...cut) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.armed = append(n.armed, faults...)
}

// left returns how many faults have not happened yet, and how many requests are late.
func (n *network) left() (armed, late int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.armed), n.late
}

func (n *network) next() cut {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.armed) == 0 {
		return noCut
	}
	first := n.armed[0]
	n.armed = n.armed[1:]
	if first == late {
		n.late++
	}
	return first
}

// requests returns how many requests were sent that the function repeatable identifies so.
func (n *network) requests(id string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sent[id]
}

// forget forgets the requests of calls.
func (n *network) forget(ops []*Op) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, op := range ops {
		delete(n.sent, repeatable(op.Call))
	}
}

// count counts the requests in what a client writes: whole commands.
func (n *network) count(p []byte) {
	for _, command := range bytes.Split(p, []byte("\r\nfcall\r\n"))[1:] {
		words := strings.Split(string(command), "\r\n") // a length and a word, for each argument
		if len(words) < 6 {
			continue
		}
		verb, id := strings.TrimPrefix(words[1], "ratelimit_"), ""
		switch keys, _ := strconv.Atoi(words[3]); {
		case verb == model.Acquire || verb == model.Renew:
			id = verb + " " + words[5] + " " + words[9]
		case keys > 1:
			for i := range keys {
				if key := words[5+2*i]; strings.Contains(key, "}request") {
					id = key
				}
			}
		}
		if id != "" {
			n.mu.Lock()
			n.sent[id]++
			n.mu.Unlock()
		}
	}
}

// dial has the signature of go-redis's Dialer.
func (n *network) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, network: n}, nil
}

// conn is a connection that can suffer faults. go-redis uses it from one goroutine at a time.
type conn struct {
	net.Conn
	network *network

	mu     sync.Mutex
	fault  cut  // of the reply to the current request
	late   bool // a request has yet to be delivered
	closed bool
}

func (c *conn) Write(p []byte) (int, error) {
	fault := noCut
	if bytes.Contains(p, []byte("ratelimit_")) {
		c.network.count(p)
		fault = c.network.next()
	}
	switch fault {
	case cutBefore, cutHalf:
		if fault == cutHalf {
			_, _ = c.Conn.Write(p[:len(p)/2])
		}
		_ = c.Conn.Close()
		return 0, errCut
	case late:
		c.mu.Lock()
		c.late = true
		c.mu.Unlock()
		request := bytes.Clone(p)
		c.network.held.Go(func() {
			c.network.delivery(func() error { return c.deliver(request) })
			c.network.mu.Lock()
			defer c.network.mu.Unlock()
			c.network.late--
		})
		return len(p), nil
	}
	c.mu.Lock()
	c.fault = fault
	c.mu.Unlock()
	return c.Conn.Write(p)
}

// deliver sends a late request.
func (c *conn) deliver(request []byte) error {
	_ = c.Conn.SetWriteDeadline(time.Time{})
	_, err := c.Conn.Write(request)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.late = false; c.closed {
		return errors.Join(err, c.Conn.Close())
	}
	return err
}

func (c *conn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		c.mu.Lock()
		fault := c.fault
		c.mu.Unlock()
		switch {
		case err != nil, fault == noCut:
			return n, err
		case fault == cutAfter:
			_ = c.Conn.Close()
			return 0, errCut
		case fault == cutReply:
			_ = c.Conn.Close()
			return n / 2, nil
		}
	}
}

// Close closes the connection. A request that is late still arrives.
func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed = true; c.late {
		return nil
	}
	return c.Conn.Close()
}
