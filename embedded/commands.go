package embedded

import (
	"strconv"
	"strings"
)

// command is what the dispatcher knows of a command: Redis 7.0's COMMAND table,
// for the commands that are served here.
type command struct {
	name     string // upper case
	arity    int    // as in COMMAND: with the name, negative for a minimum
	write    bool
	noScript bool // not allowed in a function
	blocking bool
	keys     func(args []string) []string // nil: takes no keys; args without the name

	first, last, step int // of keys, as in COMMAND; 0 if they move

	run handler // nil: miniredis does it
}

// commandTable holds name, arity, flags (w writes, s not in functions, b may
// block) and where the keys are: first:last:step as in COMMAND, n<i> for
// a count at argument i with the keys behind it, d1 for a destination before
// that, streams for XREAD, store for a destination after STORE or STOREDIST.
const commandTable = `
APPEND 3 w 1:1:1
AUTH -2 s -
BITCOUNT -2 - 1:1:1
BITOP -4 w 2:-1:1
BITPOS -3 - 1:1:1
BLMOVE 6 wsb 1:2:1
BLPOP -3 wsb 1:-2:1
BRPOP -3 wsb 1:-2:1
BRPOPLPUSH 4 wsb 1:2:1
BZMPOP -5 wb n2
BZPOPMAX -3 wsb 1:-2:1
BZPOPMIN -3 wsb 1:-2:1
CLIENT -2 - -
CLUSTER -2 - -
COMMAND -1 - -
CONFIG -2 - -
COPY -3 w 1:2:1
DBSIZE 1 - -
DECR 2 w 1:1:1
DECRBY 3 w 1:1:1
DEL -2 w 1:-1:1
DISCARD 1 s -
DUMP 2 - 1:1:1
ECHO 2 - -
EVAL -3 s n2
EVALSHA -3 s n2
EVALSHA_RO -3 s n2
EVAL_RO -3 s n2
EXEC 1 s -
EXISTS -2 - 1:-1:1
EXPIRE -3 w 1:1:1
EXPIREAT -3 w 1:1:1
EXPIRETIME 2 - 1:1:1
FCALL -3 s n2
FCALL_RO -3 s n2
FLUSHALL -1 w -
FLUSHDB -1 w -
FUNCTION -2 - -
GEOADD -5 w 1:1:1
GEODIST -4 - 1:1:1
GEOPOS -2 - 1:1:1
GEORADIUS -6 w store
GEORADIUSBYMEMBER -5 w store
GEORADIUSBYMEMBER_RO -5 - 1:1:1
GEORADIUS_RO -6 - 1:1:1
GEOSEARCH -7 - 1:1:1
GET 2 - 1:1:1
GETBIT 3 - 1:1:1
GETDEL 2 w 1:1:1
GETEX -2 w 1:1:1
GETRANGE 4 - 1:1:1
GETSET 3 w 1:1:1
HDEL -3 w 1:1:1
HELLO -1 s -
HEXISTS 3 - 1:1:1
HGET 3 - 1:1:1
HGETALL 2 - 1:1:1
HINCRBY 4 w 1:1:1
HINCRBYFLOAT 4 w 1:1:1
HKEYS 2 - 1:1:1
HLEN 2 - 1:1:1
HMGET -3 - 1:1:1
HMSET -4 w 1:1:1
HRANDFIELD -2 - 1:1:1
HSCAN -3 - 1:1:1
HSET -4 w 1:1:1
HSETNX 4 w 1:1:1
HSTRLEN 3 - 1:1:1
HVALS 2 - 1:1:1
INCR 2 w 1:1:1
INCRBY 3 w 1:1:1
INCRBYFLOAT 3 w 1:1:1
INFO -1 - -
KEYS 2 - -
LINDEX 3 - 1:1:1
LINSERT 5 w 1:1:1
LLEN 2 - 1:1:1
LMOVE 5 w 1:2:1
LMPOP -4 w n1
LPOP -2 w 1:1:1
LPOS -3 - 1:1:1
LPUSH -3 w 1:1:1
LPUSHX -3 w 1:1:1
LRANGE 4 - 1:1:1
LREM 4 w 1:1:1
LSET 4 w 1:1:1
LTRIM 4 w 1:1:1
MEMORY -2 - 2:2:1
MGET -2 - 1:-1:1
MOVE 3 w 1:1:1
MSET -3 w 1:-1:2
MSETNX -3 w 1:-1:2
MULTI 1 s -
OBJECT -2 - 2:2:1
PERSIST 2 w 1:1:1
PEXPIRE -3 w 1:1:1
PEXPIREAT -3 w 1:1:1
PEXPIRETIME 2 - 1:1:1
PFADD -2 w 1:1:1
PFCOUNT -2 - 1:-1:1
PFMERGE -2 w 1:-1:1
PING -1 - -
PSETEX 4 w 1:1:1
PSUBSCRIBE -2 s -
PTTL 2 - 1:1:1
PUBLISH 3 - -
PUBSUB -2 - -
PUNSUBSCRIBE -1 s -
QUIT -1 s -
RANDOMKEY 1 - -
READONLY 1 - -
READWRITE 1 - -
RENAME 3 w 1:2:1
RENAMENX 3 w 1:2:1
RESET 1 s -
RESTORE -4 w 1:1:1
RPOP -2 w 1:1:1
RPOPLPUSH 3 w 1:2:1
RPUSH -3 w 1:1:1
RPUSHX -3 w 1:1:1
SADD -3 w 1:1:1
SCAN -2 - -
SCARD 2 - 1:1:1
SCRIPT -2 - -
SDIFF -2 - 1:-1:1
SDIFFSTORE -3 w 1:-1:1
SELECT 2 - -
SET -3 w 1:1:1
SETBIT 4 w 1:1:1
SETEX 4 w 1:1:1
SETNX 3 w 1:1:1
SETRANGE 4 w 1:1:1
SINTER -2 - 1:-1:1
SINTERCARD -3 - n1
SINTERSTORE -3 w 1:-1:1
SISMEMBER 3 - 1:1:1
SMEMBERS 2 - 1:1:1
SMISMEMBER -3 - 1:1:1
SMOVE 4 w 1:2:1
SPOP -2 w 1:1:1
SRANDMEMBER -2 - 1:1:1
SREM -3 w 1:1:1
SSCAN -3 - 1:1:1
STRLEN 2 - 1:1:1
SUBSCRIBE -2 s -
SUNION -2 - 1:-1:1
SUNIONSTORE -3 w 1:-1:1
SWAPDB 3 w -
TIME 1 - -
TOUCH -2 - 1:-1:1
TTL 2 - 1:1:1
TYPE 2 - 1:1:1
UNLINK -2 w 1:-1:1
UNSUBSCRIBE -1 s -
UNWATCH 1 s -
WAIT 3 s -
WATCH -2 s 1:-1:1
XACK -4 w 1:1:1
XADD -5 w 1:1:1
XAUTOCLAIM -6 w 1:1:1
XCLAIM -6 w 1:1:1
XDEL -3 w 1:1:1
XGROUP -2 - 2:2:1
XINFO -2 - 2:2:1
XLEN 2 - 1:1:1
XPENDING -3 - 1:1:1
XRANGE -4 - 1:1:1
XREAD -4 b streams
XREADGROUP -7 wb streams
XREVRANGE -4 - 1:1:1
XTRIM -4 w 1:1:1
ZADD -4 w 1:1:1
ZCARD 2 - 1:1:1
ZCOUNT 4 - 1:1:1
ZINCRBY 4 w 1:1:1
ZINTER -3 - n1
ZINTERSTORE -4 w d1n2
ZLEXCOUNT 4 - 1:1:1
ZMPOP -4 w n1
ZMSCORE -3 - 1:1:1
ZPOPMAX -2 w 1:1:1
ZPOPMIN -2 w 1:1:1
ZRANDMEMBER -2 - 1:1:1
ZRANGE -4 - 1:1:1
ZRANGEBYLEX -4 - 1:1:1
ZRANGEBYSCORE -4 - 1:1:1
ZRANK 3 - 1:1:1
ZREM -3 w 1:1:1
ZREMRANGEBYLEX 4 w 1:1:1
ZREMRANGEBYRANK 4 w 1:1:1
ZREMRANGEBYSCORE 4 w 1:1:1
ZREVRANGE -4 - 1:1:1
ZREVRANGEBYLEX -4 - 1:1:1
ZREVRANGEBYSCORE -4 - 1:1:1
ZREVRANK 3 - 1:1:1
ZSCAN -3 - 1:1:1
ZSCORE 3 - 1:1:1
ZUNION -3 - n1
ZUNIONSTORE -4 w d1n2
`

