package loader

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/respmap"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

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
		if m == nil || stringOf(m, "server") == "" {
			return about{}, garbage(c, "HELLO", reply)
		}
		role := stringOf(m, "role")
		return about{
			engine:  stringOf(m, "server"),
			version: stringOf(m, "version"),
			mode:    stringOf(m, "mode"),
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
func (m *member) inspect(ctx context.Context) {
	a, err := m.identify(ctx)
	if err != nil {
		*m.node = failedNode(m.address(), err)
		return
	}
	*m.node = a.node(m.address())
	if err = m.checkEngine(ctx, a); err == nil {
		err = m.read(ctx)
	}
	if err != nil {
		m.node.State, m.node.Err = stateAfter(err), err
		return
	}
	body := text.Body(m.source)
	if m.node.Before = describe(body); m.s.lists == nil {
		m.node.Policies = namesIn(body)
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
		list[i] = library{name: stringOf(m, "library_name"), code: stringOf(m, "library_code")}
		for _, f := range registered {
			list[i].functions = append(list[i].functions, stringOf(respmap.Of(f), "name"))
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

// readLibrary reads the source code of the node's library, or "" if there is none.
func (c *conn) readLibrary(ctx context.Context) (string, error) {
	libraries, err := c.libraries(ctx, "LIBRARYNAME", functions.Name, "WITHCODE")
	if err != nil || len(libraries) == 0 {
		return "", err
	}
	return libraries[0].code, nil
}
