package loader

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// Finding is a problem with the servers that prevents decisions now, or may prevent them later.
type Finding struct {
	Check string   `json:"check"` // "reach", "functions", "coverage", "writes", "library", "replicas", "persistence", "eviction", "clock" or "rights"
	Addrs []string `json:"addrs"` // the nodes that have the problem, or none if the finding is about all nodes together
	Found string   `json:"found"` // what was found
	Means string   `json:"means"` // the consequence
	Do    string   `json:"do"`    // what to do
	Err   error    `json:"-"`     // an [*Error] of the finding's class, about the first of Addrs, or nil
}

// checks lists the values of Finding.Check, the worst first. A cause comes before its consequences:
// a server that does not reply ("reach") leaves its slots without a primary ("coverage").
var checks = []string{"reach", "functions", "coverage", "writes", "library", "replicas", "persistence", "eviction", "clock", "rights"}

// Unchecked describes a check that could not be made on some nodes.
type Unchecked struct {
	What  string   `json:"what"` // such as "the clock"
	Addrs []string `json:"addrs"`
	Why   string   `json:"why"` // such as "grant +time"
}

// Diagnosis is the outcome of [Loader.Doctor].
type Diagnosis struct {
	Topology Topology  `json:"topology"`
	Nodes    []string  `json:"nodes"`    // primaries and replicas that were examined
	Findings []Finding `json:"findings"` // the worst first; a problem that several nodes have is one finding

	// Unchecked lists what could not be examined, usually because the user lacks a permission.
	// Managed services often do not grant permissions such as +config|get.
	Unchecked []Unchecked `json:"unchecked"`
}

// Doctor reports values above these, and silence of at least replicaSilent, as findings.
const (
	clockSpread   = 500 * time.Millisecond
	replicaSilent = 10      // seconds since a replica was last heard from
	replicaBehind = 1 << 20 // bytes
)

// Doctor examines every primary and its replicas. It looks for problems that prevent decisions:
// servers without functions or Lua, slots that no primary serves, a library that is missing or does
// not respond, and servers that accept no writes. It also looks for causes of later problems: keys
// of limits that may be evicted, libraries that a restart loses, clocks that differ, replicas that
// lag, and missing permissions. It changes nothing. In addition to a deployer's permissions, it
// uses +info, +config|get, +fcall_ro|ratelimit_info and, in a cluster, +cluster|info. If the user
// lacks one of these permissions, the checks that need it are listed as Unchecked.
//
// A node that does not reply is a finding, not an error. The returned error is ctx.Err().
func (l *Loader) Doctor(ctx context.Context) (Diagnosis, error) {
	s := l.session()
	defer s.close()
	x := &examination{follows: map[string]patient{}, holds: map[string][]string{}}
	topology, shards, failed := s.find(ctx)
	for _, n := range failed {
		if e, ok := errors.AsType[*Error](n.Err); ok && strings.HasPrefix(e.Step, "CLUSTER ") && (e.Class == ErrNoPermission || e.Class == nil) {
			why := "grant " + clusterProbe.right()
			if e.Class == nil {
				why = "it " + e.found()
			}
			x.skip("the other nodes of the cluster", n.Addr, why)
			shards, topology, x.partly = append(shards, shard{addr: n.Addr}), Cluster, true
			continue
		}
		x.failed("reach", n.Err, unreached)
	}
	x.Topology = topology
	if !x.partly {
		x.coverage(topology, shards)
	}
	for _, at := range shards {
		x.follow(patient{}, at.replicaAddrs)
	}
	each(shards, func(at shard) {
		c := s.conn(at.addr)
		if topology == Cluster && s.follows(ctx, c, shards) {
			return // the cluster's list of primaries is outdated: the node has become a replica, and is examined as one
		}
		x.primary(ctx, c, at)
	})
	each(x.replicas, func(addr string) { x.replica(ctx, s.conn(addr), x.follows[addr]) })
	x.clocks()
	x.builds()
	slices.SortFunc(x.Nodes, compareAddrs)
	return x.diagnosis(), ctx.Err()
}

// examination is a Diagnosis under construction.
type examination struct {
	mu        sync.Mutex
	Diagnosis                    // Findings and Unchecked have one entry for each node
	partly    bool               // whether the user lacks permission to list the nodes of the cluster
	replicas  []string           // addresses
	follows   map[string]patient // each replica's primary, by the replica's address; empty if the primary was not examined
	times     []clockReading
	holds     map[string][]string // addresses of primaries, by the digest of their library
}

// patient is a node that replied.
type patient struct {
	*conn
	about
	info    map[string]string // the reply to INFO, or nil
	library *string           // the source code of its library, "" if there is none, or nil if it could not be read

	embedded bool // whether it is a server of package embedded
}

// source returns the source code of the node's library, or "" if there is none or it is not known.
func (p patient) source() string {
	if p.library == nil {
		return ""
	}
	return *p.library
}

// clockReading is how far a node's clock is ahead of this machine's clock, and the maximum error of
// that measurement.
type clockReading struct {
	addr         string
	ahead, error time.Duration
}

