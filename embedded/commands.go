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
	amounts  [2]int                       // the entry of the command in the map amounts
	keys     func(args []string) []string // args excludes the name

	run handler // nil if miniredis runs the command
}

// commandHandlers returns the command table with the handlers of commands that miniredis does not
// run.
func (s *Server) commandHandlers() map[string]*command {
	table := parseCommandTable()
	for name, run := range map[string]handler{
		"FUNCTION": cmdFunction, "FCALL": cmdFCall(false), "FCALL_RO": cmdFCall(true),
		"SET": cmdSet, "SETEX": cmdSetEx("EX", "setex"), "PSETEX": cmdSetEx("PX", "psetex"), "GET": cmdGet, "GETEX": cmdGetEx,
		"EXPIRE": cmdExpire("expire", 1000, false), "PEXPIRE": cmdExpire("pexpire", 1, false),
		"EXPIREAT": cmdExpire("expireat", 1000, true), "PEXPIREAT": cmdExpire("pexpireat", 1, true),
		"TTL": cmdTTL(true, false), "PTTL": cmdTTL(false, false),
		"EXPIRETIME": cmdTTL(true, true), "PEXPIRETIME": cmdTTL(false, true),
		"TIME": cmdTime, "DEBUG": cmdDebug,
		"RENAME": cmdRename("RENAME"), "RENAMENX": cmdRename("RENAMENX"),
		"COPY":     cmdCopy,
		"FLUSHALL": cmdFlush("FLUSHALL"), "FLUSHDB": cmdFlush("FLUSHDB"),
		"INCRBYFLOAT": cmdIncrByFloat, "HINCRBYFLOAT": cmdHIncrByFloat,
		"HINCRBY": cmdHIncrBy, "ZADD": cmdScores("ZADD"), "ZINCRBY": cmdScores("ZINCRBY"),
		"HELLO": cmdHello, "SELECT": cmdSelect, "CLIENT": cmdClient, "QUIT": cmdQuit, "RESET": cmdReset,
		"MULTI": cmdMulti, "EXEC": cmdExec, "DISCARD": cmdDiscard, "WATCH": cmdWatch, "UNWATCH": cmdUnwatch,
		"INFO": cmdInfo, "COMMAND": cmdCommand, "CLUSTER": cmdCluster, "CONFIG": cmdConfig,
		"READONLY": cmdCluster, "READWRITE": cmdCluster,
	} {
		table[name].run = run
	}
	for name, why := range unsupported {
		table[name].run = func(*Server, *session, []string) engine.Reply { return notSupported("this command", why) }
	}
	return table
}

