package loader

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Finding is something about the servers that will hurt one day.
type Finding struct {
	Check string `json:"check"` // "reach", "eviction", "persistence", "clock", "replicas", "rights" or "coverage"
	Addr  string `json:"addr"`  // the node, empty where it is about all
	Found string `json:"found"` // what is so
	Means string `json:"means"` // what comes of it
	Do    string `json:"do"`    // what to do
}

// Diagnosis is the outcome of [Loader.Doctor].
type Diagnosis struct {
	Topology Topology  `json:"topology"`
	Nodes    []string  `json:"nodes"` // primaries and replicas that were looked at
	Findings []Finding `json:"findings"`

	// Unchecked says what could not be looked at, for lack of a right, and with which it can.
	Unchecked []string `json:"unchecked"`
}

// Bounds of what is still fine.
const (
	clockSpread   = 500 * time.Millisecond
	replicaSilent = 10      // s since a replica was last heard of
	replicaBehind = 1 << 20 // bytes
)

// Doctor looks at every primary and its replicas for what does not keep a deployment from working and will hurt later: keys
// of limits that may be evicted, libraries that a restart loses, clocks that differ, replicas that lag, rights that are missing, slots that
// nobody serves. It changes nothing. Beside the rights of a deployer it uses +info and +config|get, and lists as Unchecked what it
// could not see without them.
//
// A node that does not answer is a finding, not an error. The error is that of ctx.
func (l *Loader) Doctor(ctx context.Context) (Diagnosis, error) {
	s := l.session()
	defer s.close()
	x := &examination{Diagnosis: Diagnosis{Findings: []Finding{}, Unchecked: []string{}}}
	topology, seats, failed := s.find(ctx)
	x.Topology = topology
	for _, n := range failed {
		x.unreachable(n.Addr, n.Err)
	}
	x.coverage(topology, seats)
	x.all(seats, func(at seat) { x.primary(ctx, s.conn(at.addr)) })
	x.all(x.replicas, func(at seat) { x.node(ctx, s.conn(at.addr)) })
	x.clocks()
	slices.Sort(x.Nodes)
	slices.Sort(x.Unchecked)
	slices.SortStableFunc(x.Findings, func(a, b Finding) int {
		if a.Check != b.Check {
			return strings.Compare(a.Check, b.Check)
		}
		return compareAddrs(a.Addr, b.Addr)
	})
	return x.Diagnosis, ctx.Err()
}

// examination is a Diagnosis in the making.
type examination struct {
	mu sync.Mutex
	Diagnosis
	replicas []seat
	times    []clockReading
}

// clockReading is how far a node's clock is ahead of ours, give or take.
type clockReading struct {
	addr         string
	ahead, error time.Duration
}

func (x *examination) all(seats []seat, f func(seat)) {
	members := make([]*member, len(seats))
	for i, at := range seats {
		members[i] = &member{seat: at}
	}
	each(members, func(m *member) { f(m.seat) })
}

func (x *examination) find(check, addr, found, means, do string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.Findings = append(x.Findings, Finding{check, addr, found, means, do})
}

func (x *examination) skip(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.Unchecked = append(x.Unchecked, fmt.Sprintf(format, args...))
}

func (x *examination) unreachable(addr string, err error) {
	x.find("reach", addr, err.Error(), "it cannot be deployed to, and limits whose keys it holds cannot be decided", "bring it back, or take it out of what is deployed to")
}

// primary examines a primary: what every node is examined for, its replicas, and our user's rights.
func (x *examination) primary(ctx context.Context, c *conn) {
	if !x.node(ctx, c) {
		return
	}
	reply, err := c.do(ctx, "ROLE")
	parts, _ := reply.([]any)
	if err == nil && len(parts) >= 3 && parts[0] == "master" {
		list, _ := parts[2].([]any)
		host, _, _ := net.SplitHostPort(c.address())
		for _, replica := range list {
			fields, _ := replica.([]any)
			if len(fields) < 2 {
				continue
			}
			name, _ := fields[0].(string)
			port, _ := fields[1].(string)
			n, _ := strconv.ParseInt(port, 10, 64)
			x.mu.Lock()
			x.replicas = append(x.replicas, seat{addr: reachable(name, "", host, n)})
			x.mu.Unlock()
		}
	} else if isCode(err, "NOPERM") {
		x.skip("the replicas of %s: grant +role", c.address())
	}
	x.rights(ctx, c)
}

// node examines what matters on a primary and on a replica, which may be one. It tells whether the node answers.
func (x *examination) node(ctx context.Context, c *conn) bool {
	if _, err := c.identify(ctx); err != nil {
		x.unreachable(c.address(), err)
		return false
	}
	x.mu.Lock()
	x.Nodes = append(x.Nodes, c.address())
	x.mu.Unlock()
	began := time.Now()
	if ms, err := c.timeMS(ctx); err == nil {
		took := time.Since(began)
		x.mu.Lock()
		x.times = append(x.times, clockReading{c.address(), time.UnixMilli(ms).Sub(began.Add(took / 2)), took/2 + time.Millisecond})
		x.mu.Unlock()
	}
	reply, err := c.do(ctx, "INFO")
	if err != nil {
		if isCode(err, "NOPERM") {
			x.skip("memory, saving and replicas of %s: grant +info", c.address())
		} else {
			x.unreachable(c.address(), failure(c, "INFO", err))
		}
		return true
	}
	m := info(reply)
	x.eviction(c.address(), m)
	x.persistence(ctx, c, m)
	x.lag(c.address(), m)
	return true
}