// find records a finding. class may be nil.
func (x *examination) find(check, addr string, class error, found, means, do string) {
	x.failed(check, &Error{Class: class, Addr: addr, Problem: found, Remedy: do}, means)
}

func (x *examination) skip(what, addr, why string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.Unchecked = append(x.Unchecked, Unchecked{what, []string{addr}, why})
}

// failed records an error as a finding. If a replica cannot be reached, failed changes check from
// "reach" to "replicas", because decisions do not need the replica.
func (x *examination) failed(check string, err error, means string) {
	e, _ := errors.AsType[*Error](err)
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, isReplica := x.follows[e.Addr]; isReplica && check == "reach" {
		check, means = "replicas", "if its primary fails, this replica cannot take over"
	}
	addrs := []string{}
	if e.Addr != "" {
		addrs = append(addrs, e.Addr)
	}
	x.Findings = append(x.Findings, Finding{check, addrs, e.found(), means, cmp.Or(e.Remedy, "read the server's log"), e})
}

// follow adds the addresses of a primary's replicas. primary is empty if it has not been examined
// yet. A later call with the same replicas then sets their primary.
func (x *examination) follow(primary patient, replicas []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, addr := range replicas {
		if _, has := x.follows[addr]; !has {
			x.replicas = append(x.replicas, addr)
		}
		x.follows[addr] = primary
	}
}

// diagnosis returns the findings, the worst first. It merges the findings that several nodes share.
func (x *examination) diagnosis() Diagnosis {
	slices.SortStableFunc(x.Findings, func(a, b Finding) int {
		return cmp.Or(slices.Index(checks, a.Check)-slices.Index(checks, b.Check), compareFirst(a.Addrs, b.Addrs), strings.Compare(a.Found, b.Found))
	})
	d := Diagnosis{Topology: x.Topology, Nodes: x.Nodes, Findings: []Finding{}, Unchecked: []Unchecked{}}
	for _, f := range x.Findings {
		i := slices.IndexFunc(d.Findings, func(other Finding) bool {
			return f.Check == other.Check && f.Found == other.Found && f.Means == other.Means && f.Do == other.Do
		})
		if i < 0 {
			d.Findings = append(d.Findings, f)
			continue
		}
		for _, addr := range f.Addrs {
			if !slices.Contains(d.Findings[i].Addrs, addr) {
				d.Findings[i].Addrs = append(d.Findings[i].Addrs, addr)
			}
		}
	}
	slices.SortStableFunc(x.Unchecked, func(a, b Unchecked) int {
		return cmp.Or(strings.Compare(a.What, b.What), compareFirst(a.Addrs, b.Addrs))
	})
	for _, u := range x.Unchecked {
		if i := slices.IndexFunc(d.Unchecked, func(other Unchecked) bool { return u.What == other.What && u.Why == other.Why }); i < 0 {
			d.Unchecked = append(d.Unchecked, u)
		} else if !slices.Contains(d.Unchecked[i].Addrs, u.Addrs[0]) {
			d.Unchecked[i].Addrs = append(d.Unchecked[i].Addrs, u.Addrs...)
		}
	}
	return d
}

// compareFirst compares the first addresses. An empty list comes first.
func compareFirst(a, b []string) int {
	if len(a) == 0 || len(b) == 0 {
		return len(a) - len(b)
	}
	return compareAddrs(a[0], b[0])
}

// unread records err, the error of a step. If the user lacks a permission, or the server does not
// have the command, it adds an entry to Unchecked, and returns true. Otherwise the server cannot be
// examined at all: unread adds a finding, and returns false.
func (x *examination) unread(c *conn, what, step, right string, err error) bool {
	var failed *Error
	if !errors.As(err, &failed) {
		failed = failure(c, step, err)
	}
	switch {
	case failed.Code == "NOPERM":
		x.skip(what, c.address(), "grant "+right)
	case failed.Class == nil:
		x.skip(what, c.address(), "it "+failed.found())
	default:
		x.failed("reach", failed, unreached)
		return false
	}
	return true
}

const (
	unreached = "deployments fail, and calls for its keys fail"
	undecided = "calls for its keys fail"
	notFound  = "calls return: ERR Function not found"
	checkLink = "check the network and the load between the two"
)

