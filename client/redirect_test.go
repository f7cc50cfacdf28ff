package client_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/fakeredis"
)

// redirecting returns a client for a cluster of one primary, which redirects calls for the key
// "moving" with ASK to the node at addr, and decides all others.
func redirecting(t *testing.T, addr string, opts ...client.Option) *client.Client {
	t.Helper()
	primary := fakeredis.Run(t, func(words []string) string {
		line := strings.ToLower(strings.Join(words, " "))
		switch {
		case strings.HasPrefix(line, "fcall") && strings.Contains(line, " moving "):
			return "-ASK 7 " + addr + "\r\n"
		case strings.HasPrefix(line, "fcall"):
			return fakeredis.RESP([]any{1, 10, 9, 0, 1, 1})
		}
		return "-ERR unknown command\r\n"
	})
	m := newMoving(t, primary)
	return newClient(t, m.ClusterClient, append([]client.Option{client.WithTimeout(slow)}, opts...)...)
}

// A call that is redirected to a node that is gone counts against that node: calls for other keys of
// the primary are sent, and soon the redirection is no longer followed.
func TestRedirectedToANodeThatIsGone(t *testing.T) {
	silent := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0")) // accepts, and never replies
	defer func() { _ = silent.Close() }()
	c := redirecting(t, silent.Addr().String(), client.WithTimeout(200*time.Millisecond))
	left := 0
	for range 20 {
		_, err := c.Allow(t.Context(), "moving", plenty)
		if !errors.Is(err, client.ErrUnavailable) {
			t.Error(err)
		}
		if !errors.Is(err, client.ErrOutcomeUnknown) && strings.Contains(err.Error(), "not sent, since the server did not reply") {
			left++
		}
		check(t, second(c.Allow(t.Context(), "stays", plenty)))
	}
	if left == 0 {
		t.Error("every redirection was followed")
	}
}

// A node that does not have the library, and to which a call is redirected, gets the healer.
func TestRedirectedToANodeWithoutTheLibrary(t *testing.T) {
	healed := make(chan struct{})
	importing := fakeredis.Run(t, func(words []string) string {
		switch line := strings.ToLower(words[0]); line {
		case "asking":
			return "+OK\r\n"
		case "fcall":
			select {
			case <-healed:
				return fakeredis.RESP([]any{1, 10, 9, 0, 1, 1})
			default:
				return "-ERR Function not found\r\n"
			}
		}
		return "-ERR unknown command\r\n"
	})
	c := redirecting(t, importing, client.WithHealer(func(_ context.Context, server redis.UniversalClient) error {
		if addr := server.(*redis.Client).Options().Addr; addr != importing {
			t.Errorf("the healer gets %s, want %s", addr, importing)
		}
		close(healed)
		return nil
	}))
	for range 3 {
		check(t, second(c.Allow(t.Context(), "moving", plenty)))
	}
}
