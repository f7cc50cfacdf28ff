package embedded

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// unsupported maps Redis commands that this server does not support to the reasons.
var unsupported = map[string]string{
	"EVAL": onlyFunctions, "EVALSHA": onlyFunctions, "EVAL_RO": onlyFunctions, "EVALSHA_RO": onlyFunctions, "SCRIPT": onlyFunctions,
	"DUMP": noDumps, "RESTORE": noDumps,
	"MEMORY":    "its keys do not take the memory that they take in Redis",
	"SUBSCRIBE": noMessages, "PSUBSCRIBE": noMessages, "UNSUBSCRIBE": noMessages, "PUNSUBSCRIBE": noMessages,
	"BLPOP": noWaiting, "BRPOP": noWaiting, "BLMOVE": noWaiting, "BRPOPLPUSH": noWaiting,
	"BZPOPMIN": noWaiting, "BZPOPMAX": noWaiting, "BZMPOP": noWaiting, "XREAD": noWaiting, "XREADGROUP": noWaiting,
	"MOVE": oneDatabase, "SWAPDB": oneDatabase,
}

const (
	onlyFunctions = "it runs Redis Functions: use FUNCTION LOAD and FCALL"
	noDumps       = "its payloads would not be those of Redis"
	noMessages    = "it sends no messages"
	noWaiting     = "its commands do not wait: ask again with one such as LPOP, ZPOPMIN or XRANGE"
	oneDatabase   = "its keys stay in their database"
)

func notSupported(what, why string) engine.Reply {
	return engine.Error("ERR " + what + " is not supported by the embedded server: " + why)
}

// onlyConnections lists the commands that Do rejects.
var onlyConnections = map[string]bool{
	"MULTI": true, "EXEC": true, "DISCARD": true, "WATCH": true, "UNWATCH": true, "SELECT": true, "HELLO": true, "QUIT": true,
	"RESET": true,
}

// touchesOthers lists commands that Redis allows in functions although they access undeclared keys.
// The values describe what each command does.
var touchesOthers = map[string]string{
	"FLUSHALL":  "deletes keys",
	"FLUSHDB":   "deletes keys",
	"KEYS":      "reads all keys",
	"SCAN":      "reads all keys",
	"RANDOMKEY": "reads any key",
	"DBSIZE":    "counts all keys",
}

func unknownCommand(words []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "ERR unknown command '%.128s', with args beginning with: ", words[0])
	for _, w := range words[1:] {
		if b.Len() > 160 {
			break
		}
		fmt.Fprintf(&b, "'%.128s' ", w)
	}
	return b.String()
}

// most is the maximum offset or count in an argument, because miniredis needs memory or time in
// proportion to the number.
const most = 4 << 20

// amounts maps a command to the range of its words that may be offsets or counts: the index of the
// first, and the index after the last. If the second index is 0, the range extends to the last word.
var amounts = map[string][2]int{
	"SETRANGE": {2, 3}, "SETBIT": {2, 3}, "LPOS": {3, 0}, "SPOP": {2, 0},
	"SRANDMEMBER": {2, 0}, "HRANDFIELD": {2, 0}, "ZRANDMEMBER": {2, 0},
}

// tooMuch returns an error if an offset or a count in words is too large. Otherwise it returns nil.
func (c *command) tooMuch(words []string) engine.Reply {
	first, end := c.amounts[0], cmp.Or(c.amounts[1], len(words))
	for i := first; i > 0 && i < end; i++ {
		if n, _ := strconv.ParseInt(words[i], 10, 64); n > most || n < -most {
			return engine.Error(fmt.Sprintf("ERR the embedded server refuses %.32s in %s: it takes offsets and counts up to %d", words[i], c.name, most))
		}
	}
	return nil
}
