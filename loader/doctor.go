package loader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// Finding is a problem with the servers that prevents decisions now, or may prevent them later.
type Finding struct {
	Check string `json:"check"` // "reach", "functions", "library", "writes", "eviction", "persistence", "clock", "replicas", "rights" or "coverage"
	Addr  string `json:"addr"`  // the node, or "" if the finding is about all nodes
	Found string `json:"found"` // what was found
	Means string `json:"means"` // the consequence
	Do    string `json:"do"`    // what to do
	Err   error  `json:"-"`     // an [*Error] of the finding's class, or nil
}

// Diagnosis is the outcome of [Loader.Doctor].
type Diagnosis struct {
	Topology Topology  `json:"topology"`
	Nodes    []string  `json:"nodes"` // primaries and replicas that were examined
	Findings []Finding `json:"findings"`

	// Unchecked lists what could not be examined because a right is missing, and names that right.
	Unchecked []string `json:"unchecked"`
}

// Values above these are findings.
const (
	clockSpread   = 500 * time.Millisecond
	replicaSilent = 10      // seconds since a replica was last heard from
	replicaBehind = 1 << 20 // bytes
)

// Doctor examines every primary and its replicas. It looks for what prevents decisions: no
// functions or no Lua, no library or one that does not respond, no writes. It also looks for what
// will cause problems later: keys of limits that may be evicted, libraries that a restart loses,
// clocks that differ, replicas that lag, missing rights, and slots that no primary serves. It
// changes nothing. In addition to the rights of a deployer it uses +info, +config|get,
// +fcall_ro|ratelimit_info and, in a cluster, +cluster|info. If the user lacks one of these rights,
// the checks that need it are listed as Unchecked.
//
// A node that does not reply is a finding, not an error. The returned error is ctx.Err().
func (l *Loader) Doctor(ctx context.Context) (Diagnosis, error) {
	s := l.session()
	defer s.close()
	x := &examination{Diagnosis: Diagnosis{Findings: []Finding{}, Unchecked: []string{}}, follows: map[string]patient{}, holds: map[string][]string{}}
	topology, shards, failed := s.find(ctx)
	x.Topology = topology
	for _, n := range failed {
		x.failed("reach", n.Err, unreached)
	}
	x.coverage(topology, shards)
	each(shards, func(at shard) {
		c := s.conn(at.addr)
		if topology == Cluster && s.follows(ctx, c, shards) {
			return // the list is outdated: the node has become a replica, and is examined as one
		}
		x.primary(ctx, c)
	})
	each(x.replicas, func(at shard) { x.replica(ctx, s.conn(at.addr), x.follows[at.addr]) })
	x.clocks()
	x.builds()
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

// examination is a Diagnosis while it is being made.
type examination struct {
	mu sync.Mutex
	Diagnosis
	replicas []shard
	follows  map[string]patient // each replica's primary, by the replica's address
	times    []clockReading
	holds    map[string][]string // addresses of primaries, by the digest of their library
}

// patient is a node that replied.
type patient struct {
	*conn
	about
	library *string // the text of its library, "" if there is none, or nil if it could not be read

	embedded bool // a server of package embedded
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

func (x *examination) skip(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.Unchecked = append(x.Unchecked, fmt.Sprintf(format, args...))
}

// failed records an error as a finding.
func (x *examination) failed(check string, err error, means string) {
	var e *Error
	errors.As(err, &e)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.Findings = append(x.Findings, Finding{check, e.Addr, e.found(), means, cmp.Or(e.Remedy, "read the server's log"), e})
}

// unread records what could not be read because the user lacks a right or the server does not know
// the command. If the server cannot be examined at all, unread records that instead and returns
// false.
func (x *examination) unread(c *conn, what, step, right string, err error) bool {
	var failed *Error
	if !errors.As(err, &failed) {
		failed = failure(c, step, err)
	}
	switch {
	case failed.Code == "NOPERM":
		x.skip("%s of %s: grant %s", what, c.address(), right)
	case failed.Class == nil:
		x.skip("%s of %s: it %s", what, c.address(), failed.found())
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

// primary makes the checks of node, and also checks the primary's role, its cluster state and the
// user's rights. It adds the primary's replicas to those that replica will examine.
func (x *examination) primary(ctx context.Context, c *conn) {
	p, ok := x.node(ctx, c)
	if !ok {
		return
	}
	if p.replica {
		x.failed("writes", readOnly(c, c.primaryOf(ctx), nil), "a decision is a write, and a replica accepts none")
	} else if p.library != nil && *p.library != "" {
		x.mu.Lock()
		digest := functions.Digest(*p.library)
		x.holds[digest] = append(x.holds[digest], c.address()+" ("+describe(*p.library).String()+")")
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
		x.unread(c, "the replicas", "ROLE", "+role", err)
	} else if !ok {
		x.failed("reach", garbage(c, "ROLE", reply), unreached)
	}
	x.mu.Lock()
	for _, addr := range addrs {
		x.replicas = append(x.replicas, shard{addr: addr})
		x.follows[addr] = p
	}
	x.mu.Unlock()
	x.rights(ctx, c)
	if x.Topology == Cluster {
		x.state(ctx, c)
	}
}

// readReplicas returns the addresses of the replicas in the reply to ROLE from the node at addr, or
// none if that node is itself a replica. It returns false if the reply has another shape.
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

// follows reports whether a node is a replica of one of shards, and that shard is not itself a
// replica.
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

// replica makes the checks of node, and also checks that the replica has its primary's library.
func (x *examination) replica(ctx context.Context, c *conn, primary patient) {
	p, ok := x.node(ctx, c)
	if !ok || p.library == nil || primary.library == nil || *p.library == *primary.library {
		return
	}
	x.find("replicas", c.address(), nil, "it does not have the library of its primary "+primary.address(),
		"if it replaces its primary, calls may return: ERR Function not found", checkLink)
}

// node makes the checks that primaries and replicas share. It returns false if the node cannot make
// decisions.
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
	held, err := c.readHeld(ctx)
	if err == nil {
		p.library = &held.text
		x.library(ctx, c, held.text)
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
	if p.embedded = m["os"] == "embedded"; p.embedded {
		x.skip("memory, persistence and replicas of %s: it is an embedded server, which keeps everything in its process", c.address())
		return p, true
	}
	x.eviction(c.address(), m)
	x.persistence(ctx, c, m)
	x.lag(c.address(), m)
	return p, true
}
