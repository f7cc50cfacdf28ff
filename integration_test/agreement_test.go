package integration_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/lua_test/model/agree"
	"github.com/ratelimit-functions/ratelimit/lua_test/model/generate"
)

// TestAgreement compares the library on every server with the model of the contract, using
// generated calls and clock moves. RATELIMIT_SOAK sets the number of steps on each server. The
// default is small, because each step waits for several replies, and the tests in lua_test run many
// more steps.
func TestAgreement(t *testing.T) {
	wanted := generate.Wanted(t, 500)
	build, err := generate.Library()
	if err != nil {
		t.Fatal(err)
	}
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := context.Background() // without a deadline, because a long run may take hours
		loadText(ctx, t, b, build.Text())
		stopActiveExpiry(ctx, t, b)
		databases := []agree.Server{moved{ctx, b, nodeOfVectors(ctx, t, b)}}
		if !b.Cluster { // a cluster has one database
			second := newClient(t, b, func(o *redis.UniversalOptions) { o.DB, o.Protocol, o.MaxRetries = 1, 2, -1 })
			databases = append(databases, moved{ctx, b, second.(*redis.Client)})
		}
		agree.Repeat(t, wanted, databases...)
	}, withClock)
}

// moved implements agree.Server for one database of a server, and sets the time with the backend's
// clock.
type moved struct {
	ctx  context.Context
	b    *backend.Backend
	node *redis.Client
}

func (m moved) SetTime(us int64) error { return m.b.SetTime(us) }

// Do sends a command. A nil reply is not an error.
func (m moved) Do(words ...string) (any, error) {
	args := make([]any, len(words))
	for i, word := range words {
		args[i] = word
	}
	reply, err := m.node.Do(m.ctx, args...).Result()
	var refused redis.Error
	switch {
	case errors.Is(err, redis.Nil):
		return nil, nil
	case errors.As(err, &refused):
		return nil, agree.Refusal(refused.Error())
	}
	return reply, err
}
