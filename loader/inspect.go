package loader

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/respmap"
)

// Status inspects every primary and compares what it runs with build. It changes nothing. If the
// client points to a single server that is a replica, Status inspects that replica.
//
// The Report is complete even if there is an error. The error is nil if every node replied,
// regardless of what it runs: see [Report.InStep]. Otherwise it is a [*PartialError].
func (l *Loader) Status(ctx context.Context, build Build) (Report, error) {
	want, err := l.readBuild(build)
	if err != nil {
		return Report{}, err
	}
	s := l.session()
	defer s.close()
	return s.look(ctx, want).status()
}

// Drift inspects every primary, as [Loader.Status] does, and compares its library with the last
// deployment recorded on the nodes. Drift finds nodes that differ from the others, and libraries
// that were loaded by hand, even if build is not the build that was deployed. If no node has a
// record, Drift compares with build.
//
// Report.Wanted is the build that was deployed last. If that is not the argument build, and no node
// runs it, only its Digest is set.
func (l *Loader) Drift(ctx context.Context, build Build) (Report, error) {
	otherwise, err := l.readBuild(build)
	if err != nil {
		return Report{}, err
	}
	s := l.session()
	defer s.close()
	f := s.inspectFleet(ctx, otherwise)
	if len(f.members) > 0 && !f.wantLast() {
		f.compose()
	}
	return f.status()
}

// status returns the report, with a note for each node that lost its record.
func (f *fleet) status() (Report, error) {
	for _, m := range f.filter(f.lacksRecord) {
		f.report.Notes = append(f.report.Notes, m.fail("FUNCTION LIST", ErrNoRecord, nil, "call Deploy to copy it from the other nodes", "runs the build and has lost its record for a rollback"))
	}
	return f.report, f.err(opStatus)
}

// wantLast sets the wanted build to that of the last deployment. It returns false if no node has a
// record of a deployment.
func (f *fleet) wantLast() bool {
	f.want = artifact{} // otherwise f.last would accept any record that names the caller's build
	last := f.last()
	if last.deployment == 0 { // no record is valid (see fleet.last): use the newest one
		for _, m := range f.members {
			if m.record.deployment > last.deployment {
				last = m.record
			}
		}
	}
	if last.deployment == 0 {
		f.want = f.own.artifact
		return false
	}
	f.want.Digest = last.deployed
	if f.own.Digest == last.deployed {
		f.want = f.own.artifact
	}
	for _, m := range f.members {
		if m.node.Running.Digest == last.deployed {
			f.want = artifact{m.node.Running, m.text}
		}
	}
	f.report.Wanted = f.want.Library
	for _, m := range f.members {
		if m.inspected() {
			m.show(m.held, f.want)
		}
	}
	return true
}

type about struct {
	engine, version string
	mode            string // standalone, cluster or sentinel
	replica         bool
}

func (a about) node(addr string) Node {
	n := Node{Addr: addr, Role: Primary, Engine: a.engine, ServerVersion: a.version}
	if a.replica {
		n.Role = Replica
	}
	return n
}

// identify reads a server's description of itself. Every user may call HELLO, even without any
// permissions; INFO is the fallback for servers without HELLO.
func (c *conn) identify(ctx context.Context) (about, error) {
	reply, err := c.do(ctx, "HELLO", "2")
	switch {
	case err == nil:
		m := respmap.Of(reply)
		if m == nil || text(m, "server") == "" {
			return about{}, garbage(c, "HELLO", reply)
		}
		role := text(m, "role")
		return about{
			engine:  text(m, "server"),
			version: text(m, "version"),
			mode:    text(m, "mode"),
			replica: role == "replica" || role == "slave",
		}, nil
	case codeOf(err) != "ERR": // a server without HELLO replies ERR
		return about{}, failure(c, "HELLO", err)
	}
	reply, err = c.do(ctx, "INFO")
	if err != nil {
		return about{}, failure(c, "INFO", err)
	}
	m := info(reply)
	if m["redis_version"] == "" {
		return about{}, garbage(c, "INFO", reply)
	}
	a := about{engine: "redis", version: m["redis_version"], mode: m["redis_mode"], replica: m["role"] == "slave"}
	if v := m["valkey_version"]; v != "" {
		a.engine, a.version = "valkey", v
	}
	return a, nil
}

// inspect reads everything about the library on one node. It writes nothing.
func (m *member) inspect(ctx context.Context, want artifact) {
	a, err := m.identify(ctx)
	if err != nil {
		*m.node = failedNode(m.address(), err)
		return
	}
	*m.node = a.node(m.address())
	if err = m.checkEngine(ctx, a); err == nil {
		if err = m.read(ctx, want); err == nil && m.node.State != Same {
			m.node.Taken, err = m.taken(ctx, functionsOf(want.text))
		}
	}
	if err != nil {
		m.node.State, m.node.Err = stateAfter(err), err
	}
}

