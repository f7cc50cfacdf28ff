package loader

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

// Topology is the arrangement of the servers: one server, a cluster or a ring.
type Topology string

const (
	// Standalone is one server, with or without replicas and Sentinels.
	Standalone Topology = "standalone"

	// Cluster is a Redis or Valkey Cluster.
	Cluster Topology = "cluster"

	// Ring is a set of independent servers. A redis.Ring distributes the keys among them.
	Ring Topology = "ring"
)

// shard describes a primary. slots holds the first and the last slot of each range that it serves.
// replicaAddrs holds the addresses of its replicas, if the cluster lists them.
type shard struct {
	addr         string
	slots        []int
	replicaAddrs []string
}

// lowest returns the lowest slot, or allSlots if there is none.
func (s shard) lowest() int {
	low := allSlots
	for i := 0; i+1 < len(s.slots); i += 2 {
		low = min(low, s.slots[i])
	}
	return low
}

const allSlots = 16384

// find lists the primaries. If no starting address replies, it returns a node with an error for
// each address.
func (s *session) find(ctx context.Context) (Topology, []shard, []Node) {
	from := s.l.from
	if from.servers {
		shards := make([]shard, len(from.addrs))
		for i, addr := range from.addrs {
			shards[i] = shard{addr: addr}
		}
		return Ring, shards, nil
	}
	if from.slots != nil {
		return s.findBySlots(ctx)
	}
	var failed []Node
	asked := map[string]bool{}
	for _, addr := range slices.Concat(s.seeds, from.addrs) {
		if asked[addr] {
			continue
		}
		asked[addr] = true
		topology, found, node := s.ask(ctx, addr)
		if node == nil {
			if topology == Cluster {
				s.seeds = []string{addr}
				for _, at := range found {
					s.seeds = append(s.seeds, at.addr)
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
func (s *session) findBySlots(ctx context.Context) (Topology, []shard, []Node) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	slots, err := s.l.from.slots(ctx)
	var shards []shard
	for _, slot := range slots {
		if len(slot.Nodes) > 0 {
			at := shard{addr: slot.Nodes[0].Addr, slots: []int{slot.Start, slot.End}}
			for _, node := range slot.Nodes[1:] {
				at.replicaAddrs = append(at.replicaAddrs, node.Addr)
			}
			shards = append(shards, at)
		}
	}
	if len(shards) == 0 {
		err = cmp.Or(err, errors.New("it names no node"))
		c := &conn{addr: "the cluster"}
		return Cluster, nil, []Node{failedNode("", c.fail("ClusterSlots", ErrUnreachable, err, "check that function", "cannot be found by the client's own ClusterSlots (%v)", err))}
	}
	return Cluster, merge(shards), nil
}

// merge joins the shards that have the same address, and sorts them.
func merge(shards []shard) []shard {
	var merged []shard
	for _, at := range shards {
		if i := slices.IndexFunc(merged, func(m shard) bool { return m.addr == at.addr }); i >= 0 {
			merged[i].slots = append(merged[i].slots, at.slots...)
			merged[i].replicaAddrs = append(merged[i].replicaAddrs, at.replicaAddrs...)
		} else {
			merged = append(merged, at)
		}
	}
	slices.SortFunc(merged, func(a, b shard) int { return compareAddrs(a.addr, b.addr) })
	return merged
}

// ask asks one node for its topology and the primaries.
func (s *session) ask(ctx context.Context, addr string) (Topology, []shard, *Node) {
	c := s.conn(addr)
	about, err := c.identify(ctx)
	if err != nil {
		s.drop(addr)
		node := failedNode(c.address(), err)
		return "", nil, &node
	}
	if about.mode != "cluster" {
		return Standalone, []shard{{addr: addr}}, nil
	}
	shards, err := c.primaries(ctx, s.l.from.options.TLSConfig != nil)
	if err != nil {
		node := about.node(c.address())
		node.State, node.Err = stateAfter(err), err
		return "", nil, &node
	}
	return Cluster, shards, nil
}

// primaries reads a cluster's primaries from one of its nodes. CLUSTER SHARDS includes primaries
// without slots, which need the library before slots are moved to them. If the server does not have
// CLUSTER SHARDS or the user may not call it, primaries calls CLUSTER SLOTS, which omits primaries
// without slots.
func (c *conn) primaries(ctx context.Context, tls bool) ([]shard, error) {
	reply, err := c.do(ctx, "CLUSTER", "SHARDS")
	step, read := "CLUSTER SHARDS", readShards
	if err != nil && (codeOf(err) == "NOPERM" || codeOf(err) == "ERR") {
		if older, err2 := c.do(ctx, "CLUSTER", "SLOTS"); err2 == nil {
			reply, err = older, nil
			step, read = "CLUSTER SLOTS", readSlots
		}
	}
	if err != nil {
		return nil, failure(c, step, err)
	}
	host, _, _ := net.SplitHostPort(c.address())
	shards := read(reply, host, tls)
	if len(shards) == 0 {
		return nil, garbage(c, step, reply)
	}
	return merge(shards), nil
}

// readShards parses a reply to CLUSTER SHARDS from the node at host. If tls is true, it uses the
// nodes' TLS ports. It returns nil if the reply is malformed. It omits a primary that the cluster
// marks as failed and that serves no slots: when it comes back, it will be a replica and get the
// library from its primary.
func readShards(reply any, host string, tls bool) []shard {
	list, _ := reply.([]any)
	var shards []shard
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
			if !ok || n < 0 || n >= allSlots {
				return nil
			}
			slots[i] = int(n)
		}
		first := len(shards)
		var replicas []string
		for _, n := range nodes {
			node := respmap.Of(n)
			primary := stringOf(node, "role") == "master"
			if primary && len(slots) == 0 && strings.HasPrefix(stringOf(node, "health"), "fail") {
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
				shards = append(shards, shard{addr: addr, slots: slots})
			} else {
				replicas = append(replicas, addr)
			}
		}
		if len(shards) > first {
			shards[first].replicaAddrs = replicas
		}
	}
	return shards
}

// readSlots parses a reply to CLUSTER SLOTS. Each entry contains the first and the last slot of a
// range, its primary, and the replicas. readSlots returns nil if the reply is malformed.
func readSlots(reply any, host string, _ bool) []shard {
	ranges, _ := reply.([]any)
	var shards []shard
	for _, r := range ranges {
		parts, _ := r.([]any)
		if len(parts) < 3 {
			return nil
		}
		from, ok1 := parts[0].(int64)
		to, ok2 := parts[1].(int64)
		if !ok1 || !ok2 || from < 0 || from > to || to >= allSlots {
			return nil
		}
		at := shard{slots: []int{int(from), int(to)}}
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
				at.addr = addr
			} else {
				at.replicaAddrs = append(at.replicaAddrs, addr)
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
