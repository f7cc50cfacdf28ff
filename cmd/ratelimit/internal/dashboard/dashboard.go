// Package dashboard shows in a browser what `ratelimit top`, `usage`, `peek`, `info` and `status` show in a terminal. It changes
// nothing, and asks the servers for nothing while nobody looks.
package dashboard

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/internal/usage"
)

// Source is where a Dashboard gets what it shows. Every function may be called by several goroutines at a time.
type Source struct {
	Name string // of the servers, for people, without a password

	Connect func(context.Context) (redis.UniversalClient, error)
	Nodes   func(context.Context) ([]Node, error)

	// Peek and Usage return what is sent as JSON: of a limiter, and of a usage key.
	Peek  func(ctx context.Context, rdb redis.UniversalClient, keys []string, limit string) (any, error)
	Usage func(ctx context.Context, rdb redis.UniversalClient, key string) (any, error)

	Faults  func(error) string // puts an error of a scan into words
	Explain func(error) string // the same of any other
	Visible func(key string) string
}

// Node is a server that is expected to hold the library.
type Node struct {
	Addr    string `json:"addr"`
	Role    string `json:"role"`
	Server  string `json:"server"`  // such as "redis 7.0.15"
	Library string `json:"library"` // version and build
	Digest  string `json:"digest"`  // of its text, shortened
	State   string `json:"state"`   // in words
	Good    bool   `json:"good"`    // it is as it should be
	Dead    bool   `json:"dead"`    // it does not answer
}

const (
	interval = 2 * time.Second // between two looks
	nodesAt  = 5               // each so many looks the nodes are asked for their library, whose text is long
	rows     = 25              // of each order
	viewers  = 32              // at a time
	kept     = 150             // points of the chart
)

// Dashboard is made by [New], served by its Handler, and looks while Run runs.
type Dashboard struct {
	from Source

	mu      sync.Mutex
	rdb     redis.UniversalClient // nil: not connected yet
	state   state
	text    []byte               // state, as it is sent
	viewers map[chan []byte]bool // a channel holds the newest state that was not sent yet
	came    chan struct{}        // a viewer did

	// Of Run alone.
	looks  int
	before *usage.Snapshot
	shadow shadows
	policy knownPolicies
}

// New makes a Dashboard.
func New(from Source) *Dashboard {
	return &Dashboard{from: from, state: state{Servers: from.Name}, viewers: map[chan []byte]bool{}, came: make(chan struct{}, 1)}
}

// Run looks again and again while there are viewers, until ctx ends.
func (d *Dashboard) Run(ctx context.Context) {
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.rdb != nil {
			_ = d.rdb.Close()
		}
	}()
	for ctx.Err() == nil {
		if !d.watched() {
			select {
			case <-ctx.Done():
				return
			case <-d.came:
			}
			continue
		}
		d.look(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
	}
}

func (d *Dashboard) watched() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.viewers) > 0
}

// connection is the client of the servers; an error says why there is none yet.
func (d *Dashboard) connection(ctx context.Context) (redis.UniversalClient, error) {
	d.mu.Lock()
	rdb := d.rdb
	d.mu.Unlock()
	if rdb != nil {
		return rdb, nil
	}
	rdb, err := d.from.Connect(ctx)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rdb != nil { // another caller was faster
		_ = rdb.Close()
		return d.rdb, nil
	}
	d.rdb = rdb
	return rdb, nil
}

// view begins to send states to a new viewer, until leave is called; false: there are too many.
func (d *Dashboard) view() (states chan []byte, leave func(), ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.viewers) >= viewers {
		return nil, nil, false
	}
	states = make(chan []byte, 1)
	d.viewers[states] = true
	if d.text != nil {
		states <- d.text
	}
	select {
	case d.came <- struct{}{}:
	default:
	}
	return states, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.viewers, states)
	}, true
}

// publish changes the state and sends it to all viewers.
func (d *Dashboard) publish(change func(*state)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.state)
	d.text, _ = json.Marshal(d.state) // of numbers and text alone
	for states := range d.viewers {
		select {
		case <-states: // too old
		default:
		}
		states <- d.text
	}
}
