package loader

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Topology is how the servers belong together.
type Topology string

const (
	// Standalone is one server, with or without replicas and Sentinels.
	Standalone Topology = "standalone"

	// Cluster is a Redis or Valkey Cluster.
	Cluster Topology = "cluster"

	// Ring is several servers that know nothing of each other, between which a redis.Ring shares the keys.
	Ring Topology = "ring"
)

// find lists the addresses of the primaries. Where none of the addresses to begin with answers, it returns a node with its error for each
// of them.
func (l *Loader) find(ctx context.Context) (Topology, []string, []Node) {
	if l.from.servers {
		return Ring, l.from.addrs, nil
	}
	if l.from.slots != nil {
		return l.findBySlots(ctx)
	}
	var failed []Node
	for _, addr := range l.from.addrs {
		topology, found, node := l.ask(ctx, addr)
		if node == nil {
			return topology, found, nil
		}
		failed = append(failed, *node)
		if ctx.Err() != nil {
			break
		}
	}
	topology := Standalone
	if len(l.from.addrs) > 1 {
		topology = Cluster
	}
	return topology, nil, failed
}

// findBySlots takes the caller's word for what the primaries are: their own list exists because the servers do not
// know it, or know addresses that the caller cannot reach.
func (l *Loader) findBySlots(ctx context.Context) (Topology, []string, []Node) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	slots, err := l.from.slots(ctx)
	var addrs []string
	for _, slot := range slots {
		if len(slot.Nodes) > 0 && !slices.Contains(addrs, slot.Nodes[0].Addr) {
			addrs = append(addrs, slot.Nodes[0].Addr)
		}
	}
	if len(addrs) == 0 {
		if err == nil {
			err = errors.New("it names no node")
		}
		c := &conn{addr: "the cluster"}
		return Cluster, nil, []Node{failedNode("", c.fail("ClusterSlots", ErrUnreachable, err, "cannot be found by the client's own ClusterSlots (%v); check that function", err))}
	}
	slices.Sort(addrs)
	return Cluster, addrs, nil
}

// ask finds out from one node what it is part of.
func (l *Loader) ask(ctx context.Context, addr string) (Topology, []string, *Node) {
	c := l.open(addr)
	defer c.close()
	about, err := c.identify(ctx)
	if err != nil {
		node := failedNode(c.address(), err)
		return "", nil, &node
	}
	if about.mode != "cluster" {
		return Standalone, []string{addr}, nil
	}
	addrs, err := l.primaries(ctx, c)
	if err != nil {
		node := about.node(c.address())
		node.State, node.Err = stateAfter(err), err
		return "", nil, &node
	}
	return Cluster, addrs, nil
}

// primaries asks a node of a cluster for all primaries. CLUSTER SHARDS also tells of those without slots, which need the
// library before slots are moved to them; CLUSTER SLOTS, for servers or users without it, does not.
func (l *Loader) primaries(ctx context.Context, c *conn) ([]string, error) {
	reply, err := c.do(ctx, "CLUSTER", "SHARDS")
	step, read := "CLUSTER SHARDS", readShards
	if err != nil && (isCode(err, "NOPERM") || isCode(err, "ERR")) {
		if older, err2 := c.do(ctx, "CLUSTER", "SLOTS"); err2 == nil {
			reply, err = older, nil
			step, read = "CLUSTER SLOTS", readSlots
		}
	}
	if err != nil {
		return nil, failure(c, step, err)
	}
	host, _, _ := net.SplitHostPort(c.address())
	addrs := read(reply, host, l.from.options.TLSConfig != nil)
	if len(addrs) == 0 {
		return nil, garbage(c, step, reply)
	}
	slices.Sort(addrs)
	return slices.Compact(addrs), nil
}

// readShards reads CLUSTER SHARDS; nothing where it does not have that shape. A primary that the cluster has given up
// and that serves no slots is left out: when it comes back it is a replica, and gets the library as one.
func readShards(reply any, host string, tls bool) []string {
	shards, _ := reply.([]any)
	var addrs []string
	for _, shard := range shards {
		m := fields(shard)
		nodes, ok := m["nodes"].([]any)
		if !ok {
			return nil
		}
		slots, _ := m["slots"].([]any)
		for _, n := range nodes {
			node := fields(n)
			if text(node, "role") != "master" {
				continue
			}
			if len(slots) == 0 && strings.HasPrefix(text(node, "health"), "fail") {
				continue
			}
			port, ok := node["port"].(int64)
			if secure, has := node["tls-port"].(int64); has && (tls || !ok) {
				port = secure
			}
			addrs = append(addrs, reachable(text(node, "endpoint"), text(node, "ip"), host, port))
		}
	}
	return addrs
}

// readSlots reads CLUSTER SLOTS: first and last slot, then the nodes, the primary first.
func readSlots(reply any, host string, _ bool) []string {
	ranges, _ := reply.([]any)
	var addrs []string
	for _, r := range ranges {
		parts, _ := r.([]any)
		if len(parts) < 3 {
			return nil
		}
		node, _ := parts[2].([]any)
		if len(node) < 2 {
			return nil
		}
		name, _ := node[0].(string)
		port, _ := node[1].(int64)
		addrs = append(addrs, reachable(name, "", host, port))
	}
	return addrs
}

// reachable is the address under which to connect to a node that calls itself by endpoint. A node that does not know its
// own name, and one that names itself by its loopback address to somebody who came from elsewhere, are where the
// node is that was asked.
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
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