func (x *examination) eviction(addr string, m map[string]string) {
	policy := m["maxmemory_policy"]
	if policy == "" || policy == "noeviction" || m["maxmemory"] == "0" || m["maxmemory"] == "" {
		return
	}
	x.find("eviction", addr, fmt.Sprintf("maxmemory is %s bytes and maxmemory-policy is %s", m["maxmemory"], policy),
		"when memory is full the server drops keys of limits, since all of them expire, and a limit whose key is dropped starts full again: more is let through than it says",
		"give limits a server of their own with: CONFIG SET maxmemory-policy noeviction")
}

func (x *examination) persistence(ctx context.Context, c *conn, m map[string]string) {
	const means = "after a restart the library is gone, as are all counts, and calls answer: ERR Function not found"
	for _, field := range []string{"rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status"} {
		if m[field] != "" && m[field] != "ok" {
			x.find("persistence", c.address(), fmt.Sprintf("%s is %s", field, m[field]), means, "look into the server's log and at its disk")
		}
	}
	if m["aof_enabled"] == "1" {
		return
	}
	reply, err := c.do(ctx, "CONFIG", "GET", "save")
	if err != nil {
		x.skip("whether %s saves to disk: grant +config|get", c.address())
		return
	}
	if save, has := fields(reply)["save"]; has && save == "" {
		x.find("persistence", c.address(), "neither snapshots (save) nor the append-only file are on", means,
			"turn one on, as with CONFIG SET appendonly yes, or keep this running: ratelimit status --watch")
	}
}

// lag looks at the replicas as a primary lists them, and at the link as a replica sees it.
func (x *examination) lag(addr string, m map[string]string) {
	const means = "if its primary fails it takes over without the latest counts, or without the library"
	const do = "look at the network and the load between the two"
	if m["role"] == "slave" && m["master_link_status"] != "up" {
		x.find("replicas", addr, fmt.Sprintf("its link to its primary %s:%s is %s", m["master_host"], m["master_port"], m["master_link_status"]), means, do)
	}
	at, _ := strconv.ParseInt(m["master_repl_offset"], 10, 64)
	for field, line := range m {
		if !strings.HasPrefix(field, "slave") || !strings.Contains(line, "ip=") {
			continue
		}
		replica := map[string]string{}
		for pair := range strings.SplitSeq(line, ",") {
			name, v, _ := strings.Cut(pair, "=")
			replica[name] = v
		}
		name := net.JoinHostPort(replica["ip"], replica["port"])
		offset, _ := strconv.ParseInt(replica["offset"], 10, 64)
		silent, _ := strconv.ParseInt(replica["lag"], 10, 64)
		switch {
		case replica["state"] != "online":
			x.find("replicas", addr, fmt.Sprintf("its replica %s is not in step yet: %s", name, replica["state"]), means, do)
		case silent >= replicaSilent:
			x.find("replicas", addr, fmt.Sprintf("its replica %s was last heard of %d s ago", name, silent), means, do)
		case at-offset > replicaBehind:
			x.find("replicas", addr, fmt.Sprintf("its replica %s is %d bytes behind", name, at-offset), means, do)
		}
	}
}

// rights tries what a deployment needs, in forms that change nothing.
func (x *examination) rights(ctx context.Context, c *conn) {
	probes := deployerProbes
	if x.Topology == Cluster {
		probes = append(slices.Clone(probes), clusterProbe)
	}
	var missing []string
	for _, p := range probes {
		if _, err := c.do(ctx, p...); isCode(err, "NOPERM") {
			missing = append(missing, p.right())
		}
	}
	if len(missing) > 0 {
		user := c.userName()
		x.find("rights", c.address(), fmt.Sprintf("the user %q lacks %s", user, strings.Join(missing, " ")), "a deployment by this user fails, or knows less than it could",
			"grant them on every node with: "+c.grant(missing))
	}
}

// clocks compares the nodes' clocks with each other.
func (x *examination) clocks() {
	if len(x.times) < 2 {
		return
	}
	byAhead := func(a, b clockReading) int { return int(a.ahead - b.ahead) }
	first, last := slices.MinFunc(x.times, byAhead), slices.MaxFunc(x.times, byAhead)
	apart := last.ahead - first.ahead
	if apart-first.error-last.error <= clockSpread {
		return
	}
	x.find("clock", last.addr, fmt.Sprintf("its clock is %v ahead of that of %s", apart.Round(time.Millisecond), first.addr),
		"limits go by the server's clock: when keys move from one node to the other, by a failover or with their slot, some are let through too early and others too late by that much",
		"have all nodes keep their time by NTP")
}

// coverage looks for slots that no primary serves.
func (x *examination) coverage(topology Topology, seats []seat) {
	if topology != Cluster || len(seats) == 0 {
		return
	}
	var served [allSlots]bool
	count := 0
	for _, at := range seats {
		for i := 0; i+1 < len(at.slots); i += 2 {
			for slot := max(0, at.slots[i]); slot <= min(at.slots[i+1], allSlots-1); slot++ {
				if !served[slot] {
					served[slot] = true
					count++
				}
			}
		}
	}
	if count == allSlots {
		return
	}
	var gaps []string
	for slot := 0; slot < allSlots; slot++ {
		if served[slot] {
			continue
		}
		from := slot
		for slot+1 < allSlots && !served[slot+1] {
			slot++
		}
		gaps = append(gaps, fmt.Sprintf("%d-%d", from, slot))
	}
	if len(gaps) > 5 {
		gaps = append(gaps[:5], "...")
	}
	x.find("coverage", "", fmt.Sprintf("%d of %d slots are served by no primary (%s)", allSlots-count, allSlots, strings.Join(gaps, ", ")),
		"keys in these slots get no decision, and with cluster-require-full-coverage yes no key does", "repair it with: redis-cli --cluster fix HOST:PORT")
}
