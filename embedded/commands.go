package embedded

import (
	"strconv"
	"strings"
)

// command describes a command to the dispatcher. The data are from COMMAND in Redis 7.0, for the
// commands that this server supports.
type command struct {
	name     string // upper case
	arity    int    // as in COMMAND: includes the name; negative for a minimum
	write    bool
	noScript bool // not allowed in a function
	blocking bool
	amounts  [2]int                       // words that are checked before miniredis gets them
	keys     func(args []string) []string // nil if it takes no keys; args excludes the name

	run handler // nil: miniredis runs it
}

// commandHandlers returns the command table with the handlers of commands that miniredis does not
// run.
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
		"RENAME": cmdRename("RENAME"), "RENAMENX": cmdRename("RENAMENX"),
		"COPY":     cmdCopy,
		"FLUSHALL": cmdFlush("FLUSHALL"), "FLUSHDB": cmdFlush("FLUSHDB"),
		"INCRBYFLOAT": cmdIncrByFloat, "HINCRBYFLOAT": cmdHIncrByFloat,
		"HINCRBY": cmdHIncrBy, "ZADD": cmdScores("ZADD"), "ZINCRBY": cmdScores("ZINCRBY"),
		"XREAD": cmdXRead("XREAD"), "XREADGROUP": cmdXRead("XREADGROUP"),
		"HELLO": cmdHello, "SELECT": cmdSelect, "CLIENT": cmdClient, "QUIT": cmdQuit, "RESET": cmdReset,
		"MULTI": cmdMulti, "EXEC": cmdExec, "DISCARD": cmdDiscard, "WATCH": cmdWatch, "UNWATCH": cmdUnwatch,
		"INFO": cmdInfo, "COMMAND": cmdCommand, "CLUSTER": cmdCluster, "CONFIG": cmdConfig,
		"READONLY": cmdCluster, "READWRITE": cmdCluster,
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
	for name, why := range unsupported {
		table[name].run = refused(why)
	}
	for name, cmd := range table {
		if cmd.blocking {
			cmd.run = cmdBlocking(name)
		}
	}
	return table
}

// commandTable has in each line: flags (w writes, s not in functions, b may block), the position of
// the keys, and names with their arity. The keys are first:last:step as in COMMAND; n<i> for a
// count at argument i followed by the keys; d1 for a destination before the count; or streams for
// the arguments after STREAMS.
const commandTable = `
- -         CLIENT -2  CLUSTER -2  COMMAND -1  CONFIG -2  DBSIZE 1  ECHO 2  FUNCTION -2  INFO -1  KEYS 2  PING -1  PUBLISH 3
- -         PUBSUB -2  RANDOMKEY 1  READONLY 1  READWRITE 1  SCAN -2  SCRIPT -2  SELECT 2  TIME 1
s -         AUTH -2  DISCARD 1  EXEC 1  HELLO -1  MULTI 1  PSUBSCRIBE -2  PUNSUBSCRIBE -1  QUIT -1  RESET 1  SUBSCRIBE -2
s -         UNSUBSCRIBE -1  UNWATCH 1  WAIT 3
w -         FLUSHALL -1  FLUSHDB -1  SWAPDB 3
- 1:1:1     BITCOUNT -2  BITPOS -3  DUMP 2  EXPIRETIME 2  GEODIST -4  GEOPOS -2  GEORADIUSBYMEMBER_RO -5  GEORADIUS_RO -6
- 1:1:1     GEOSEARCH -7  GET 2  GETBIT 3  GETRANGE 4  HEXISTS 3  HGET 3  HGETALL 2  HKEYS 2  HLEN 2  HMGET -3
- 1:1:1     HRANDFIELD -2  HSCAN -3  HSTRLEN 3  HVALS 2  LINDEX 3  LLEN 2  LPOS -3  LRANGE 4  PEXPIRETIME 2  PTTL 2
- 1:1:1     SCARD 2  SISMEMBER 3  SMEMBERS 2  SMISMEMBER -3  SRANDMEMBER -2  SSCAN -3  STRLEN 2  TTL 2  TYPE 2  XLEN 2
- 1:1:1     XPENDING -3  XRANGE -4  XREVRANGE -4  ZCARD 2  ZCOUNT 4  ZLEXCOUNT 4  ZMSCORE -3  ZRANDMEMBER -2  ZRANGE -4
- 1:1:1     ZRANGEBYLEX -4  ZRANGEBYSCORE -4  ZRANK 3  ZREVRANGE -4  ZREVRANGEBYLEX -4  ZREVRANGEBYSCORE -4  ZREVRANK 3
- 1:1:1     ZSCAN -3  ZSCORE 3
w 1:1:1     APPEND 3  DECR 2  DECRBY 3  EXPIRE -3  EXPIREAT -3  GEOADD -5  GETDEL 2  GETEX -2  GETSET 3  HDEL -3  HINCRBY 4
w 1:1:1     HINCRBYFLOAT 4  HMSET -4  HSET -4  HSETNX 4  INCR 2  INCRBY 3  INCRBYFLOAT 3  LINSERT 5  LPOP -2  LPUSH -3
w 1:1:1     LPUSHX -3  LREM 4  LSET 4  LTRIM 4  MOVE 3  PERSIST 2  PEXPIRE -3  PEXPIREAT -3  PFADD -2  PSETEX 4
w 1:1:1     RESTORE -4  RPOP -2  RPUSH -3  RPUSHX -3  SADD -3  SET -3  SETBIT 4  SETEX 4  SETNX 3  SETRANGE 4  SPOP -2
w 1:1:1     SREM -3  XACK -4  XADD -5  XAUTOCLAIM -6  XCLAIM -6  XDEL -3  XTRIM -4  ZADD -4  ZINCRBY 4  ZPOPMAX -2
w 1:1:1     ZPOPMIN -2  ZREM -3  ZREMRANGEBYLEX 4  ZREMRANGEBYRANK 4  ZREMRANGEBYSCORE 4
- 1:-1:1    EXISTS -2  MGET -2  PFCOUNT -2  SDIFF -2  SINTER -2  SUNION -2  TOUCH -2
s 1:-1:1    WATCH -2
w 1:-1:1    DEL -2  PFMERGE -2  SDIFFSTORE -3  SINTERSTORE -3  SUNIONSTORE -3  UNLINK -2
w 1:-1:2    MSET -3  MSETNX -3
wsb 1:-2:1  BLPOP -3  BRPOP -3  BZPOPMAX -3  BZPOPMIN -3
w 1:2:1     COPY -3  LMOVE 5  RENAME 3  RENAMENX 3  RPOPLPUSH 3  SMOVE 4
wsb 1:2:1   BLMOVE 6  BRPOPLPUSH 4
w 2:-1:1    BITOP -4
- 2:2:1     MEMORY -2  OBJECT -2  XINFO -2
w 2:2:1     XGROUP -2
- n1        SINTERCARD -3  ZINTER -3  ZUNION -3
w n1        LMPOP -4  ZMPOP -4
s n2        EVAL -3  EVALSHA -3  EVALSHA_RO -3  EVAL_RO -3  FCALL -3  FCALL_RO -3
wb n2       BZMPOP -5
w d1n2      ZINTERSTORE -4  ZUNIONSTORE -4
- streams   XREAD -4
w streams   XREADGROUP -7
`

