package embedded

import (
	"strconv"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// command describes a command for the dispatcher. The data comes from Redis 7.0's reply to COMMAND,
// for the commands that this server supports.
type command struct {
	name     string // in upper case
	arity    int    // as in COMMAND: includes the name; negative for a minimum
	write    bool
	noScript bool                         // whether the command and all its subcommands are forbidden in functions
	keys     func(args []string) []string // args excludes the name

	run handler // nil if miniredis runs the command
}

// commandHandlers returns the command table with the handlers of commands that miniredis does not
// run.
func (s *Server) commandHandlers() map[string]*command {
	table := parseCommandTable()
	for name, run := range map[string]handler{
		"FUNCTION": cmdFunction, "FCALL": cmdFCall(false), "FCALL_RO": cmdFCall(true),
		"SET": cmdSet, "SETEX": cmdSetEx("EX", "setex"), "PSETEX": cmdSetEx("PX", "psetex"), "GET": cmdGet,
		"EXPIRE": cmdExpire("expire", 1000, false), "PEXPIRE": cmdExpire("pexpire", 1, false),
		"EXPIREAT": cmdExpire("expireat", 1000, true), "PEXPIREAT": cmdExpire("pexpireat", 1, true),
		"TTL": cmdTTL(true, false), "PTTL": cmdTTL(false, false),
		"EXPIRETIME": cmdTTL(true, true), "PEXPIRETIME": cmdTTL(false, true),
		"TIME": cmdTime, "DEBUG": cmdDebug,
		"FLUSHALL": cmdFlush("FLUSHALL"), "FLUSHDB": cmdFlush("FLUSHDB"),
		"HINCRBY": cmdHIncrBy, "ZADD": cmdScores("ZADD"), "ZINCRBY": cmdScores("ZINCRBY"),
		"HELLO": cmdHello, "SELECT": cmdSelect, "CLIENT": cmdClient, "QUIT": cmdQuit, "RESET": cmdReset,
		"MULTI": cmdMulti, "EXEC": cmdExec, "DISCARD": cmdDiscard,
		"INFO": cmdInfo, "COMMAND": cmdCommand, "CLUSTER": cmdCluster, "CONFIG": cmdConfig,
		"READONLY": cmdCluster, "READWRITE": cmdCluster,
	} {
		table[name].run = run
	}
	for _, name := range []string{"EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "SCRIPT"} {
		table[name].run = func(*Server, *session, []string) engine.Reply {
			return notSupported("this command", "it runs Redis Functions: use FUNCTION LOAD and FCALL")
		}
	}
	return table
}

// Each line of commandTable describes commands: flags (w: writes, s: not allowed in functions), the
// way to find the keys (see keyFinders), and the commands' names, each with its
// arity.
const commandTable = `
- none     COMMAND -1  DBSIZE 1  ECHO 2  INFO -1  KEYS 2  PING -1  SCAN -2  SELECT 2  TIME 1
s none     AUTH -2  CLIENT -2  CLUSTER -2  CONFIG -2  DEBUG -2  DISCARD 1  EXEC 1  FUNCTION -2  HELLO -1  MULTI 1  QUIT 1
s none     READONLY 1  READWRITE 1  RESET 1  SCRIPT -2  WAIT 3
w none     FLUSHALL -1  FLUSHDB -1
- first    EXPIRETIME 2  GET 2  GETRANGE 4  HEXISTS 3  HGET 3  HGETALL 2  HKEYS 2  HLEN 2  HMGET -3  HSCAN -3  HSTRLEN 3
- first    HVALS 2  LINDEX 3  LLEN 2  LRANGE 4  PEXPIRETIME 2  PTTL 2  SCARD 2  SISMEMBER 3  SMEMBERS 2  SSCAN -3
- first    STRLEN 2  TTL 2  TYPE 2  XLEN 2  XRANGE -4  ZCARD 2  ZCOUNT 4  ZMSCORE -3  ZRANGE -4  ZRANGEBYSCORE -4
- first    ZRANK 3  ZREVRANGE -4  ZREVRANK 3  ZSCAN -3  ZSCORE 3
w first    APPEND 3  DECR 2  DECRBY 3  EXPIRE -3  EXPIREAT -3  GETDEL 2  GETSET 3  HDEL -3  HINCRBY 4  HMSET -4  HSET -4
w first    HSETNX 4  INCR 2  INCRBY 3  LPOP -2  LPUSH -3  LREM 4  LSET 4  LTRIM 4  PERSIST 2  PEXPIRE -3  PEXPIREAT -3
w first    PSETEX 4  RPOP -2  RPUSH -3  SADD -3  SET -3  SETEX 4  SETNX 3  SREM -3  XADD -5  XTRIM -4  ZADD -4
w first    ZINCRBY 4  ZPOPMAX -2  ZPOPMIN -2  ZREM -3  ZREMRANGEBYRANK 4  ZREMRANGEBYSCORE 4
- all      EXISTS -2  MGET -2
w all      DEL -2  UNLINK -2
s counted EVAL -3  EVALSHA -3  EVALSHA_RO -3  EVAL_RO -3  FCALL -3  FCALL_RO -3
`

func parseCommandTable() map[string]*command {
	table := map[string]*command{}
	for _, line := range strings.Split(strings.TrimSpace(commandTable), "\n") {
		f := strings.Fields(line)
		for i := 2; i < len(f); i += 2 {
			arity, _ := strconv.Atoi(f[i+1])
			table[f[i]] = &command{
				name:     f[i],
				arity:    arity,
				write:    strings.Contains(f[0], "w"),
				noScript: strings.Contains(f[0], "s"),
				keys:     keyFinders[f[1]],
			}
		}
	}
	return table
}

// arityOK reports whether a command may have n words, including its name.
func (c *command) arityOK(n int) bool {
	if c.arity < 0 {
		return n >= -c.arity
	}
	return n == c.arity
}

// keyFinders holds functions that return the keys among the arguments of a command. The caller has
// already checked the number of arguments.
var keyFinders = map[string]func(args []string) []string{
	"none":  func(args []string) []string { return nil },
	"first": func(args []string) []string { return args[:1] },
	"all":   func(args []string) []string { return args },
	// The first argument is the function, and the second one is the number of keys.
	"counted": func(args []string) []string {
		n, err := strconv.Atoi(args[1])
		if err != nil || n <= 0 {
			return nil
		}
		return args[2 : 2+min(n, len(args)-2)]
	},
}
