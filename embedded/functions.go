package embedded

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// cmdFunction is FUNCTION.
func cmdFunction(s *Server, c *session, args []string) engine.Reply {
	sub := strings.ToUpper(args[0])
	rest := args[1:]
	arity := func(ok bool) engine.Reply {
		if ok {
			return nil
		}
		return engine.Error(fmt.Sprintf("ERR wrong number of arguments for 'function|%s' command", strings.ToLower(sub)))
	}
	switch sub {
	case "LOAD":
		if e := arity(len(rest) >= 1); e != nil {
			return e
		}
		return s.functionLoad(rest)
	case "DELETE":
		if e := arity(len(rest) == 1); e != nil {
			return e
		}
		if !s.engine.Delete(rest[0]) {
			return engine.Error("ERR Library not found")
		}
		return engine.Status("OK")
	case "FLUSH":
		if len(rest) > 1 {
			return engine.Error(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%.128s'. Try FUNCTION HELP.", args[0]))
		}
		if len(rest) == 1 && !strings.EqualFold(rest[0], "SYNC") && !strings.EqualFold(rest[0], "ASYNC") {
			return engine.Error("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")
		}
		s.engine.Flush()
		return engine.Status("OK")
	case "LIST":
		return s.functionList(rest)
	case "STATS":
		if e := arity(len(rest) == 0); e != nil {
			return e
		}
		libraries, functions := s.engine.Counts()
		return engine.Map{
			"running_script", nil,
			"engines", engine.Map{"LUA", engine.Map{
				"libraries_count", int64(libraries), "functions_count", int64(functions),
			}},
		}
	case "KILL":
		if e := arity(len(rest) == 0); e != nil {
			return e
		}
		return engine.Error("NOTBUSY No scripts in execution right now.")
	case "DUMP", "RESTORE":
		return engine.Error(fmt.Sprintf("ERR FUNCTION %s is not supported by the embedded server: "+
			"move libraries as source text, with FUNCTION LIST WITHCODE and FUNCTION LOAD", sub))
	case "HELP":
		return functionHelp()
	}
	return engine.Error(fmt.Sprintf("ERR unknown subcommand '%.128s'. Try FUNCTION HELP.", args[0]))
}

func (s *Server) functionLoad(args []string) engine.Reply {
	replace := false
	for len(args) > 1 {
		if !strings.EqualFold(args[0], "REPLACE") {
			return engine.Error("ERR Unknown option given: " + args[0])
		}
		replace = true
		args = args[1:]
	}
	name, err := s.engine.Load(args[0], replace)
	if err != nil {
		return engine.Error(err.Error())
	}
	return name
}

func (s *Server) functionList(args []string) engine.Reply {
	pattern, named, code := "", false, false
	for i := 0; i < len(args); i++ {
		switch {
		case !code && strings.EqualFold(args[i], "WITHCODE"):
			code = true
		case !named && strings.EqualFold(args[i], "LIBRARYNAME"):
			if i++; i >= len(args) {
				return engine.Error("ERR library name argument was not given")
			}
			pattern, named = args[i], true
		default:
			return engine.Error("ERR Unknown argument " + args[i])
		}
	}
	list := []engine.Reply{}
	for _, lib := range s.engine.Libraries(func(name string) bool { return !named || globMatch(strings.ToLower(pattern), strings.ToLower(name)) }) {
		functions := []engine.Reply{}
		for _, f := range lib.Functions {
			var desc engine.Reply
			if f.HasDesc {
				desc = f.Description
			}
			flags := engine.Set{}
			for _, n := range f.Flags.Names() {
				flags = append(flags, engine.Status(n))
			}
			functions = append(functions, engine.Map{"name", f.Name, "description", desc, "flags", flags})
		}
		m := engine.Map{"library_name", lib.Name, "engine", "LUA", "functions", functions}
		if code {
			m = append(m, "library_code", lib.Code)
		}
		list = append(list, m)
	}
	return list
}

func functionHelp() engine.Reply {
	lines := []engine.Reply{}
	for _, l := range []string{
		"FUNCTION <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
		"LOAD [REPLACE] <FUNCTION CODE>", "DELETE <LIBRARY NAME>", "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
		"STATS", "FLUSH [ASYNC|SYNC]", "KILL", "HELP",
	} {
		lines = append(lines, engine.Status(l))
	}
	return lines
}

func cmdFCall(s *Server, c *session, args []string) engine.Reply   { return s.fcall(c, args, false) }
func cmdFCallRO(s *Server, c *session, args []string) engine.Reply { return s.fcall(c, args, true) }

func (s *Server) fcall(c *session, args []string, readOnly bool) engine.Reply {
	f := s.engine.Lookup(args[0])
	if f == nil {
		return engine.Error("ERR Function not found")
	}
	n, err := parseInt(args[1])
	switch {
	case err != nil:
		return engine.Error("ERR Bad number of keys provided")
	case n > int64(len(args)-2):
		return engine.Error("ERR Number of keys can't be greater than number of args")
	case n < 0:
		return engine.Error("ERR Number of keys can't be negative")
	}
	s.selectScript(c.db)
	r := s.engine.Call(f, args[2:2+n], args[2+n:], readOnly)
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
	return r
}

// selectScript has redis.call work on the caller's database.
func (s *Server) selectScript(db int) {
	if s.script.db != db {
		s.script.db = db
		s.pass(s.script, "SELECT", strconv.Itoa(db))
	}
}

// keyspace runs the commands of functions; the server is locked.
type keyspace struct{ *Server }

// Call implements engine.Keyspace, with the checks of Redis's scriptCall, in
// its order.
func (k keyspace) Call(run *engine.Run, words []string) engine.Reply {
	s := k.Server
	cmd := s.lookup(words[0])
	switch {
	case cmd == nil:
		return engine.Error("ERR Unknown Redis command called from script")
	case !cmd.arityOK(len(words)):
		return engine.Error("ERR Wrong number of args calling Redis command from script")
	case cmd.noScript || notInFunctions[cmd.name]:
		return engine.Error("ERR This Redis command is not allowed from script")
	case cmd.write && run.ReadOnly:
		return engine.Error("ERR Write commands are not allowed from read-only scripts.")
	}
	if reason, ok := touchesOthers[cmd.name]; ok {
		return engine.Error(fmt.Sprintf("ERR the embedded server refuses %s in a function: it %s, and a function may only touch the keys it is given", cmd.name, reason))
	}
	if cmd.keys != nil {
		for _, key := range cmd.keys(words[1:]) {
			if !run.Declared(key) {
				return engine.Error(fmt.Sprintf("ERR Script attempted to access a key that it was not given: %s on '%.128s', which is not among the keys of this call. "+
					"Pass every key in KEYS: Redis Cluster and ACLs rely on it", cmd.name, key))
			}
		}
	}
	return s.execute(s.script, cmd, words)
}

// notInFunctions are subcommand containers whose members Redis refuses in
// functions one by one.
var notInFunctions = map[string]bool{
	"CLIENT": true, "CONFIG": true, "FUNCTION": true, "SCRIPT": true, "CLUSTER": true, "READONLY": true, "READWRITE": true,
}

// touchesOthers are commands that Redis lets a function call, on keys that
// nobody declared.
var touchesOthers = map[string]string{
	"FLUSHALL":  "deletes keys",
	"FLUSHDB":   "deletes keys",
	"SWAPDB":    "moves keys",
	"MOVE":      "reaches another database",
	"KEYS":      "reads all keys",
	"SCAN":      "reads all keys",
	"RANDOMKEY": "reads any key",
	"DBSIZE":    "counts all keys",
}