func parseCommandTable() map[string]*command {
	table := map[string]*command{}
	for _, line := range strings.Split(strings.TrimSpace(commandTable), "\n") {
		f := strings.Fields(line)
		for i := 2; i < len(f); i += 2 {
			cmd := &command{
				name:     f[i],
				arity:    mustAtoi(f[i+1]),
				write:    strings.Contains(f[0], "w"),
				noScript: strings.Contains(f[0], "s"),
				blocking: strings.Contains(f[0], "b"),
				amounts:  amounts[f[i]],
			}
			cmd.findKeys(f[1])
			table[cmd.name] = cmd
		}
	}
	return table
}

func mustAtoi(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic("embedded: command table: " + text)
	}
	return n
}

// arityOK reports whether a command may have n words, including its name.
func (c *command) arityOK(n int) bool {
	if c.arity < 0 {
		return n >= -c.arity
	}
	return n == c.arity
}

func (c *command) findKeys(spec string) {
	switch {
	case spec == "-":
	case spec == "streams":
		c.keys = streamKeys
	case spec[0] == 'n':
		at := int(spec[1] - '0')
		c.keys = func(args []string) []string { return countedKeys(args, at) }
	case strings.HasPrefix(spec, "d1n"):
		at := int(spec[3] - '0')
		c.keys = func(args []string) []string {
			return append(args[:1:1], countedKeys(args, at)...)
		}
	default:
		at := strings.Split(spec, ":")
		first, last, step := mustAtoi(at[0]), mustAtoi(at[1]), mustAtoi(at[2])
		c.keys = func(args []string) []string { return rangeKeys(args, first, last, step) }
		if spec == "1:1:1" {
			c.keys = func(args []string) []string { return args[:1] }
		}
	}
}

func rangeKeys(args []string, first, last, step int) []string {
	if last < 0 {
		last += len(args) + 1
	}
	if last > len(args) {
		last = len(args)
	}
	if step == 1 && first <= last {
		return args[first-1 : last]
	}
	var keys []string
	for i := first; i <= last; i += step {
		keys = append(keys, args[i-1])
	}
	return keys
}

func countedKeys(args []string, at int) []string {
	if at > len(args) {
		return nil
	}
	n, err := strconv.Atoi(args[at-1])
	if err != nil || n <= 0 {
		return nil
	}
	return args[at : at+min(n, len(args)-at)]
}

func streamKeys(args []string) []string {
	for i, a := range args {
		if strings.EqualFold(a, "STREAMS") {
			rest := args[i+1:]
			return rest[:len(rest)/2]
		}
	}
	return nil
}
