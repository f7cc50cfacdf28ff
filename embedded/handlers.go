package embedded

import "github.com/ratelimit-functions/ratelimit/embedded/internal/engine"

// commandHandlers is the command table with what is not left to miniredis.
func (s *Server) commandHandlers() map[string]*command {
	table := parseCommandTable()
	for name, run := range map[string]handler{
		"FUNCTION": cmdFunction, "FCALL": cmdFCall, "FCALL_RO": cmdFCallRO,
		"SET": cmdSet, "SETEX": cmdSetEx, "PSETEX": cmdPSetEx, "GET": cmdGet, "GETEX": cmdGetEx,
		"EXPIRE": cmdExpire("expire", 1000, false), "PEXPIRE": cmdExpire("pexpire", 1, false),
		"EXPIREAT": cmdExpire("expireat", 1000, true), "PEXPIREAT": cmdExpire("pexpireat", 1, true),
		"TTL": cmdTTL(true, false), "PTTL": cmdTTL(false, false),
		"EXPIRETIME": cmdTTL(true, true), "PEXPIRETIME": cmdTTL(false, true),
		"TIME":   cmdTime,
		"RENAME": movesKeys("RENAME", 2), "RENAMENX": movesKeys("RENAMENX", 2),
		"COPY": cmdCopy, "MOVE": movesDatabases("MOVE"), "SWAPDB": movesDatabases("SWAPDB"),
		"FLUSHALL": cmdFlush("FLUSHALL"), "FLUSHDB": cmdFlush("FLUSHDB"),
		"HINCRBY": cmdHIncrBy, "ZADD": cmdScores("ZADD"), "ZINCRBY": cmdScores("ZINCRBY"),
		"HELLO": cmdHello, "SELECT": cmdSelect, "CLIENT": cmdClient, "QUIT": cmdQuit, "RESET": cmdReset,
		"MULTI": cmdMulti, "EXEC": cmdExec, "DISCARD": cmdDiscard, "WATCH": cmdWatch, "UNWATCH": cmdUnwatch,
		"SUBSCRIBE": cmdSubscribe("SUBSCRIBE"), "PSUBSCRIBE": cmdSubscribe("PSUBSCRIBE"),
		"UNSUBSCRIBE": cmdSubscribe("UNSUBSCRIBE"), "PUNSUBSCRIBE": cmdSubscribe("PUNSUBSCRIBE"),
		"INFO": cmdInfo, "COMMAND": cmdCommand, "CLUSTER": cmdCluster, "CONFIG": cmdConfig,
		"OBJECT": cmdObject, "MEMORY": cmdMemory,
		"READONLY": cmdCluster, "READWRITE": cmdCluster,
		"DUMP":    refused("its payloads would not be those of Redis"),
		"RESTORE": refused("its payloads would not be those of Redis"),
		"EVAL":    refused(onlyFunctions), "EVALSHA": refused(onlyFunctions), "EVAL_RO": refused(onlyFunctions),
		"EVALSHA_RO": refused(onlyFunctions), "SCRIPT": refused(onlyFunctions),
	} {
		cmd := table[name]
		if cmd == nil {
			panic("embedded: no command " + name)
		}
		cmd.run = run
	}
	for _, name := range []string{
		"ZSCORE", "ZMSCORE", "ZPOPMIN", "ZPOPMAX", "ZRANGE", "ZREVRANGE", "ZRANGEBYSCORE", "ZREVRANGEBYSCORE",
	} {
		table[name].run = cmdReadScores(name)
	}
	for name, cmd := range table {
		if cmd.blocking {
			cmd.run = cmdBlocking(name)
		}
	}
	return table
}

const onlyFunctions = "it runs Redis Functions: use FUNCTION LOAD and FCALL"

func refused(why string) handler {
	return func(s *Server, c *session, args []string) engine.Reply {
		return engine.Error("ERR this command is not supported by the embedded server: " + why)
	}
}
