package embedded_test

import (
	"context"
	"fmt"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/redis/go-redis/v9"
)

// library is an example of a user's library. functions.Source() of this module is another.
const library = `#!lua name=quota

redis.register_function('quota_spend', function(keys, args)
    local spent = redis.call('INCR', keys[1])
    if spent == 1 then
        redis.call('PEXPIRE', keys[1], args[1])
    end
    return spent
end)
`

// Spend is the code under test. It uses only a Redis client.
func Spend(ctx context.Context, c redis.UniversalClient, user string, window time.Duration) (int64, error) {
	return c.FCall(ctx, "quota_spend", []string{"quota:" + user}, window.Milliseconds()).Int64()
}

// In a test, embedded.Run(t, ...) starts the server and closes it at the end.
func Example() {
	srv, err := embedded.Start(
		embedded.WithLibrary(library),
		embedded.WithTime(time.UnixMilli(1_700_000_000_000)),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer srv.Close()

	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer client.Close()

	for range 2 {
		fmt.Println(Spend(ctx, client, "ann", time.Minute))
	}
	srv.Advance(time.Minute) // without sleeping
	fmt.Println(client.PTTL(ctx, "quota:ann").Val())
	srv.Advance(time.Millisecond)
	fmt.Println(Spend(ctx, client, "ann", time.Minute))
	// Output:
	// 1 <nil>
	// 2 <nil>
	// 0s
	// 1 <nil>
}
