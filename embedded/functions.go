package embedded

import (
	"fmt"
	"path"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

func cmdFunction(s *Server, c *session, args []string) engine.Reply {
	sub := strings.ToUpper(args[0])
	rest := args[1:]
	if n, fixed := map[string]int{"DELETE": 1, "STATS": 0, "KILL": 0}[sub]; fixed && len(rest) != n || sub == "LOAD" && len(rest) == 0 {
		return engine.Error(fmt.Sprintf("ERR wrong number of arguments for 'function|%s' command", strings.ToLower(sub)))
	}
	switch sub {
	case "LOAD":
		return s.functionLoad(rest)
	case "DELETE":
		if !s.engine.Delete(rest[0]) {
			return engine.Error("ERR Library not found")
		}
		return ok
	case "FLUSH":
		if len(rest) > 1 {
			return engine.Error(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%.128s'. Try FUNCTION HELP.", args[0]))
		}
		if len(rest) == 1 && !contains(flushModes, rest[0]) {
			return engine.Error("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")
		}
		s.engine.Flush()
		return ok
	case "LIST":
		return s.functionList(rest)
	case "STATS":
		libraries, functions := s.engine.Counts()
		return engine.Map{"running_script", nil, "engines", engine.Map{"LUA", engine.Map{
			"libraries_count", int64(libraries), "functions_count", int64(functions),
		}}}
	case "KILL":
		return engine.Error("NOTBUSY No scripts in execution right now.")
	case "DUMP", "RESTORE":
		return notSupported("FUNCTION "+sub, "move libraries as source text, with FUNCTION LIST WITHCODE and FUNCTION LOAD")
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
	pattern = strings.ToLower(pattern)
	if _, err := path.Match(pattern, ""); err != nil {
		return engine.Error(fmt.Sprintf("ERR the embedded server cannot read the pattern '%.128s': its [ is not closed", pattern))
	}
	list := []engine.Reply{}
	for _, lib := range s.engine.Libraries(func(name string) bool {
		match, _ := path.Match(pattern, strings.ToLower(name))
		return match || !named
	}) {
		functions := []engine.Reply{}
		for _, f := range lib.Functions {
			flags := engine.Set{}
			for _, n := range f.Flags {
				flags = append(flags, engine.Status(n))
			}
			functions = append(functions, engine.Map{"name", f.Name, "description", f.Description, "flags", flags})
		}
		m := engine.Map{"library_name", lib.Name, "engine", "LUA", "functions", functions}
		if code {
			m = append(m, "library_code", lib.Code)
		}
		list = append(list, m)
	}
	return list
}
