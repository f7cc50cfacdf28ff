// Package doctor finds problems with servers that prevent decisions of the ratelimit library, now or
// later.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// Finding is a problem with the servers that prevents decisions now, or may prevent them later.
type Finding struct {
	Check string   `json:"check"` // "reach", "functions", "coverage", "writes", "library", "replicas", "persistence", "eviction", "clock" or "rights"
	Addrs []string `json:"addrs"` // the nodes that have the problem, or none if the finding is about all nodes together
	Found string   `json:"found"` // what was found
	Means string   `json:"means"` // the consequence
	Do    string   `json:"do"`    // what to do
	Err   error    `json:"-"`     // an [*nodes.Error] of the finding's class, about the first of Addrs, or nil
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

// Diagnosis is the outcome of [Examine].
type Diagnosis struct {
	Topology string    `json:"topology"` // "standalone", "cluster" or "ring"
	Nodes    []string  `json:"nodes"`    // primaries and replicas that were examined
	Findings []Finding `json:"findings"` // the worst first; a problem that several nodes have is one finding

	// Unchecked lists what could not be examined, usually because the user lacks a permission.
	// Managed services often do not grant permissions such as +config|get.
	Unchecked []Unchecked `json:"unchecked"`
}

// Examine reports values above these, and silence of at least replicaSilent, as findings.
const (
	clockSpread   = 500 * time.Millisecond
	replicaSilent = 10      // seconds since a replica was last heard from
	replicaBehind = 1 << 20 // bytes
)

// Examine examines every primary of the servers that rdb points to, a client as loader.New takes it, and its replicas. It looks for problems that prevent decisions:
// servers without functions or Lua, slots that no primary serves, a library that is missing or does
// not respond, and servers that accept no writes. It also looks for causes of later problems: keys
// of limits that may be evicted, libraries that a restart loses, clocks that differ, replicas that
// lag, and missing permissions. It changes nothing. In addition to a deployer's permissions, it
// uses +info, +config|get, +fcall_ro|ratelimit_info and, in a cluster, +cluster|info. If the user
// lacks one of these permissions, the checks that need it are listed as Unchecked.
//
// timeout is the maximum time for one command on one node. trace, if it is not nil, is called before
// each command. A node that does not reply is a finding, not
// an error. The returned error is ctx.Err(), or says that an argument is invalid.
func Examine(ctx context.Context, rdb redis.UniversalClient, timeout time.Duration, trace func(addr, command string)) (Diagnosis, error) {
	from, err := nodes.Of(rdb)
	if err == nil && timeout <= 0 {
		err = fmt.Errorf("the timeout %v is not above 0; give one such as 5s", timeout)
	}
	if err != nil {
		return Diagnosis{}, fmt.Errorf("doctor.Examine: %w", err)
	}
	s := from.Pool(timeout, trace)
	defer s.Close()
	x := &examination{follows: map[string]patient{}, holds: map[string][]string{}}
	topology, shards, failed := s.Find(ctx)
	for _, n := range failed {
		if e, ok := errors.AsType[*nodes.Error](n.Err); ok && strings.HasPrefix(e.Step, "CLUSTER ") && (e.Class == nodes.ErrNoPermission || e.Class == nil) {
			why := "grant " + clusterRight
			if e.Class == nil {
				why = "it " + e.Found()
			}
			x.skip("the other nodes of the cluster", n.Addr, why)
			shards, topology, x.partly = append(shards, nodes.Shard{Addr: n.Addr}), nodes.Cluster, true
			continue
		}
		x.failed("reach", n.Err, unreached)
	}
	x.Topology = topology
	if !x.partly {
		x.coverage(topology, shards)
	}
	for _, at := range shards {
		x.follow(patient{}, at.ReplicaAddrs)
	}
	nodes.Each(shards, func(at nodes.Shard) {
		c := s.Conn(at.Addr)
		if topology == nodes.Cluster && follows(ctx, s, c, shards) {
			return // the cluster's list of primaries is outdated: the node has become a replica, and is examined as one
		}
		x.primary(ctx, c, at)
	})
	nodes.Each(x.replicas, func(addr string) { x.replica(ctx, s.Conn(addr), x.follows[addr]) })
	x.clocks()
	x.builds()
	slices.SortFunc(x.Nodes, nodes.CompareAddrs)
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
	*nodes.Conn
	nodes.About
	info    map[string]string // the reply to INFO, or nil
	library *string           // the source code of its library, "" if there is none, or nil if it could not be read
}

// clockReading is how far a node's clock is ahead of this machine's clock, and the maximum error of
// that measurement.
type clockReading struct {
	addr         string
	ahead, error time.Duration
}

// find records a finding. class may be nil.
func (x *examination) find(check, addr string, class error, found, means, do string) {
	x.failed(check, &nodes.Error{Class: class, Addr: addr, Problem: found, Remedy: do}, means)
}

func (x *examination) skip(what, addr, why string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.Unchecked = append(x.Unchecked, Unchecked{what, []string{addr}, why})
}

// failed records an error as a finding. If a replica cannot be reached, failed changes check from
// "reach" to "replicas", because decisions do not need the replica.
func (x *examination) failed(check string, err error, means string) {
	e, _ := errors.AsType[*nodes.Error](err)
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, isReplica := x.follows[e.Addr]; isReplica && check == "reach" {
		check, means = "replicas", "if its primary fails, this replica cannot take over"
	}
	addrs := []string{}
	if e.Addr != "" {
		addrs = append(addrs, e.Addr)
	}
	x.Findings = append(x.Findings, Finding{check, addrs, e.Found(), means, cmp.Or(e.Remedy, "read the server's log"), e})
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
	d := Diagnosis{Topology: x.Topology, Nodes: append([]string{}, x.Nodes...), Findings: []Finding{}, Unchecked: []Unchecked{}}
	for _, f := range x.Findings {
		i := slices.IndexFunc(d.Findings, func(other Finding) bool {
			return f.Check == other.Check && f.Found == other.Found && f.Means == other.Means && f.Do == other.Do
		})
		if i < 0 {
			d.Findings = append(d.Findings, f)
		} else {
			d.Findings[i].Addrs = slices.Compact(append(d.Findings[i].Addrs, f.Addrs...))
		}
	}
	slices.SortStableFunc(x.Unchecked, func(a, b Unchecked) int {
		return cmp.Or(strings.Compare(a.What, b.What), compareFirst(a.Addrs, b.Addrs))
	})
	for _, u := range x.Unchecked {
		if i := slices.IndexFunc(d.Unchecked, func(other Unchecked) bool { return u.What == other.What && u.Why == other.Why }); i < 0 {
			d.Unchecked = append(d.Unchecked, u)
		} else {
			d.Unchecked[i].Addrs = slices.Compact(append(d.Unchecked[i].Addrs, u.Addrs...))
		}
	}
	return d
}

// compareFirst compares the first addresses. An empty list comes first.
func compareFirst(a, b []string) int {
	if len(a) == 0 || len(b) == 0 {
		return len(a) - len(b)
	}
	return nodes.CompareAddrs(a[0], b[0])
}

// unread records err, the error of a step. If the user lacks a permission, or the server does not
// have the command, it adds an entry to Unchecked, and returns true. Otherwise the server cannot be
// examined at all: unread adds a finding, and returns false.
func (x *examination) unread(c *nodes.Conn, what, step, right string, err error) bool {
	var failed *nodes.Error
	if !errors.As(err, &failed) {
		failed = c.Failure(step, err)
	}
	switch {
	case failed.Code == "NOPERM":
		x.skip(what, c.Address(), "grant "+right)
	case failed.Class == nil:
		x.skip(what, c.Address(), "it "+failed.Found())
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
func (x *examination) primary(ctx context.Context, c *nodes.Conn, listed nodes.Shard) {
	p, ok := x.node(ctx, c)
	if !ok {
		return
	}
	switch {
	case p.Replica:
		x.failed("writes", c.ReadOnly(c.PrimaryOf(ctx), nil), "a decision is a write, and a replica accepts none")
	case p.library == nil: // unread has said why
	case text.Body(*p.library) == "":
		x.find("library", c.Address(), nodes.ErrNoLibrary, "it does not have the library "+functions.Name, notFound, "call Deploy")
		x.takenNames(ctx, c)
	default:
		found := text.Describe(text.Body(*p.library))
		x.mu.Lock()
		x.holds[found.Digest] = append(x.holds[found.Digest], c.Address()+" ("+found.String()+")")
		x.mu.Unlock()
	}
	if p.info["os"] == "embedded" {
		return
	}
	role, err := c.Role(ctx)
	if err != nil {
		x.unread(c, optional["+role"], "ROLE", "+role", err)
	}
	x.follow(p, slices.Concat(slices.DeleteFunc(role.Replicas, func(addr string) bool { return addr == "" }), listed.ReplicaAddrs))
	// A primary stops listing a replica that disconnects, but keeps the replication backlog.
	if i := p.info; i["role"] == "master" && i["connected_slaves"] == "0" && i["repl_backlog_active"] == "1" && len(listed.ReplicaAddrs) == 0 {
		x.find("replicas", c.Address(), nil, "no replica follows it, although one did, or it was one itself, less than repl-backlog-ttl ago (usually an hour)",
			"if it fails, nothing takes over", "start its replica; if it is to have none, ignore this until that time is over")
	}
	x.rights(ctx, c)
	if x.Topology == nodes.Cluster {
		x.state(ctx, c)
	}
}

// follows reports whether the node of c is a replica of a primary in shards. It returns false if
// that primary is now a replica.
func follows(ctx context.Context, s *nodes.Pool, c *nodes.Conn, shards []nodes.Shard) bool {
	a, err := c.Identify(ctx)
	if err != nil || !a.Replica {
		return false
	}
	primary := c.PrimaryOf(ctx)
	if !slices.ContainsFunc(shards, func(at nodes.Shard) bool { return at.Addr == primary }) {
		return false
	}
	a, err = s.Conn(primary).Identify(ctx)
	return err != nil || !a.Replica
}

// replica runs the same checks as the method node, and also checks that the replica has its
// primary's library.
func (x *examination) replica(ctx context.Context, c *nodes.Conn, primary patient) {
	p, ok := x.node(ctx, c)
	if !ok || p.library == nil || primary.library == nil || *p.library == *primary.library {
		return
	}
	x.find("replicas", c.Address(), nil, "it does not have the library of its primary "+primary.Address(),
		"if it replaces its primary, calls may return: ERR Function not found", checkLink)
}

// node runs the checks that primaries and replicas share. It returns false if the node cannot be
// examined or cannot run functions.
func (x *examination) node(ctx context.Context, c *nodes.Conn) (patient, bool) {
	p := patient{Conn: c}
	var err error
	if p.About, err = c.Identify(ctx); err != nil {
		x.failed("reach", err, unreached)
		return p, false
	}
	x.mu.Lock()
	x.Nodes = append(x.Nodes, c.Address())
	x.mu.Unlock()
	if err := c.CheckEngine(ctx, p.About); errors.Is(err, nodes.ErrNoFunctions) {
		x.failed("functions", err, undecided)
		return p, false
	} else if err != nil && !x.unread(c, "the functions", "FUNCTION STATS", "+function|stats", err) {
		return p, false
	}
	began := time.Now()
	if ms, err := c.TimeMS(ctx); err == nil {
		took := time.Since(began)
		x.mu.Lock()
		x.times = append(x.times, clockReading{c.Address(), time.UnixMilli(ms).Sub(began.Add(took / 2)), took/2 + time.Millisecond})
		x.mu.Unlock()
	} else if !x.unread(c, "the clock", "TIME", "+time", err) {
		return p, false
	}
	source, err := c.ReadLibrary(ctx)
	if err == nil {
		p.library = &source
		x.library(ctx, c, text.Body(source))
	} else if !x.unread(c, "the library", "FUNCTION LIST", "+function|list", err) {
		return p, false
	}
	reply, err := c.Do(ctx, "INFO")
	if err != nil {
		return p, x.unread(c, "memory, persistence and replicas", "INFO", "+info", err)
	}
	m := nodes.Info(reply)
	if p.info = m; len(m) == 0 {
		x.failed("reach", c.Garbage("INFO", reply), unreached)
		return p, false
	}
	if m["os"] == "embedded" {
		x.skip("memory, persistence and replicas", c.Address(), "it is an embedded server, which keeps everything in its process")
		return p, true
	}
	x.eviction(c.Address(), m)
	x.persistence(ctx, c, m)
	x.lag(c.Address(), m)
	return p, true
}
