package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/respmap"
	"github.com/ratelimit-functions/ratelimit/loader/acl"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// library checks that source, the library on the node, is a build of the ratelimit library and
// responds to calls.
func (x *examination) library(ctx context.Context, c *nodes.Conn, source string) {
	const step = "FCALL_RO " + functions.Name + "_info"
	if source == "" {
		return
	}
	if !text.Describe(source).IsOurs() {
		x.failed("library", c.Foreign(), "clients cannot use its replies")
		return
	}
	reply, err := c.Do(ctx, "FCALL_RO", functions.Name+"_info", 0)
	_, speaks := respmap.Of(reply)["contract"].(int64)
	switch {
	case nodes.CodeOf(err) == "NOPERM":
		x.skip("whether the library responds", c.Address(), "grant +fcall_ro|"+functions.Name+"_info")
	case err != nil:
		x.failed("library", c.Failure(step, err), undecided)
	case !speaks:
		x.failed("library", c.Garbage(step, reply), undecided)
	}
}

// builds looks for primaries that run different libraries.
func (x *examination) builds() {
	if len(x.holds) < 2 {
		return
	}
	var groups []string
	for _, addrs := range x.holds {
		slices.Sort(addrs)
		groups = append(groups, strings.Join(addrs, ", "))
	}
	slices.Sort(groups)
	x.find("library", "", ErrMixedBuilds, "the primaries have different builds: "+strings.Join(groups, "; "),
		"limits and policies depend on the primary that has the key", "call Deploy with one build")
}

// state checks that a node of a cluster serves keys.
func (x *examination) state(ctx context.Context, c *nodes.Conn) {
	reply, err := c.Do(ctx, "CLUSTER", "INFO")
	if err != nil {
		x.unread(c, "the slots", "CLUSTER INFO", "+cluster|info", err)
	} else if state := nodes.Info(reply)["cluster_state"]; state == "" {
		x.failed("reach", c.Garbage("CLUSTER INFO", reply), unreached)
	} else if state != "ok" {
		x.find("coverage", c.Address(), ErrSlots, "its cluster_state is "+state, "calls return: CLUSTERDOWN",
			"start the missing primaries, or assign their slots to others")
	}
}

func (x *examination) eviction(addr string, m map[string]string) {
	policy := m["maxmemory_policy"]
	if policy == "" || policy == "noeviction" || m["maxmemory"] == "0" || m["maxmemory"] == "" {
		return
	}
	x.find("eviction", addr, nil, fmt.Sprintf("maxmemory is %s bytes and maxmemory-policy is %s", m["maxmemory"], policy),
		"when its memory is full, the server may evict keys of limits, and then allows more calls than the limits do",
		"use a server for limits only, with maxmemory-policy noeviction")
}

func (x *examination) persistence(ctx context.Context, c *nodes.Conn, m map[string]string) {
	const means = "a restart loses the library and all counts; then " + notFound
	for _, field := range []string{"rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status"} {
		if m[field] != "" && m[field] != "ok" {
			x.find("persistence", c.Address(), nil, fmt.Sprintf("%s is %s", field, m[field]), means, "check the server's log and its disk")
		}
	}
	if m["aof_enabled"] == "1" {
		return
	}
	reply, err := c.Do(ctx, "CONFIG", "GET", "save")
	if err != nil {
		x.unread(c, "the snapshots", "CONFIG GET", "+config|get", err)
		return
	}
	settings := respmap.Of(reply)
	if settings == nil {
		x.failed("reach", c.Garbage("CONFIG GET", reply), unreached)
	} else if save, has := settings["save"]; has && save == "" {
		x.find("persistence", c.Address(), ErrNotPersistent, "neither snapshots (save) nor the append-only file (appendonly) are on", means,
			"set it in the configuration: CONFIG SET appendonly yes, then CONFIG REWRITE (or appendonly yes in redis.conf); or run Watch")
	}
}

// lag looks for replicas that are disconnected or behind their primary. m is the reply to INFO of
// the node at addr: a primary lists its replicas, and a replica reports the state of the link to
// its primary.
func (x *examination) lag(addr string, m map[string]string) {
	const means = "a failover loses the latest counts, or the library"
	find := func(format string, args ...any) {
		x.find("replicas", addr, nil, fmt.Sprintf(format, args...), means, checkLink)
	}
	if m["role"] == "slave" && m["master_link_status"] != "up" {
		find("its link to its primary %s:%s is %s", m["master_host"], m["master_port"], m["master_link_status"])
	}
	if m["role"] == "slave" && m["slave_read_only"] == "0" {
		x.find("replicas", addr, nil, "it is a replica that accepts writes (replica-read-only no)",
			"it decides calls that reach it without its primary, so both allow the limit", "set it back: CONFIG SET replica-read-only yes, then CONFIG REWRITE")
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
			find("its replica %s is not in sync: %s", name, replica["state"])
		case silent >= replicaSilent:
			find("its replica %s was last heard from %d s ago", name, silent)
		case at-offset > replicaBehind:
			find("its replica %s is %d bytes behind", name, at-offset)
		}
	}
}

// probes has a command for each right of a deployer, in a form that changes nothing.
var probes = map[string][]any{
	"+function|load": {"FUNCTION", "LOAD", "?"}, "+function|list": {"FUNCTION", "LIST", "LIBRARYNAME", "ratelimit_fence_"}, "+function|delete": {"FUNCTION", "DELETE", "?"},
	"+function|stats": {"FUNCTION", "STATS"}, "+time": {"TIME"}, "+role": {"ROLE"}, "+wait": {"WAIT", 0, 0}, clusterRight: {"CLUSTER", "SHARDS"},
}

