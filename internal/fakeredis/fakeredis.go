// Package fakeredis runs fake Redis servers, whose replies the tests choose.
package fakeredis

import (
	"fmt"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2/server"
)

// HangUp is the answer, in [Run], that makes the server close the connection.
const HangUp = "hang up"

// Run runs a server until the test ends. It sends the RESP that answer returns for each command. If
// answer returns "", the command gets no reply.
func Run(t testing.TB, answer func(words []string) string) (addr string) {
	t.Helper()
	srv, err := server.NewServer("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	srv.SetPreHook(func(c *server.Peer, command string, args ...string) bool {
		if text := answer(append([]string{command}, args...)); text == HangUp {
			c.Close()
		} else {
			c.WriteRaw(text)
		}
		return true
	})
	return srv.Addr().String()
}

// RESP encodes a reply in RESP2. It supports text (as bulk strings), integers, errors, nil, and
// lists of these.
func RESP(reply any) string {
	var text strings.Builder // a Builder, because a reply may contain a whole library
	write(&text, reply)
	return text.String()
}

func write(text *strings.Builder, reply any) {
	switch v := reply.(type) {
	case nil:
		text.WriteString("$-1\r\n")
	case int, int64:
		fmt.Fprintf(text, ":%d\r\n", v)
	case string:
		fmt.Fprintf(text, "$%d\r\n", len(v))
		text.WriteString(v)
		text.WriteString("\r\n")
	case error:
		text.WriteString("-" + v.Error() + "\r\n")
	case []any:
		fmt.Fprintf(text, "*%d\r\n", len(v))
		for _, x := range v {
			write(text, x)
		}
	default:
		panic(fmt.Sprintf("no reply for %T", reply))
	}
}