// checkEngine checks that the server has functions, and Lua to run them. It does not check the
// version.
func (c *conn) checkEngine(ctx context.Context, a about) error {
	reply, err := c.do(ctx, "FUNCTION", "STATS")
	if err != nil {
		if isReply(err, "ERR unknown command") {
			return noFunctions(c, a, err)
		}
		return failure(c, "FUNCTION STATS", err)
	}
	engines := respmap.Of(respmap.Of(reply)["engines"])
	if engines == nil {
		return garbage(c, "FUNCTION STATS", reply)
	}
	for name := range engines {
		if strings.EqualFold(name, "LUA") {
			return nil
		}
	}
	return c.fail("FUNCTION STATS", ErrNoLua, nil, "load the server's Lua module, or use a server with Lua built in", "runs %s %s without its Lua engine", a.engine, a.version)
}

// read reads the libraries on the node, and copies them to the report.
func (m *member) read(ctx context.Context, want artifact) error {
	found, err := m.s.read(ctx, m.conn, m.shard.addr)
	if err != nil {
		return err
	}
	m.held = found
	m.show(found, want)
	m.node.Before = m.node.Running
	if m.s.reads == nil {
		list, _ := functions.ReadPolicies(found.text) // an error means that it is another library, or one without policies
		for _, p := range list {
			m.node.Policies = append(m.node.Policies, p.Name)
		}
		if found.text == "" && found.record.policies != "" {
			m.node.Policies = strings.Split(found.record.policies, ",")
		}
		slices.Sort(m.node.Policies)
	}
	return nil
}

// show copies found to the report, and sets whether the node runs the build, another library, or
// none.
func (m *member) show(found held, want artifact) {
	m.node.Running, m.node.State = describe(found.text), Different
	m.node.Previous = m.s.previous(found)
	switch m.node.Running.Digest {
	case "":
		m.node.State = Absent
	case want.Digest:
		m.node.State, m.node.Taken = Same, nil
	}
}

func (m *member) inspected() bool {
	return m.node.State == Same || m.node.State == Different || m.node.State == Absent
}

func (c *conn) readHeld(ctx context.Context) (held, error) {
	var found held
	libraries, err := c.libraries(ctx, "LIBRARYNAME", functions.Name+"*", "WITHCODE")
	for _, l := range libraries {
		switch { // FUNCTION LIST takes a pattern, so it may also list other libraries
		case l.name == functions.Name:
			found.text = l.code
		case l.name == recordName:
			found.recordText, found.record = l.code, readRecord(l.code)
		case strings.HasPrefix(l.name, leasePrefix):
			found.leases = append(found.leases, readLease(l.name, l.code))
		}
	}
	return found, err
}

// library is a library on a node, as FUNCTION LIST describes it.
type library struct {
	name, code string // code is empty if FUNCTION LIST was called without WITHCODE
	functions  []string
}

// libraries lists libraries on the node: all, or those that the arguments of FUNCTION LIST select.
func (c *conn) libraries(ctx context.Context, args ...any) ([]library, error) {
	const step = "FUNCTION LIST"
	reply, err := c.do(ctx, append([]any{"FUNCTION", "LIST"}, args...)...)
	if err != nil {
		return nil, failure(c, step, err)
	}
	entries, ok := reply.([]any)
	if !ok {
		return nil, garbage(c, step, reply)
	}
	list := make([]library, len(entries))
	for i, entry := range entries {
		m := respmap.Of(entry)
		registered, ok := m["functions"].([]any)
		list[i] = library{name: text(m, "library_name"), code: text(m, "library_code")}
		for _, f := range registered {
			list[i].functions = append(list[i].functions, text(respmap.Of(f), "name"))
		}
		if !ok || list[i].name == "" || slices.Contains(list[i].functions, "") || list[i].code == "" && len(args) > 0 {
			return nil, garbage(c, step, reply)
		}
	}
	return list, nil
}

// primaryOf returns the address of a replica's primary, or "" if the replica does not report it.
func (c *conn) primaryOf(ctx context.Context) string {
	if reply, err := c.do(ctx, "ROLE"); err == nil {
		if parts, _ := reply.([]any); len(parts) >= 3 && parts[0] == "slave" {
			host, ok1 := parts[1].(string)
			port, ok2 := parts[2].(int64)
			if ok1 && ok2 {
				return net.JoinHostPort(host, strconv.FormatInt(port, 10))
			}
		}
	}
	reply, err := c.do(ctx, "INFO", "replication")
	if err != nil {
		return ""
	}
	m := info(reply)
	if m["master_host"] == "" || m["master_port"] == "" {
		return ""
	}
	return net.JoinHostPort(m["master_host"], m["master_port"])
}

// replicas returns how many replicas follow a primary, or -1 if it does not report that.
func (c *conn) replicas(ctx context.Context) int {
	reply, err := c.do(ctx, "ROLE")
	if parts, _ := reply.([]any); err == nil && len(parts) >= 3 && parts[0] == "master" {
		if list, ok := parts[2].([]any); ok {
			return len(list)
		}
	}
	return -1
}

// taken returns the functions in names that other libraries on the node have registered.
func (c *conn) taken(ctx context.Context, names []string) ([]Taken, error) {
	libraries, err := c.libraries(ctx)
	var found []Taken
	for _, l := range libraries {
		for _, function := range l.functions {
			if l.name != functions.Name && slices.ContainsFunc(names, func(ours string) bool { return strings.EqualFold(ours, function) }) {
				found = append(found, Taken{Function: strings.ToLower(function), Library: l.name})
			}
		}
	}
	slices.SortFunc(found, func(a, b Taken) int { return strings.Compare(a.Function, b.Function) })
	return found, err
}
