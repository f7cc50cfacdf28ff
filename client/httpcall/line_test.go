package httpcall

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// First come, first served; and nothing is kept of a line once it is empty.
func TestLine(t *testing.T) {
	server := embedded.Run(t, embedded.WithLibrary(functions.Source()), embedded.WithTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)))
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	limiter, err := client.New(rdb, client.WithTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan string, 10)
	transport, err := New(limiter, "partner", "100/s burst=1", WithBase(roundTripper(func(r *http.Request) (*http.Response, error) {
		sent <- r.URL.Path
		return httptest.NewRecorder().Result(), nil
	})), WithKey(func(*http.Request) (string, error) { return "k", nil }))
	if err != nil {
		t.Fatal(err)
	}
	waiting := func() int {
		transport.lines.mu.Lock()
		defer transport.lines.mu.Unlock()
		if l := transport.lines.byKey["partner|k"]; l != nil {
			return len(l.places)
		}
		return 0
	}
	ended := make(chan error, 10)
	for i, path := range []string{"/now", "/a", "/b", "/c", "/d", "/e"} {
		go func() {
			_, err := transport.RoundTrip(httptest.NewRequest(http.MethodGet, "http://api.example.com"+path, nil))
			ended <- err
		}()
		if i == 0 {
			<-ended
			continue
		}
		redistest.Eventually(t, "it stands in line", func() bool { return waiting() == i })
	}
	for _, want := range []string{"/now", "/a", "/b", "/c", "/d", "/e"} {
		if got := <-sent; got != want {
			t.Errorf("%s was sent, want %s", got, want)
		}
		server.Advance(10 * time.Millisecond)
	}
	for range 5 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if waiting() != 0 || len(transport.lines.byKey) != 0 {
		t.Errorf("%d still wait", waiting())
	}
}
