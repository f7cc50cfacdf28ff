package histories

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

const startUS = int64(1_700_000_000_000_123)

// offline returns a run on the offline engine with a library.
func offline(t *testing.T, text string) Config {
	srv := embedded.Run(t, embedded.WithLibrary(text), embedded.WithTime(time.UnixMicro(startUS)))
	return Config{
		Seed: 1, Ops: 2000, Lanes: 4, Actors: 3, Calls: 8, Most: 1, Timeout: time.Minute,
		Servers: Servers{
			StartUS: startUS, During: true, Builds: Builds(),
			SetTime: func(us int64) error { srv.SetTime(time.UnixMicro(us)); return nil },
			NewClient: func(dial Dialer) redis.UniversalClient {
				return redis.NewClient(&redis.Options{Addr: srv.Addr(), Dialer: dial, ContextTimeoutEnabled: true})
			},
		},
	}
}

func libraryText(t *testing.T) string {
	build, err := Library(Builds()[0])
	redistest.Require(t, err)
	return build.Text()
}

func TestOffline(t *testing.T) {
	report, err := Execute(context.Background(), offline(t, libraryText(t)))
	redistest.Require(t, err)
	t.Logf("%s", report)
	for _, text := range report.Impossible {
		t.Error(text)
	}
}