// Each line of commandTable describes commands: flags (w: writes, s: not allowed in functions), the
// way to find the keys (see keyFinders), and the commands' names, each with its
// arity.
const commandTable = `
- none      COMMAND -1  DBSIZE 1  ECHO 2  INFO -1  KEYS 2  PING -1  PUBLISH 3  PUBSUB -2  RANDOMKEY 1  SCAN -2  SELECT 2  TIME 1
s none      AUTH -2  CLIENT -2  CLUSTER -2  CONFIG -2  DEBUG -2  DISCARD 1  EXEC 1  FUNCTION -2  HELLO -1  MULTI 1  PSUBSCRIBE -2
s none      PUNSUBSCRIBE -1  QUIT -1  READONLY 1  READWRITE 1  RESET 1  SCRIPT -2  SUBSCRIBE -2  UNSUBSCRIBE -1  UNWATCH 1  WAIT 3
w none      FLUSHALL -1  FLUSHDB -1  SWAPDB 3
- first     BITCOUNT -2  BITPOS -3  DUMP 2  EXPIRETIME 2  GEODIST -4  GEOPOS -2  GEORADIUSBYMEMBER_RO -5  GEORADIUS_RO -6
- first     GEOSEARCH -7  GET 2  GETBIT 3  GETRANGE 4  HEXISTS 3  HGET 3  HGETALL 2  HKEYS 2  HLEN 2  HMGET -3
- first     HRANDFIELD -2  HSCAN -3  HSTRLEN 3  HVALS 2  LINDEX 3  LLEN 2  LPOS -3  LRANGE 4  PEXPIRETIME 2  PTTL 2
- first     SCARD 2  SISMEMBER 3  SMEMBERS 2  SMISMEMBER -3  SRANDMEMBER -2  SSCAN -3  STRLEN 2  TTL 2  TYPE 2  XLEN 2
- first     XPENDING -3  XRANGE -4  XREVRANGE -4  ZCARD 2  ZCOUNT 4  ZLEXCOUNT 4  ZMSCORE -3  ZRANDMEMBER -2  ZRANGE -4
- first     ZRANGEBYLEX -4  ZRANGEBYSCORE -4  ZRANK 3  ZREVRANGE -4  ZREVRANGEBYLEX -4  ZREVRANGEBYSCORE -4  ZREVRANK 3
- first     ZSCAN -3  ZSCORE 3
w first     APPEND 3  DECR 2  DECRBY 3  EXPIRE -3  EXPIREAT -3  GEOADD -5  GETDEL 2  GETEX -2  GETSET 3  HDEL -3  HINCRBY 4
w first     HINCRBYFLOAT 4  HMSET -4  HSET -4  HSETNX 4  INCR 2  INCRBY 3  INCRBYFLOAT 3  LINSERT 5  LPOP -2  LPUSH -3
w first     LPUSHX -3  LREM 4  LSET 4  LTRIM 4  MOVE 3  PERSIST 2  PEXPIRE -3  PEXPIREAT -3  PFADD -2  PSETEX 4
w first     RESTORE -4  RPOP -2  RPUSH -3  RPUSHX -3  SADD -3  SET -3  SETBIT 4  SETEX 4  SETNX 3  SETRANGE 4  SPOP -2
w first     SREM -3  XACK -4  XADD -5  XAUTOCLAIM -6  XCLAIM -6  XDEL -3  XTRIM -4  ZADD -4  ZINCRBY 4  ZPOPMAX -2
w first     ZPOPMIN -2  ZREM -3  ZREMRANGEBYLEX 4  ZREMRANGEBYRANK 4  ZREMRANGEBYSCORE 4
- all       EXISTS -2  MGET -2  PFCOUNT -2  SDIFF -2  SINTER -2  SUNION -2  TOUCH -2
s all       WATCH -2
w all       DEL -2  PFMERGE -2  SDIFFSTORE -3  SINTERSTORE -3  SUNIONSTORE -3  UNLINK -2
w odd       MSET -3  MSETNX -3
ws butlast BLPOP -3  BRPOP -3  BZPOPMAX -3  BZPOPMIN -3
w 1to2      COPY -3  LMOVE 5  RENAME 3  RENAMENX 3  RPOPLPUSH 3  SMOVE 4
ws 1to2    BLMOVE 6  BRPOPLPUSH 4
w from2     BITOP -4
- second    MEMORY -2  OBJECT -2  XINFO -2
w second    XGROUP -2
- counted1  SINTERCARD -3  ZINTER -3  ZUNION -3
w counted1  LMPOP -4  ZMPOP -4
s counted2  EVAL -3  EVALSHA -3  EVALSHA_RO -3  EVAL_RO -3  FCALL -3  FCALL_RO -3
w counted2 BZMPOP -5
w 1counted2 ZINTERSTORE -4  ZUNIONSTORE -4
- streams   XREAD -4
w streams   XREADGROUP -7
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
				amounts:  amounts[f[i]],
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
	"none":    func(args []string) []string { return nil },
	"first":   func(args []string) []string { return args[:1] },
	"second":  func(args []string) []string { return args[min(1, len(args)):min(2, len(args))] },
	"1to2":    func(args []string) []string { return args[:2] },
	"all":     func(args []string) []string { return args },
	"from2":   func(args []string) []string { return args[1:] },
	"butlast": func(args []string) []string { return args[:len(args)-1] },
	"odd": func(args []string) []string {
		var keys []string
		for i := 0; i < len(args); i += 2 {
			keys = append(keys, args[i])
		}
		return keys
	},
	"counted1":  countedKeys,
	"counted2":  func(args []string) []string { return countedKeys(args[1:]) },
	"1counted2": func(args []string) []string { return append(args[:1:1], countedKeys(args[1:])...) },
	"streams": func(args []string) []string {
		at := indexFold(args, "STREAMS")
		if at < 0 {
			return nil
		}
		return args[at+1 : at+1+(len(args)-at-1)/2]
	},
}

// countedKeys returns the keys after args[0], which is the number of keys.
func countedKeys(args []string) []string {
	n, err := strconv.Atoi(args[0])
	if err != nil || n <= 0 {
		return nil
	}
	return args[1 : 1+min(n, len(args)-1)]
}
