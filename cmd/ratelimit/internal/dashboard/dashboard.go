// Package dashboard shows in a browser what `ratelimit top`, `usage`, `take --dry-run`, `policies`
// and `status` show in a terminal, and serves the counts of calls for each policy to Prometheus. It
// changes nothing. Without viewers, it sends nothing to the servers except to answer HTTP requests.
//
// The files are
//
//	read.go      reads keys and policies from the servers
//	look.go      polls the servers and makes the state that the page shows
//	http.go      serves the page, its state, and single keys
//	metrics.go   serves the metrics
package dashboard

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/policycalls"
	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/usage"
	"github.com/ratelimit-functions/ratelimit/internal/sleep"
)

// Source describes the servers that a Dashboard shows. Its functions must be safe for concurrent
// use.
type Source struct {
	Name    string        // name of the servers for display, without a password
	Timeout time.Duration // timeout of a call

	Connect func(context.Context) (redis.UniversalClient, error)
	Nodes   func(context.Context) ([]Node, error)

	NodeName func(addr string) string // returns a node's display name for its go-redis address
	Faults   func(error) string       // explains an error from a scan, or from calls to each primary
	Explain  func(error) string       // explains any other error
}

// Node is a server that should have the library.
type Node struct {
	Addr    string `json:"addr"`
	Role    string `json:"role"`
	Server  string `json:"server"`  // such as "redis 7.0.15"
	Library string `json:"library"` // version and build
	Digest  string `json:"digest"`  // digest of the library, shortened
	State   string `json:"state"`   // description for display
	Good    bool   `json:"good"`    // whether the node runs the expected build
	Dead    bool   `json:"dead"`    // whether the node does not reply
}

const (
	interval = 2 * time.Second // time between two polls of the servers
	nodesAt  = 5               // every fifth poll reads the libraries, whose source code is long
	rows     = 25              // usage keys shown in each order
	viewers  = 32              // maximum number of viewers
	kept     = 150             // points in the chart
)

// Dashboard shows the state of servers. Make one with [New], poll the servers with Run, and serve
// the page with Handler.
type Dashboard struct {
	from Source

	mu      sync.Mutex
	rdb     redis.UniversalClient // nil if not connected yet
	state   state
	text    []byte               // state as JSON
	viewers map[chan []byte]bool // each channel contains the newest state, if not sent yet
	came    chan struct{}        // signals a new viewer

	// Only Run uses the following fields.
	looks  int
	before *usage.Snapshot
	reader policycalls.Reader
}

// New returns a Dashboard. from describes the servers that it shows.
func New(from Source) *Dashboard {
	return &Dashboard{from: from, reader: policycalls.Reader{Timeout: from.Timeout}, state: state{Servers: from.Name}, viewers: map[chan []byte]bool{}, came: make(chan struct{}, 1)}
}

// Run polls the servers while there are viewers, until ctx ends.
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
		_ = sleep.For(ctx, interval)
	}
}

func (d *Dashboard) watched() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.viewers) > 0
}

// connection returns the client for the servers, connecting first if necessary.
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

// view subscribes a new viewer to states until leave is called. It returns false if there are too
// many viewers.
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
	d.text, _ = json.Marshal(d.state) // a struct of numbers and strings always marshals
	for states := range d.viewers {
		select {
		case <-states: // drop an outdated state
		default:
		}
		states <- d.text
	}
}
