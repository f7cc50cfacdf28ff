package embedded

import (
	"fmt"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

func notSupported(what, why string) engine.Reply {
	return engine.Error("ERR " + what + " is not supported by the embedded server: " + why)
}

// onlyConnections lists the commands that Do rejects.
var onlyConnections = map[string]bool{
	"MULTI": true, "EXEC": true, "DISCARD": true, "SELECT": true, "HELLO": true, "QUIT": true,
	"RESET": true,
}

// touchesOthers lists commands that Redis allows in functions although they access undeclared keys.
// The values describe what each command does.
var touchesOthers = map[string]string{
	"FLUSHALL": "deletes keys",
	"FLUSHDB":  "deletes keys",
	"KEYS":     "reads all keys",
	"SCAN":     "reads all keys",
	"DBSIZE":   "counts all keys",
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
