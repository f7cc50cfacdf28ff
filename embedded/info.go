package embedded

import (
	"fmt"
	"sort"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

func cmdInfo(s *Server, c *session, args []string) engine.Reply {
	_, port, _ := strings.Cut(s.Addr(), ":")
	sections := []struct{ name, text string }{
		{"Server", fmt.Sprintf("redis_version:%s\r\nredis_mode:standalone\r\nos:embedded\r\ntcp_port:%s\r\n", engine.Version, port)},
		{"Clients", fmt.Sprintf("connected_clients:%d\r\n", len(s.sessions))},
		{"Memory", "maxmemory:0\r\nmaxmemory_policy:noeviction\r\n"},
		{"Persistence", "loading:0\r\naof_enabled:0\r\n"},
		{"Replication", "role:master\r\nconnected_slaves:0\r\n"},
		{"Cluster", "cluster_enabled:0\r\n"},
		{"Keyspace", s.infoKeyspace()},
	}
	want := map[string]bool{}
	for _, a := range args {
		want[strings.ToLower(a)] = true
	}
	all := len(want) == 0 || want["all"] || want["default"] || want["everything"]
	var b strings.Builder
	for _, sec := range sections {
		if all || want[strings.ToLower(sec.name)] {
			if b.Len() > 0 {
				b.WriteString("\r\n")
			}
			b.WriteString("# " + sec.name + "\r\n" + sec.text)
		}
	}
	return b.String()
}

func (s *Server) infoKeyspace() string {
	var b strings.Builder
	for n := range databases {
		db := s.keyspace.DB(n)
		keys := db.Keys()
		if len(keys) == 0 {
			continue
		}
		expires := 0
		for _, k := range keys {
			if db.TTL(k) != 0 {
				expires++
			}
		}
		fmt.Fprintf(&b, "db%d:keys=%d,expires=%d,avg_ttl=0\r\n", n, len(keys), expires)
	}
	return b.String()
}

func cmdCommand(s *Server, c *session, args []string) engine.Reply {
	names := make([]string, 0, len(s.commands))
	for n := range s.commands {
		names = append(names, n)
	}
	sort.Strings(names)
	sub := ""
	if len(args) > 0 {
		sub = strings.ToUpper(args[0])
	}
	switch sub {
	case "COUNT":
		return int64(len(names))
	case "DOCS":
		return engine.Map{}
	case "", "INFO":
		if len(args) > 1 {
			names = args[1:]
		}
		list := []engine.Reply{}
		for _, n := range names {
			list = append(list, s.describe(n))
		}
		return list
	case "LIST":
		list := []engine.Reply{}
		for _, n := range names {
			list = append(list, strings.ToLower(n))
		}
		return list
	case "GETKEYS":
		if cmd := s.lookup(strings.Join(args[1:min(2, len(args))], "")); cmd != nil && cmd.keys != nil && cmd.arityOK(len(args)-1) {
			list := []engine.Reply{}
			for _, k := range cmd.keys(args[2:]) {
				list = append(list, k)
			}
			return list
		}
		return engine.Error("ERR Invalid command specified")
	}
	return engine.Error(fmt.Sprintf("ERR unknown subcommand '%.128s'. Try COMMAND HELP.", args[0]))
}

func (s *Server) describe(name string) engine.Reply {
	cmd := s.lookup(name)
	if cmd == nil {
		return nil
	}
	flags := engine.Set{}
	if cmd.write {
		flags = append(flags, engine.Status("write"))
	} else if cmd.keys != nil {
		flags = append(flags, engine.Status("readonly"))
	}
	if cmd.noScript {
		flags = append(flags, engine.Status("noscript"))
	}
	if cmd.blocking {
		flags = append(flags, engine.Status("blocking"))
	}
	if cmd.keys != nil && cmd.step == 0 {
		flags = append(flags, engine.Status("movablekeys"))
	}
	empty := func() engine.Reply { return []engine.Reply{} }
	return []engine.Reply{
		strings.ToLower(cmd.name), int64(cmd.arity), flags,
		int64(cmd.first), int64(cmd.last), int64(cmd.step), empty(), empty(), empty(), empty(),
	}
}

func cmdCluster(s *Server, c *session, args []string) engine.Reply {
	return engine.Error("ERR This instance has cluster support disabled")
}

// cmdConfig answers the few settings that clients and tools ask for.
func cmdConfig(s *Server, c *session, args []string) engine.Reply {
	if !strings.EqualFold(args[0], "GET") {
		return engine.Error("ERR the embedded server has no settings to change: CONFIG " + args[0] + " is not supported")
	}
	settings := []string{"appendonly", "no", "databases", fmt.Sprint(databases), "maxmemory", "0", "maxmemory-policy", "noeviction", "save", ""}
	out := engine.Map{}
	for i := 0; i < len(settings); i += 2 {
		for _, pattern := range args[1:] {
			if globMatch(strings.ToLower(pattern), settings[i]) {
				out = append(out, settings[i], settings[i+1])
				break
			}
		}
	}
	return out
}

func cmdFlush(name string) handler {
	return func(s *Server, c *session, args []string) engine.Reply {
		if len(args) > 1 || len(args) == 1 && !strings.EqualFold(args[0], "SYNC") && !strings.EqualFold(args[0], "ASYNC") {
			return errSyntax
		}
		return s.pass(c, name)
	}
}

func cmdObject(s *Server, c *session, args []string) engine.Reply {
	if !strings.EqualFold(args[0], "IDLETIME") {
		return engine.Error("ERR OBJECT " + strings.ToUpper(args[0]) + " is not supported by the embedded server: its keys have no encodings or counts")
	}
	return s.pass(c, append([]string{"OBJECT"}, args...)...)
}

func cmdMemory(s *Server, c *session, args []string) engine.Reply {
	return engine.Error("ERR MEMORY is not supported by the embedded server: its keys do not take the memory that they take in Redis")
}

// globMatch is Redis's glob: *, ?, [a-z], [^a] and \x.
func globMatch(p, s string) bool {
	for len(p) > 0 {
		switch p[0] {
		case '*':
			for len(p) > 0 && p[0] == '*' {
				p = p[1:]
			}
			if p == "" {
				return true
			}
			for i := 0; i <= len(s); i++ {
				if globMatch(p, s[i:]) {
					return true
				}
			}
			return false
		case '?':
			if s == "" {
				return false
			}
			p, s = p[1:], s[1:]
		case '[':
			if s == "" {
				return false
			}
			match, rest := globSet(p[1:], s[0])
			if !match {
				return false
			}
			p, s = rest, s[1:]
		case '\\':
			if len(p) > 1 {
				p = p[1:]
			}
			fallthrough
		default:
			if s == "" || p[0] != s[0] {
				return false
			}
			p, s = p[1:], s[1:]
		}
	}
	return s == ""
}

// globSet matches c against the set that p begins with, and gives what is
// behind the set.
func globSet(p string, c byte) (bool, string) {
	not := strings.HasPrefix(p, "^")
	if not {
		p = p[1:]
	}
	match := false
	for len(p) > 0 && p[0] != ']' {
		switch {
		case p[0] == '\\' && len(p) > 1:
			match = match || p[1] == c
			p = p[2:]
		case len(p) > 2 && p[1] == '-':
			lo, hi := min(p[0], p[2]), max(p[0], p[2])
			match = match || lo <= c && c <= hi
			p = p[3:]
		default:
			match = match || p[0] == c
			p = p[1:]
		}
	}
	if p != "" {
		p = p[1:]
	}
	return match != not, p
}
