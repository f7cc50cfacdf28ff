package client

import (
	"context"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Trust tells c that its rdb ends every call by itself, so that no goroutine is between a test and its fake.
func Trust(c *Client) { c.punctual = true }

// OpenWithDialer is Open over connections that dial makes.
func OpenWithDialer(t *testing.T, url string, dial func(ctx context.Context, network, addr string) (net.Conn, error), opts ...Option) *Client {
	t.Helper()
	c, err := openServers(url, func(*redis.Options) func(context.Context, string, string) (net.Conn, error) { return dial }, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