const clusterRight = "+cluster|shards"

// optional contains permissions that a deployment does not need. The value for a permission
// is what Doctor cannot find out without it. Managed servers often refuse these commands.
var optional = map[string]string{
	"+role": "which replicas follow", "+wait": "whether replicas confirm deployments", clusterRight: "primaries without slots",
}

// Classes of findings, for errors.Is. Other findings have those of packages nodes and loader.
var (
	ErrMixedBuilds   = errors.New("mixed builds")         // the primaries have different builds
	ErrNotPersistent = errors.New("not persistent")       // the node saves nothing to disk
	ErrSlots         = errors.New("slots are not served") // the cluster does not serve all slots
)

// takenNames looks for other libraries that register functions of the ratelimit library, which
// therefore cannot be loaded.
func (x *examination) takenNames(ctx context.Context, c *nodes.Conn) {
	ours := text.Functions(functions.Source())
	libraries, _ := c.Libraries(ctx) // ReadLibrary has reported an error
	for _, l := range libraries {
		if i := slices.IndexFunc(l.Functions, func(name string) bool { return slices.Contains(ours, strings.ToLower(name)) }); i >= 0 {
			x.find("library", c.Address(), nil, fmt.Sprintf("has a library %q that registers %s", l.Name, strings.ToLower(l.Functions[i])),
				"calls get replies of another form, and deployments fail", "delete it with FUNCTION DELETE "+l.Name+" or rename its function, then deploy")
		}
	}
}

// rights tries each command that a deployment needs, in a form that changes nothing.
func (x *examination) rights(ctx context.Context, c *nodes.Conn) {
	var missing []string
	for _, right := range acl.DeployerRights(x.Topology == nodes.Cluster) {
		_, err := c.Do(ctx, probes[right]...)
		switch code := nodes.CodeOf(err); {
		case code == "NOPERM" && optional[right] != "" && !(x.partly && right == clusterRight):
			x.skip(optional[right], c.Address(), "grant "+right)
		case code == "NOPERM":
			missing = append(missing, right)
		case right == "+function|load" && (code == "OOM" || code == "MISCONF" || code == "NOREPLICAS"):
			x.failed("writes", c.Failure("FUNCTION LOAD", err), "a decision is a write: "+undecided)
		case right == "+function|load" && err != nil && code == "":
			x.find("writes", c.Address(), nodes.ErrNotWritable, "it answers reads, but gives no reply to a write",
				"a decision is a write: "+undecided, "wait for its failover, or end a pause with CLIENT UNPAUSE, then try again")
		}
	}
	if len(missing) > 0 {
		x.failed("rights", &nodes.Error{Class: nodes.ErrNoPermission, Code: "NOPERM", Addr: c.Address(), User: c.UserName(), Rights: missing,
			Problem: fmt.Sprintf("the user %q lacks %s", c.UserName(), strings.Join(missing, " ")), Remedy: "grant them on every node"},
			"a deployment by this user fails")
	}
}

// clocks compares each node's clock with the median clock. If no clock differs much from it, clocks
// compares the two clocks that are furthest apart.
func (x *examination) clocks() {
	if len(x.times) < 2 {
		return
	}
	byAhead := func(a, b clockReading) int { return cmp.Compare(a.ahead, b.ahead) }
	slices.SortFunc(x.times, byAhead)
	last := len(x.times) - 1
	differ := func(at, from clockReading) bool {
		apart, side := at.ahead-from.ahead, "ahead of"
		if apart < 0 {
			apart, side = -apart, "behind"
		}
		if apart-at.error-from.error <= clockSpread {
			return false
		}
		x.find("clock", at.addr, nil, fmt.Sprintf("its clock is %v %s that of %s", apart.Round(time.Millisecond), side, from.addr),
			"limits use the server's clock: when keys move to another node, calls are allowed too early or too late by that much",
			"synchronize the clocks of all nodes with NTP")
		return true
	}
	found := false
	for _, at := range x.times {
		found = differ(at, x.times[last/2]) || found
	}
	if !found {
		differ(x.times[last], x.times[0])
	}
}

// coverage looks for slots that no primary serves.
func (x *examination) coverage(topology string, shards []nodes.Shard) {
	if topology != nodes.Cluster || len(shards) == 0 {
		return
	}
	ranges := [][]int{{nodes.AllSlots, nodes.AllSlots}} // a range after the last slot, so that a gap at the end is found
	for _, at := range shards {
		ranges = slices.AppendSeq(ranges, slices.Chunk(at.Slots, 2))
	}
	slices.SortFunc(ranges, slices.Compare)
	var gaps []string
	missing, next := 0, 0 // next is the first slot after those served so far
	for _, r := range ranges {
		if from := min(r[0], nodes.AllSlots); from > next {
			gaps = append(gaps, fmt.Sprintf("%d-%d", next, from-1))
			missing += from - next
		}
		next = max(next, r[1]+1)
	}
	if missing == 0 {
		return
	}
	if len(gaps) > 5 {
		gaps = append(gaps[:5], "...")
	}
	x.find("coverage", "", ErrSlots, fmt.Sprintf("no primary serves %d of %d slots (%s)", missing, nodes.AllSlots, strings.Join(gaps, ", ")),
		"calls for keys in these slots fail, and with cluster-require-full-coverage yes all calls fail", "start the missing primaries, or assign their slots to others")
}
