// Package nodes finds the servers of a fleet and talks to each of them. Packages loader and doctor use
// it; other programs need its errors.
package nodes

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Pool holds the open connections to the servers, one for each address.
type Pool struct {
	Timeout time.Duration // of a step

	origin Origin
	trace  func(addr, command string)

	mu    sync.Mutex
	conns map[string]*Conn
	seeds []string // the node that replied last, and the primaries that it listed; tried before the caller's addresses
}

// Pool returns a Pool without connections. trace, if it is not nil, is called before each command.
func (o Origin) Pool(timeout time.Duration, trace func(addr, command string)) *Pool {
	return &Pool{Timeout: timeout, origin: o, trace: trace, conns: map[string]*Conn{}}
}

// Conn returns the connection to the node at addr.
func (p *Pool) Conn(addr string) *Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.conns[addr]
	if c == nil {
		c = p.open(addr)
		p.conns[addr] = c
	}
	return c
}

// Drop closes the connection to a node, so that the next call dials again.
func (p *Pool) Drop(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.conns[addr]; c != nil {
		_ = c.rdb.Close()
		delete(p.conns, addr)
	}
}

// Prune closes the connections to the nodes for which keep returns false, except those from which the
// next Find starts.
func (p *Pool) Prune(keep func(addr string) bool) {
	p.mu.Lock()
	gone := slices.DeleteFunc(slices.Collect(maps.Keys(p.conns)), func(addr string) bool { return keep(addr) || slices.Contains(p.seeds, addr) })
	p.mu.Unlock()
	for _, addr := range gone {
		p.Drop(addr)
	}
}

// Close closes all connections.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.rdb.Close()
	}
	clear(p.conns)
}

// most is the maximum number of nodes that are processed at the same time.
const most = 16

// Each calls f for every item, several at a time, and waits until all calls have returned.
func Each[T any](items []T, f func(T)) {
	Results(items, func(item T) struct{} {
		f(item)
		return struct{}{}
	})
}

// Results is like Each. It returns what f returned, in the order of items.
func Results[T, R any](items []T, f func(T) R) []R {
	list := make([]R, len(items))
	var wg sync.WaitGroup
	turn := make(chan struct{}, most)
	for i, item := range items {
		turn <- struct{}{}
		wg.Go(func() {
			list[i] = f(item)
			<-turn
		})
	}
	wg.Wait()
	return list
}

// CompareAddrs compares addresses: first by host, then numerically by port.
func CompareAddrs(a, b string) int {
	if d := len(a) - len(b); d != 0 && strings.TrimRight(a, "0123456789") == strings.TrimRight(b, "0123456789") {
		return d
	}
	return strings.Compare(a, b)
}
