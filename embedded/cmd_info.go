package embedded

import (
	"fmt"
	"net"
	"path"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// infoText is the reply to INFO, with one section per line.
const infoText = `Server redis_version:%s redis_mode:standalone os:embedded tcp_port:%s
Clients connected_clients:%d
Memory maxmemory:0 maxmemory_policy:noeviction
Persistence loading:0 aof_enabled:0
Replication role:master connected_slaves:0
Cluster cluster_enabled:0`

func cmdInfo(s *Server, c *session, args []string) engine.Reply {
	_, port, _ := net.SplitHostPort(s.Addr())
	all := len(args) == 0 || contains(args, "all") || contains(args, "default") || contains(args, "everything")
	var sections []string
	for _, line := range strings.Split(fmt.Sprintf(infoText, engine.Version, port, len(s.sessions)), "\n") {
		fields := strings.Fields(line)
		if all || contains(args, fields[0]) {
			sections = append(sections, "# "+strings.Join(fields, "\r\n")+"\r\n")
		}
	}
	return strings.Join(sections, "\r\n")
}

// cmdCommand passes COMMAND to miniredis, and rejects its subcommands.
func cmdCommand(s *Server, c *session, args []string) engine.Reply {
	if len(args) > 0 {
		return notSupported("COMMAND "+strings.ToUpper(args[0]), "only COMMAND alone is")
	}
	return s.pass(c, "COMMAND")
}

func cmdCluster(s *Server, c *session, args []string) engine.Reply {
	return engine.Error("ERR This instance has cluster support disabled")
}

// cmdConfig handles CONFIG GET for the few settings that clients and tools ask for. It rejects other
// subcommands.
func cmdConfig(s *Server, c *session, args []string) engine.Reply {
	if !strings.EqualFold(args[0], "GET") {
		return notSupported("CONFIG "+strings.ToUpper(args[0]), "it has no settings to change")
	}
	settings := []string{"appendonly", "no", "databases", fmt.Sprint(databases), "maxmemory", "0", "maxmemory-policy", "noeviction", "save", ""}
	out := engine.Map{}
	for i := 0; i < len(settings); i += 2 {
		for _, pattern := range args[1:] {
			if match, _ := path.Match(strings.ToLower(pattern), settings[i]); match {
				out = append(out, settings[i], settings[i+1])
				break
			}
		}
	}
	return out
}

var flushModes = []string{"SYNC", "ASYNC"}

func cmdFlush(name string) handler {
	return func(s *Server, c *session, args []string) engine.Reply {
		if len(args) > 1 || len(args) == 1 && !contains(flushModes, args[0]) {
			return errSyntax
		}
		return s.pass(c, name)
	}
}