// primary runs the checks in the method node, and also checks the primary's role, its cluster state
// and the user's permissions. It adds the primary's replicas to x.replicas; the method replica
// examines them later. listed is the cluster's entry for the primary.
func (x *examination) primary(ctx context.Context, c *conn, listed shard) {
	p, ok := x.node(ctx, c)
	if !ok {
		return
	}
	if p.replica {
		x.failed("writes", readOnly(c, c.primaryOf(ctx), nil), "a decision is a write, and a replica accepts none")
	} else if body := text.Body(p.source()); body != "" {
		x.mu.Lock()
		found := describe(body)
		x.holds[found.Digest] = append(x.holds[found.Digest], c.address()+" ("+found.String()+")")
		x.mu.Unlock()
	} else if p.library != nil {
		x.find("library", c.address(), ErrNoLibrary, "it does not have the library "+functions.Name, notFound, "call Deploy")
	}
	if p.embedded {
		return
	}
	reply, err := c.do(ctx, "ROLE")
	addrs, ok := readReplicas(reply, c.address())
	if err != nil {
		x.unread(c, optionalProbes["+role"], "ROLE", "+role", err)
	} else if !ok {
		x.failed("reach", garbage(c, "ROLE", reply), unreached)
	}
	x.follow(p, slices.Concat(addrs, listed.replicaAddrs))
	// A primary stops listing a replica that disconnects, but keeps the replication backlog.
	if i := p.info; i["role"] == "master" && i["connected_slaves"] == "0" && i["repl_backlog_active"] == "1" && len(listed.replicaAddrs) == 0 {
		x.find("replicas", c.address(), nil, "no replica follows it, although one did, or it was one itself, less than repl-backlog-ttl ago (usually an hour)",
			"if it fails, nothing takes over", "start its replica; if it is to have none, ignore this until that time is over")
	}
	x.rights(ctx, c)
	if x.Topology == Cluster {
		x.state(ctx, c)
	}
}

// readReplicas returns the addresses of the replicas in the reply to ROLE from the node at addr, or
// none if that node is itself a replica. It returns false if the reply is malformed.
func readReplicas(reply any, addr string) (addrs []string, ok bool) {
	parts, _ := reply.([]any)
	if len(parts) < 3 {
		return nil, false
	} else if parts[0] != "master" {
		return nil, parts[0] == "slave"
	}
	list, ok := parts[2].([]any)
	host, _, _ := net.SplitHostPort(addr)
	for _, replica := range list {
		fields, _ := replica.([]any)
		if len(fields) < 2 {
			return nil, false
		}
		name, isText := fields[0].(string)
		port, _ := fields[1].(string)
		n, err := strconv.ParseUint(port, 10, 16)
		if !isText || err != nil {
			return nil, false
		} else if n == 0 {
			continue // a program such as redis-cli --replica, which does not listen on a port
		}
		addrs = append(addrs, reachable(name, "", host, int64(n)))
	}
	return addrs, ok
}

// follows reports whether the node of c is a replica of a primary in shards. It returns false if
// that primary is now a replica.
func (s *session) follows(ctx context.Context, c *conn, shards []shard) bool {
	a, err := c.identify(ctx)
	if err != nil || !a.replica {
		return false
	}
	primary := c.primaryOf(ctx)
	if !slices.ContainsFunc(shards, func(at shard) bool { return at.addr == primary }) {
		return false
	}
	a, err = s.conn(primary).identify(ctx)
	return err != nil || !a.replica
}

// replica runs the same checks as the method node, and also checks that the replica has its
// primary's library.
func (x *examination) replica(ctx context.Context, c *conn, primary patient) {
	p, ok := x.node(ctx, c)
	if !ok || p.library == nil || primary.library == nil || *p.library == *primary.library {
		return
	}
	x.find("replicas", c.address(), nil, "it does not have the library of its primary "+primary.address(),
		"if it replaces its primary, calls may return: ERR Function not found", checkLink)
}

// node runs the checks that primaries and replicas share. It returns false if the node cannot be
// examined or cannot run functions.
func (x *examination) node(ctx context.Context, c *conn) (patient, bool) {
	p := patient{conn: c}
	var err error
	if p.about, err = c.identify(ctx); err != nil {
		x.failed("reach", err, unreached)
		return p, false
	}
	x.mu.Lock()
	x.Nodes = append(x.Nodes, c.address())
	x.mu.Unlock()
	if err := c.checkEngine(ctx, p.about); errors.Is(err, ErrNoFunctions) || errors.Is(err, ErrNoLua) {
		x.failed("functions", err, undecided)
		return p, false
	} else if err != nil && !x.unread(c, "the functions", "FUNCTION STATS", "+function|stats", err) {
		return p, false
	}
	began := time.Now()
	if ms, err := c.timeMS(ctx); err == nil {
		took := time.Since(began)
		x.mu.Lock()
		x.times = append(x.times, clockReading{c.address(), time.UnixMilli(ms).Sub(began.Add(took / 2)), took/2 + time.Millisecond})
		x.mu.Unlock()
	} else if !x.unread(c, "the clock", "TIME", "+time", err) {
		return p, false
	}
	source, err := c.readLibrary(ctx)
	if err == nil {
		p.library = &source
		x.library(ctx, c, text.Body(source))
	} else if !x.unread(c, "the library", "FUNCTION LIST", "+function|list", err) {
		return p, false
	}
	reply, err := c.do(ctx, "INFO")
	if err != nil {
		return p, x.unread(c, "memory, persistence and replicas", "INFO", "+info", err)
	}
	m := info(reply)
	if len(m) == 0 {
		x.failed("reach", garbage(c, "INFO", reply), unreached)
		return p, false
	}
	p.info = m
	if p.embedded = m["os"] == "embedded"; p.embedded {
		x.skip("memory, persistence and replicas", c.address(), "it is an embedded server, which keeps everything in its process")
		return p, true
	}
	x.eviction(c.address(), m)
	x.persistence(ctx, c, m)
	x.lag(c.address(), m)
	return p, true
}
