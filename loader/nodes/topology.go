package nodes

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/ratelimit-functions/ratelimit/internal/respmap"
)

// Topologies: the arrangements of the servers.
const (
	Standalone = "standalone" // one server, with or without replicas and Sentinels
	Cluster    = "cluster"    // a Redis or Valkey Cluster
	Ring       = "ring"       // independent servers; a redis.Ring distributes the keys among them
)

// Shard describes a primary. Slots holds the first and the last slot of each range that it serves.
// ReplicaAddrs holds the addresses of its replicas, if the cluster lists them.
type Shard struct {
	Addr         string
	Slots        []int
	ReplicaAddrs []string
}

// Lowest returns the lowest slot, or AllSlots if there is none.
func (s Shard) Lowest() int {
	low := AllSlots
	for i := 0; i+1 < len(s.Slots); i += 2 {
		low = min(low, s.Slots[i])
	}
	return low
}

// AllSlots is the number of slots of a cluster.
const AllSlots = 16384

// Failed is a node that did not say which primaries there are. About is empty if it did not describe
// itself.
type Failed struct {
	Addr  string
	About About
	Err   error
}

// Find lists the primaries, and returns their topology. If no starting address replies, it returns a
// Failed for each address.
func (p *Pool) Find(ctx context.Context) (string, []Shard, []Failed) {
	from := p.origin
	if from.servers {
		shards := make([]Shard, len(from.addrs))
		for i, addr := range from.addrs {
			shards[i] = Shard{Addr: addr}
		}
		return Ring, shards, nil
	}
	if from.slots != nil {
		return p.findBySlots(ctx)
	}
	var failed []Failed
	asked := map[string]bool{}
	for _, addr := range slices.Concat(p.seeds, from.addrs) {
		if asked[addr] {
			continue
		}
		asked[addr] = true
		topology, found, node := p.ask(ctx, addr)
		if node == nil {
			if topology == Cluster {
				p.seeds = []string{addr}
				for _, at := range found {
					p.seeds = append(p.seeds, at.Addr)
				}
			}
			return topology, found, nil
		}
		failed = append(failed, *node)
		if ctx.Err() != nil {
			break
		}
	}
	topology := Standalone
	if len(from.addrs) > 1 {
		topology = Cluster
	}
	return topology, nil, failed
}

// findBySlots takes the primaries from the caller's own list. Callers provide a list if the servers
// do not list all nodes, or list addresses that the caller cannot reach.
func (p *Pool) findBySlots(ctx context.Context) (string, []Shard, []Failed) {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	slots, err := p.origin.slots(ctx)
	var shards []Shard
	for _, slot := range slots {
		if len(slot.Nodes) > 0 {
			at := Shard{Addr: slot.Nodes[0].Addr, Slots: []int{slot.Start, slot.End}}
			for _, node := range slot.Nodes[1:] {
				at.ReplicaAddrs = append(at.ReplicaAddrs, node.Addr)
			}
			shards = append(shards, at)
		}
	}
	if len(shards) == 0 {
		err = cmp.Or(err, errors.New("it names no node"))
		c := &Conn{addr: "the cluster"}
		return Cluster, nil, []Failed{{Err: c.Fail("ClusterSlots", ErrUnreachable, err, "check that function", "cannot be found by the client's own ClusterSlots (%v)", err)}}
	}
	return Cluster, merge(shards), nil
}

// merge joins the shards that have the same address, and sorts them.
func merge(shards []Shard) []Shard {
	var merged []Shard
	for _, at := range shards {
		if i := slices.IndexFunc(merged, func(m Shard) bool { return m.Addr == at.Addr }); i >= 0 {
			merged[i].Slots = append(merged[i].Slots, at.Slots...)
			merged[i].ReplicaAddrs = append(merged[i].ReplicaAddrs, at.ReplicaAddrs...)
		} else {
			merged = append(merged, at)
		}
	}
	slices.SortFunc(merged, func(a, b Shard) int { return CompareAddrs(a.Addr, b.Addr) })
	return merged
}

// ask asks one node for its topology and the primaries.
func (p *Pool) ask(ctx context.Context, addr string) (string, []Shard, *Failed) {
	c := p.Conn(addr)
	about, err := c.Identify(ctx)
	if err != nil {
		p.Drop(addr)
		return "", nil, &Failed{Addr: c.Address(), Err: err}
	}
	if about.mode != "cluster" {
		return Standalone, []Shard{{Addr: addr}}, nil
	}
	shards, err := c.primaries(ctx, p.origin.options.TLSConfig != nil)
	if err != nil {
		return "", nil, &Failed{c.Address(), about, err}
	}
	return Cluster, shards, nil
}

