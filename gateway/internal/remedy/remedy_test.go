package remedy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/remedy"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestFor checks that the advice is for operators, and names what they have: flags and commands, not
// Go packages.
func TestFor(t *testing.T) {
	build := redistest.Must[functions.Build](t)(functions.New())
	for _, tt := range []struct {
		reply string // the server's reply to each call; "" for a server without the library
		call  func(*client.Client) error
		want  string
	}{
		{"", take, "deploy it with ratelimit deploy, or start the gateway with --deploy"},
		{"NOPERM this user has no permissions", take, "print the rights that it needs with: ratelimit acl application --all-keys"},
		{"ERR The user executing the script can't run this command", take, "ratelimit acl application --all-keys"},
		{"NOPERM this user has no permissions", reset, "ratelimit acl operator --all-keys"},
		{"NOAUTH Authentication required.", take, "write redis://:PASSWORD@host:port in REDIS_URL"},
		{"WRONGPASS invalid username-password pair", take, "check the user name and the password"},
		{"MOVED 1 127.0.0.1:1", take, "write redis+cluster:// in the URL of the servers"},
	} {
		source := fmt.Sprintf("#!lua name=ratelimit\nlocal function refuse() return redis.error_reply(%q) end\nredis.register_function('ratelimit_take', refuse)\nredis.register_function('ratelimit_reset', refuse)", tt.reply)
		if tt.reply == "" {
			source = strings.ReplaceAll(build.Text(), "ratelimit_take", "other_take")
		}
		limiter := redistest.Must[*client.Client](t)(client.Open("redis://" + embedded.Run(t, embedded.WithLibrary(source)).Addr()))
		err := tt.call(limiter)
		redistest.Require(t, limiter.Close())
		if got := remedy.For(err); got == nil || !strings.HasSuffix(got.Error(), tt.want) {
			t.Errorf("%q: %v, want %s", tt.reply, got, tt.want)
		}
	}
}

func take(c *client.Client) error {
	_, err := c.Allow(context.Background(), "a", "1/s")
	return err
}

func reset(c *client.Client) error {
	_, err := c.Reset(context.Background(), "a")
	return err
}