func parseCommandTable() map[string]*command {
	table := map[string]*command{}
	for _, line := range strings.Split(strings.TrimSpace(commandTable), "\n") {
		f := strings.Fields(line)
		arity, err := strconv.Atoi(f[1])
		if err != nil {
			panic("embedded: command table: " + line)
		}
		cmd := &command{
			name:     f[0],
			arity:    arity,
			write:    strings.Contains(f[2], "w"),
			noScript: strings.Contains(f[2], "s"),
			blocking: strings.Contains(f[2], "b"),
		}
		cmd.findKeys(f[3])
		table[f[0]] = cmd
	}
	return table
}

// arityOK tells whether a command may have n words, its name among them.
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
	case spec == "store":
		c.keys = storeKeys
	case spec[0] == 'n':
		at := int(spec[1] - '0')
		c.keys = func(args []string) []string { return countedKeys(args, at) }
	case strings.HasPrefix(spec, "d1n"):
		at := int(spec[3] - '0')
		c.keys = func(args []string) []string {
			return append(args[:1:1], countedKeys(args, at)...)
		}
	default:
		for i, s := range strings.Split(spec, ":") {
			n, err := strconv.Atoi(s)
			if err != nil {
				panic("embedded: command table: " + spec)
			}
			*[]*int{&c.first, &c.last, &c.step}[i] = n
		}
		c.keys = func(args []string) []string { return rangeKeys(args, c.first, c.last, c.step) }
		if c.first == 1 && c.last == 1 {
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
	return args[at:min(at+n, len(args))]
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

func storeKeys(args []string) []string {
	keys := args[:1:1]
	for i, a := range args[:len(args)-1] {
		if strings.EqualFold(a, "STORE") || strings.EqualFold(a, "STOREDIST") {
			keys = append(keys, args[i+1])
		}
	}
	return keys
}
