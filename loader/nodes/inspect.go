package nodes

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/respmap"
)

// About is what a server says of itself.
type About struct {
	Engine, Version string
	mode            string // standalone, cluster or sentinel
	Replica         bool
}

// Identify reads a server's description of itself. Every user may call HELLO, even without any
// permissions; INFO is the fallback for servers without HELLO.
func (c *Conn) Identify(ctx context.Context) (About, error) {
	reply, err := c.Do(ctx, "HELLO", "2")
	switch {
	case err == nil:
		m := respmap.Of(reply)
		if m == nil || stringOf(m, "server") == "" {
			return About{}, c.Garbage("HELLO", reply)
		}
		role := stringOf(m, "role")
		return About{stringOf(m, "server"), stringOf(m, "version"), stringOf(m, "mode"), role == "replica" || role == "slave"}, nil
	case CodeOf(err) != "ERR": // a server without HELLO replies ERR
		return About{}, c.Failure("HELLO", err)
	}
	reply, err = c.Do(ctx, "INFO")
	if err != nil {
		return About{}, c.Failure("INFO", err)
	}
	m := Info(reply)
	if m["redis_version"] == "" {
		return About{}, c.Garbage("INFO", reply)
	}
	a := About{Engine: "redis", Version: m["redis_version"], mode: m["redis_mode"], Replica: m["role"] == "slave"}
	if v := m["valkey_version"]; v != "" {
		a.Engine, a.Version = "valkey", v
	}
	return a, nil
}

// CheckEngine checks that the server has functions, and Lua to run them. It does not check the
// version.
func (c *Conn) CheckEngine(ctx context.Context, a About) error {
	const step = "FUNCTION STATS"
	reply, err := c.Do(ctx, "FUNCTION", "STATS")
	switch {
	case IsReply(err, "ERR unknown command") && a.mode == "sentinel":
		return c.Fail(step, ErrSentinel, err, "pass a client made with redis.NewFailoverClient and its MasterName, or connect to the primary", "is a Sentinel, which holds no data")
	case IsReply(err, "ERR unknown command"):
		return c.Fail(step, ErrNoFunctions, err, "use Redis 7.0 or later, or Valkey", "runs %s %s, which has no functions", a.Engine, a.Version)
	case err != nil:
		return c.Failure(step, err)
	}
	engines := respmap.Of(respmap.Of(reply)["engines"])
	if engines == nil {
		return c.Garbage(step, reply)
	}
	for name := range engines {
		if strings.EqualFold(name, "LUA") {
			return nil
		}
	}
	return c.Fail(step, ErrNoFunctions, nil, "load the server's Lua module, or use a server with Lua built in", "runs %s %s without its Lua engine", a.Engine, a.Version)
}

// Library is a library on a node, as FUNCTION LIST describes it.
type Library struct {
	Name, Code string // Code is empty if FUNCTION LIST was called without WITHCODE
	Functions  []string
}

// Libraries lists libraries on the node: all, or those that the arguments of FUNCTION LIST select.
func (c *Conn) Libraries(ctx context.Context, args ...any) ([]Library, error) {
	const step = "FUNCTION LIST"
	reply, err := c.Do(ctx, append([]any{"FUNCTION", "LIST"}, args...)...)
	if err != nil {
		return nil, c.Failure(step, err)
	}
	entries, ok := reply.([]any)
	if !ok {
		return nil, c.Garbage(step, reply)
	}
	list := make([]Library, len(entries))
	for i, entry := range entries {
		m := respmap.Of(entry)
		registered, ok := m["functions"].([]any)
		list[i] = Library{Name: stringOf(m, "library_name"), Code: stringOf(m, "library_code")}
		for _, f := range registered {
			list[i].Functions = append(list[i].Functions, stringOf(respmap.Of(f), "name"))
		}
		if !ok || list[i].Name == "" || slices.Contains(list[i].Functions, "") || list[i].Code == "" && len(args) > 0 {
			return nil, c.Garbage(step, reply)
		}
	}
	return list, nil
}

