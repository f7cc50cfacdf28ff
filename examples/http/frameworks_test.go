package frameworks

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v3"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func newLimiter(t *testing.T) *client.Client {
	t.Helper()
	build := redistest.Must[functions.Build](t)(functions.New(functions.WithPolicies(Items)))
	server := embedded.Run(t, embedded.WithLibrary(build.Text()), embedded.WithTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)))
	limiter := redistest.Must[*client.Client](t)(client.Open("redis://"+server.Addr(), client.WithTimeout(time.Minute)))
	t.Cleanup(func() { _ = limiter.Close() })
	return limiter
}

// serve serves a net/http handler until the test ends, and returns its URL.
func serve(t *testing.T, handler http.Handler, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

func serveFiber(t *testing.T, app *fiber.App, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	listener := redistest.Must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	ended := make(chan error, 1)
	go func() { ended <- app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		if err := app.Shutdown(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "http://" + listener.Addr().String()
}

func TestFrameworks(t *testing.T) {
	gin.SetMode(gin.TestMode)
	for _, tt := range []struct {
		name string
		url  func(t *testing.T, limiter *client.Client) string
		key  string // key on the Redis server
	}{
		{"chi", func(t *testing.T, limiter *client.Client) string {
			handler, err := Chi(limiter)
			return serve(t, handler, err)
		}, "items|route=/items/%7Bid%7D|address=127.0.0.1"},
		{"echo", func(t *testing.T, limiter *client.Client) string {
			handler, err := Echo(limiter)
			return serve(t, handler, err)
		}, "items|route=/items/:id|address=127.0.0.1"},
		{"gin", func(t *testing.T, limiter *client.Client) string {
			handler, err := Gin(limiter)
			return serve(t, handler, err)
		}, "items|route=/items/:id|address=127.0.0.1"},
		{"fiber", func(t *testing.T, limiter *client.Client) string {
			app, err := Fiber(limiter)
			return serveFiber(t, app, err)
		}, "items|address=127.0.0.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limiter := newLimiter(t)
			url := tt.url(t, limiter)
			for i, want := range []struct {
				purpose                         string
				status                          int
				body, contentType, limit, after string
			}{
				{"", 200, "item 1\n", "text/plain", `"items";r=1;t=30`, ""},
				{"prefetch;prerender", 429, "quota-exceeded", "application/problem+json", `"items";r=0;t=30`, "30"},
				{"", 200, "item 3\n", "text/plain", `"items";r=0;t=60`, ""},
				{"", 429, "quota-exceeded", "application/problem+json", `"items";r=0;t=30`, "30"},
			} {
				request := redistest.Must[*http.Request](t)(http.NewRequest("GET", url+"/items/"+string(rune('1'+i)), nil))
				request.Header.Set("Sec-Purpose", want.purpose)
				response := redistest.Must[*http.Response](t)(http.DefaultClient.Do(request))
				body, err := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if err != nil {
					t.Fatal(err)
				}
				h := response.Header
				if response.StatusCode != want.status || !strings.Contains(string(body), want.body) || strings.Contains(string(body), "item ") != (want.status == 200) ||
					!strings.HasPrefix(h.Get("Content-Type"), want.contentType) ||
					h.Get("RateLimit-Policy") != `"items";q=2` || h.Get("RateLimit") != want.limit || h.Get("Retry-After") != want.after {
					t.Errorf("request %d: %d %v %q, want %+v", i+1, response.StatusCode, h, body, want)
				}
			}
			result, err := limiter.Peek(context.Background(), client.For(tt.key, "@items", 0))
			if err != nil || result.Remaining != 0 {
				t.Errorf("under %q: %+v, %v, want nothing left", tt.key, result, err)
			}
		})
	}
}
