package lua_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/lua_test/model/agree"
)

// database is another database of the embedded server, through a connection.
type database struct {
	offline
	rdb *redis.Client
}

// secondDatabase returns database 1 of a server.
func secondDatabase(t *testing.T, server offline) agree.Server {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), DB: 1, Protocol: 2})
	t.Cleanup(func() {
		if err := rdb.Close(); err != nil {
			t.Error(err)
		}
	})
	return database{server, rdb}
}

func (d database) Do(words ...string) (any, error) {
	args := make([]any, len(words))
	for i, word := range words {
		args[i] = word
	}
	reply, err := d.rdb.Do(context.Background(), args...).Result()
	if refused, ok := err.(redis.Error); ok && err != redis.Nil {
		return nil, agree.Refusal(refused.Error())
	}
	return reply, err
}