// Role is a reply to ROLE.
type Role struct {
	Primary  string   // of a replica: the address of its primary
	Replicas []string // of a primary: the addresses of its replicas, "" for one that does not listen on a port
}

// Role asks a node for its role.
func (c *Conn) Role(ctx context.Context) (Role, error) {
	reply, err := c.Do(ctx, "ROLE")
	if err != nil {
		return Role{}, c.Failure("ROLE", err)
	}
	parts, _ := reply.([]any)
	if len(parts) < 3 {
		return Role{}, c.Garbage("ROLE", reply)
	}
	host, isText := parts[1].(string)
	port, isNumber := parts[2].(int64)
	if parts[0] == "slave" && isText && isNumber {
		return Role{Primary: net.JoinHostPort(host, strconv.FormatInt(port, 10))}, nil
	}
	list, ok := parts[2].([]any)
	if parts[0] != "master" || !ok {
		return Role{}, c.Garbage("ROLE", reply)
	}
	r := Role{Replicas: make([]string, len(list))}
	own, _, _ := net.SplitHostPort(c.Address())
	for i, replica := range list {
		fields, _ := replica.([]any)
		if len(fields) < 2 {
			return Role{}, c.Garbage("ROLE", reply)
		}
		name, isText := fields[0].(string)
		port, _ := fields[1].(string)
		n, err := strconv.ParseUint(port, 10, 16)
		if !isText || err != nil {
			return Role{}, c.Garbage("ROLE", reply)
		}
		if n > 0 { // 0: a program such as redis-cli --replica
			r.Replicas[i] = reachable(name, "", own, int64(n))
		}
	}
	return r, nil
}

// PrimaryOf returns the address of a replica's primary, or "" if the replica does not report it.
func (c *Conn) PrimaryOf(ctx context.Context) string {
	if r, err := c.Role(ctx); err == nil && r.Primary != "" {
		return r.Primary
	}
	reply, err := c.Do(ctx, "INFO", "replication")
	m := Info(reply)
	if err != nil || m["master_host"] == "" || m["master_port"] == "" {
		return ""
	}
	return net.JoinHostPort(m["master_host"], m["master_port"])
}

// ReadLibrary reads the source code of the node's library, or "" if there is none.
func (c *Conn) ReadLibrary(ctx context.Context) (string, error) {
	libraries, err := c.Libraries(ctx, "LIBRARYNAME", functions.Name, "WITHCODE")
	if err != nil || len(libraries) == 0 {
		return "", err
	}
	return libraries[0].Code, nil
}

// TimeMS returns the time of the server in ms since the epoch.
func (c *Conn) TimeMS(ctx context.Context) (int64, error) {
	reply, err := c.Do(ctx, "TIME")
	if err != nil {
		return 0, c.Failure("TIME", err)
	}
	parts, _ := reply.([]any)
	if len(parts) == 2 {
		seconds, ok1 := parts[0].(string)
		micros, ok2 := parts[1].(string)
		s, err1 := strconv.ParseUint(seconds, 10, 40) // with 40 bits, s*1000 cannot overflow
		us, err2 := strconv.ParseUint(micros, 10, 40)
		if ok1 && ok2 && err1 == nil && err2 == nil {
			return int64(s*1000 + us/1000), nil
		}
	}
	return 0, c.Garbage("TIME", reply)
}

// The functions of this file parse replies themselves, because the typed commands of go-redis reject unknown fields and
// newer servers add fields.

// stringOf returns field's value if it is a string, else "".
func stringOf(m map[string]any, field string) string {
	s, _ := m[field].(string)
	return s
}

// Info parses the reply to INFO.
func Info(reply any) map[string]string {
	s, _ := reply.(string)
	m := map[string]string{}
	for line := range strings.Lines(s) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}
