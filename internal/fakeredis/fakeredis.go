// Package fakeredis runs fake Redis servers, whose replies the tests choose.
package fakeredis

import (
	"fmt"
	"testing"

	"github.com/alicebob/miniredis/v2/proto"
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
	switch v := reply.(type) {
	case nil:
		return proto.Nil
	case int:
		return proto.Int(v)
	case int64:
		return proto.Int(int(v))
	case string:
		return proto.String(v)
	case error:
		return proto.Error(v.Error())
	case []any:
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = RESP(x)
		}
		return proto.Array(parts...)
	}
	panic(fmt.Sprintf("no reply for %T", reply))
}