// primaries reads a cluster's primaries from one of its nodes. CLUSTER SHARDS includes primaries
// without slots, which need the library before slots are moved to them. If the server does not have
// CLUSTER SHARDS or the user may not call it, primaries calls CLUSTER SLOTS, which omits primaries
// without slots.
func (c *Conn) primaries(ctx context.Context, tls bool) ([]Shard, error) {
	reply, err := c.Do(ctx, "CLUSTER", "SHARDS")
	step, read := "CLUSTER SHARDS", readShards
	if err != nil && (CodeOf(err) == "NOPERM" || CodeOf(err) == "ERR") {
		if older, err2 := c.Do(ctx, "CLUSTER", "SLOTS"); err2 == nil {
			reply, err = older, nil
			step, read = "CLUSTER SLOTS", readSlots
		}
	}
	if err != nil {
		return nil, c.Failure(step, err)
	}
	host, _, _ := net.SplitHostPort(c.Address())
	shards := read(reply, host, tls)
	if len(shards) == 0 {
		return nil, c.Garbage(step, reply)
	}
	return merge(shards), nil
}

// readShards parses a reply to CLUSTER SHARDS from the node at host. If tls is true, it uses the
// nodes' TLS ports. It returns nil if the reply is malformed. It omits a primary that the cluster
// marks as failed and that serves no Slots, because it has none or because another primary of its
// shard has replaced it: when it comes back, it will be a replica and get the library from its
// primary.
func readShards(reply any, host string, tls bool) []Shard {
	list, _ := reply.([]any)
	var shards []Shard
	for _, entry := range list {
		m := respmap.Of(entry)
		nodes, ok := m["nodes"].([]any)
		if !ok {
			return nil
		}
		list, ok := m["slots"].([]any)
		if !ok || len(list)%2 != 0 {
			return nil
		}
		slots := make([]int, len(list))
		for i, slot := range list {
			n, ok := slot.(int64)
			if !ok || n < 0 || n >= AllSlots {
				return nil
			}
			slots[i] = int(n)
		}
		first := len(shards)
		replaced := slices.ContainsFunc(nodes, serves)
		var replicas []string
		for _, n := range nodes {
			node := respmap.Of(n)
			primary := stringOf(node, "role") == "master"
			if primary && !serves(n) && (replaced || len(slots) == 0) {
				continue
			}
			port, ok := node["port"].(int64)
			if secure, has := node["tls-port"].(int64); has && (tls || !ok) {
				port, ok = secure, true
			}
			if !ok || !isPort(port) {
				if primary {
					return nil
				}
				continue
			}
			addr := reachable(stringOf(node, "endpoint"), stringOf(node, "ip"), host, port)
			if primary {
				shards = append(shards, Shard{Addr: addr, Slots: slots})
			} else {
				replicas = append(replicas, addr)
			}
		}
		if len(shards) > first {
			shards[first].ReplicaAddrs = replicas
		}
	}
	return shards
}

// serves reports whether a node in a reply to CLUSTER SHARDS is a primary that has not failed.
func serves(n any) bool {
	node := respmap.Of(n)
	return stringOf(node, "role") == "master" && !strings.HasPrefix(stringOf(node, "health"), "fail")
}

// readSlots parses a reply to CLUSTER SLOTS. Each entry contains the first and the last slot of a
// range, its primary, and the replicas. readSlots returns nil if the reply is malformed.
func readSlots(reply any, host string, _ bool) []Shard {
	ranges, _ := reply.([]any)
	var shards []Shard
	for _, r := range ranges {
		parts, _ := r.([]any)
		if len(parts) < 3 {
			return nil
		}
		from, ok1 := parts[0].(int64)
		to, ok2 := parts[1].(int64)
		if !ok1 || !ok2 || from < 0 || from > to || to >= AllSlots {
			return nil
		}
		at := Shard{Slots: []int{int(from), int(to)}}
		for i, part := range parts[2:] {
			node, _ := part.([]any)
			if len(node) < 2 {
				return nil
			}
			name, isText := node[0].(string)
			port, isNumber := node[1].(int64)
			if !isText && node[0] != nil || !isNumber || !isPort(port) { // nil: the node does not know its own name
				return nil
			}
			if addr := reachable(name, "", host, port); i == 0 {
				at.Addr = addr
			} else {
				at.ReplicaAddrs = append(at.ReplicaAddrs, addr)
			}
		}
		shards = append(shards, at)
	}
	return shards
}

func isPort(n int64) bool { return n > 0 && n <= math.MaxUint16 }

// reachable returns the address for connecting to a node that announces endpoint and ip. host is
// the host of the node that sent the reply. reachable uses host if the node announces neither a
// name nor an address, or if it announces a loopback address and host is not one.
func reachable(endpoint, ip, host string, port int64) string {
	name := endpoint
	if name == "" || name == "?" {
		name = ip
	}
	if name == "" || (isLoopback(name) && !isLoopback(host)) {
		name = host
	}
	return net.JoinHostPort(name, strconv.FormatInt(port, 10))
}

func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
