package loader

import (
	"context"
	"net"
	"regexp"
	"strings"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// about is what a server says of itself.
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

// identify asks a server what it is. HELLO is open to every user, whatever their rights; INFO stands in for it where it
// is missing.
func (c *conn) identify(ctx context.Context) (about, error) {
	reply, err := c.do(ctx, "HELLO", "2")
	switch {
	case err == nil:
		m := fields(reply)
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
	case !isCode(err, "ERR"): // not an answer to the command itself
		return about{}, failure(c, "HELLO", err)
	}
	reply, err = c.do(ctx, "INFO")
	if err != nil {
		return about{}, failure(c, "INFO", err)
	}
	m := info(reply)
	a := about{engine: "redis", version: m["redis_version"], mode: m["redis_mode"], replica: m["role"] == "slave"}
	if v := m["valkey_version"]; v != "" {
		a.engine, a.version = "valkey", v
	}
	return a, nil
}

// inspect finds out all about the library on one node. It writes nothing.
func (c *conn) inspect(ctx context.Context, want functions.Build) Node {
	a, err := c.identify(ctx)
	if err != nil {
		return failedNode(c.address(), err)
	}
	node := a.node(c.address())
	if err = c.checkEngine(ctx, a); err == nil {
		err = c.readLibrary(ctx, &node, want)
	}
	if err != nil {
		node.State, node.Err = stateAfter(err), err
	}
	return node
}

// checkEngine asks for what is needed, not for a version: functions, and Lua to run them.
func (c *conn) checkEngine(ctx context.Context, a about) error {
	reply, err := c.do(ctx, "FUNCTION", "STATS")
	if err != nil {
		if isReply(err, "ERR unknown command") {
			return noFunctions(c, a, err)
		}
		return failure(c, "FUNCTION STATS", err)
	}
	m := fields(reply)
	if m == nil {
		return garbage(c, "FUNCTION STATS", reply)
	}
	for name := range fields(m["engines"]) {
		if strings.EqualFold(name, "LUA") {
			return nil
		}
	}
	return noLua(c, a)
}

// readLibrary fills in what the node runs.
func (c *conn) readLibrary(ctx context.Context, node *Node, want functions.Build) error {
	reply, err := c.do(ctx, "FUNCTION", "LIST", "LIBRARYNAME", functions.Name, "WITHCODE")
	if err != nil {
		return failure(c, "FUNCTION LIST", err)
	}
	libraries, ok := reply.([]any)
	if !ok {
		return garbage(c, "FUNCTION LIST", reply)
	}
	node.State, node.Running = Absent, Library{}
	for _, library := range libraries {
		m := fields(library)
		if m == nil {
			return garbage(c, "FUNCTION LIST", reply)
		}
		if text(m, "library_name") != functions.Name { // the name asked for is a pattern
			continue
		}
		code, ok := m["library_code"].(string)
		if !ok {
			return garbage(c, "FUNCTION LIST", reply)
		}
		node.Running = describe(code)
		node.State = Different
		if node.Running.Digest == want.Digest() {
			node.State = Same
		}
	}
	return nil
}

var (
	versionLine = regexp.MustCompile(`(?m)^local VERSION = '([^']*)'`)
	buildIDLine = regexp.MustCompile(`(?m)^local BUILD_ID = '([^']*)'`)
)

// describe reads out of a library's text what it would say of itself. Calling ratelimit_info would tell the same, but
// needs a right that a deployer need not have.
func describe(code string) Library {
	first := func(line *regexp.Regexp) string {
		if m := line.FindStringSubmatch(code); m != nil {
			return m[1]
		}
		return ""
	}
	return Library{Version: first(versionLine), BuildID: first(buildIDLine), Digest: functions.Digest(code)}
}

// primaryOf asks a replica for its primary; "" where it does not say.
func (c *conn) primaryOf(ctx context.Context) string {
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

// holderOf names the library that registers one of the library's function names, and that function.
func (c *conn) holderOf(ctx context.Context, function string) string {
	reply, err := c.do(ctx, "FUNCTION", "LIST")
	if err != nil {
		return ""
	}
	libraries, _ := reply.([]any)
	for _, library := range libraries {
		m := fields(library)
		list, _ := m["functions"].([]any)
		for _, f := range list {
			if strings.EqualFold(text(fields(f), "name"), function) {
				return text(m, "library_name")
			}
		}
	}
	return ""
}
