package lua_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/lua_test/model/agree"
)

// database is another database of the embedded server, accessed through its own connection.
type database struct {
	offline
	rdb *redis.Client
}

// secondDatabase returns database 1 of server.
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

// TestDatabasesAreSeparate checks that keys of the same name in two databases have independent
// states, even right after a call on one of the keys was denied. The library serves all databases
// of a server and cannot find out which one a call uses, so it must not remember a key's state by
// the name of the key.
func TestDatabasesAreSeparate(t *testing.T) {
	server := offline{start(t)}
	other := secondDatabase(t, server)
	words := func(args ...string) []string { return append([]string{"FCALL", "ratelimit_take", "1"}, args...) }
	for _, c := range []struct {
		server agree.Server
		words  []string
		want   string
	}{
		{other, words("k", "fixed_window 100/h"), "[1 100 99 0 3600000 1]"},
		{server, words("k", "100/h", "COST", "100"), "[1 100 0 0 3600000 1]"},
		{server, words("k", "100/h"), "[0 100 0 35999 3599999 1]"},
		{other, words("k", "100/h"), "[1 100 98 0 72000 1]"},
	} {
		server.Server.SetTime(server.Time().Add(time.Millisecond))
		if got := textOf(c.server.Do(c.words...)); got != c.want {
			t.Errorf("%q: got %s, want %s", c.words, got, c.want)
		}
	}
	if got := textOf(other.Do("GET", "k")); got != "gcra" {
		t.Errorf("the key of the other database holds %s", got)
	}
}
