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

// TestAgreement holds the library on every server against the model of the contract, with calls and clock moves that
// are generated. RATELIMIT_SOAK is how many steps to run on each.
func TestAgreement(t *testing.T) {
	wanted := generate.Wanted(t, 2000)
	build, err := generate.Library()
	if err != nil {
		t.Fatal(err)
	}
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := context.Background() // a long run has no end that is known before
		loadText(ctx, t, b, build.Text())
		stopActiveExpiry(ctx, t, b)
		server := moved{ctx, b, nodeOfVectors(ctx, t, b)}
		agree.Repeat(t, server, wanted)
	}, withClock)
}

// moved is one server of a backend, with the backend's clock, as package agree sees it.
type moved struct {
	ctx  context.Context
	b    *backend.Backend
	node *redis.Client
}

func (m moved) SetTime(us int64) error { return m.b.SetTime(us) }

func (m moved) Do(words ...string) (any, error) {
	reply, err := call(m.ctx, m.node, words)
	var refused redis.Error
	if errors.As(err, &refused) {
		return nil, agree.Refusal(refused.Error())
	}
	return reply, err
}
