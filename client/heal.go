package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	healFor     = 30 * time.Second // how long a healer may take
	healPause   = time.Second      // before a healer that failed is asked again for the same node
	notFoundAny = "ERR Function not found"
)

// WithHealer has a server that lost the library get it back: where one replies that it does not hold it, heal is called
// with a client of that server, and the call is asked again. loader.Healer makes one; an application whose user may not
// load functions goes without, and its errors say what to run.
//
// heal is called once for a server and an occasion, however many calls find it so, and again for the same server one
// second after it failed. It has 30 s, which may be more than the calls that wait for it have, and its context ends with the Client.
func WithHealer(heal func(ctx context.Context, server redis.UniversalClient) error) Option {
	return func(c *Client) error {
		if heal == nil {
			return errors.New("the healer is nil; leave WithHealer out")
		}
		c.healer = &healer{heal: heal, nodes: map[string]*healing{}}
		return nil
	}
}

// healer puts the library back where it got lost.
type healer struct {
	heal  func(context.Context, redis.UniversalClient) error
	mu    sync.Mutex
	nodes map[string]*healing // by address: the last, or the one that is under way
}

// healing is one occasion.
type healing struct {
	done  chan struct{} // closed when it is over
	ended time.Time
	err   error
}

// heal has the server that holds the keys of call get the library, which a call that was sent at a moment did not find.
// It returns nil when the call is to be asked again.
func (c *Client) heal(ctx *bounded, call call, sent time.Time) error {
	node, address := c.nodeOf(ctx, call.keys[0])
	h := c.healer.begin(address, sent, func(h *healing) bool {
		return c.life.run(func() {
			limited, cancel := context.WithTimeout(c.life.ctx, healFor)
			defer cancel()
			c.healer.end(h, c.healer.run(limited, node))
		})
	})
	if h == nil {
		return errClosed
	}
	select {
	case <-h.done:
		return h.err
	case <-ctx.wait():
		return fmt.Errorf("it is still at it: %w", ended(ctx))
	}
}

// run calls the function that was given to WithHealer.
func (h *healer) run(ctx context.Context, node redis.UniversalClient) (err error) {
	defer recovered(&err)
	return h.heal(ctx, node)
}

// begin returns the healing of a node that a call from this moment is to wait for. It runs start if there is none.
func (h *healer) begin(address string, sent time.Time, start func(*healing) bool) *healing {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := h.nodes[address]; last != nil {
		underWay := last.ended.IsZero()
		if underWay || sent.Before(last.ended) || last.err != nil && time.Since(last.ended) < healPause {
			return last
		}
	}
	next := &healing{done: make(chan struct{})}
	if !start(next) {
		return nil
	}
	h.nodes[address] = next
	return next
}

func (h *healer) end(healing *healing, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	healing.ended, healing.err = time.Now(), err
	close(healing.done)
}

// nodeOf is a client of the server that holds key, and its address.
func (c *Client) nodeOf(ctx context.Context, key string) (redis.UniversalClient, string) {
	if c.breakers.node == nil {
		return c.rdb, ""
	}
	node, err := c.breakers.node(ctx, key)
	if err != nil {
		return c.rdb, ""
	}
	return node, node.Options().Addr
}

// notFound tells whether the server that was asked does not hold the library.
func notFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && errors.Is(e.class, ErrNotDeployed) && e.Err != nil && e.Err.Error() == notFoundAny
}

// unhealed is err, of a server without the library, with why the healer did not help.
func unhealed(err, why error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	copied := *e
	copied.Err = fmt.Errorf("%w; the healer: %w", e.Err, why)
	copied.sentence = fmt.Sprintf("the server does not hold the library, and the healer did not put it there (%v); run: ratelimit deploy (%v)", why, e.Err)
	return &copied
}
