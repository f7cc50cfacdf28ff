package httpcall_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/httpcall"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
)

// exampleLimiter returns a client for a server with the library. The server's clock is stopped.
var exampleLimiter = limitertest.Example

// call sends a request, and prints the result.
func call(c *http.Client, url string) {
	response, err := c.Get(url)
	var limited *client.Error
	switch {
	case errors.As(err, &limited):
		fmt.Println("not sent, try again in", limited.RetryAfter)
	case err != nil:
		fmt.Println(err)
	default:
		_ = response.Body.Close()
		fmt.Println("status", response.StatusCode)
	}
}

func ExampleNew() {
	limiter, stop := exampleLimiter()
	defer stop()
	partner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer partner.Close()

	// Without WithLongestWait a request waits for its turn, for up to a minute.
	transport, err := httpcall.New(limiter, "partner", "2/m", httpcall.WithLongestWait(0))
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := transport.Check(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	caller := &http.Client{Transport: transport}
	defer caller.CloseIdleConnections()
	for range 3 {
		call(caller, partner.URL)
	}
	// Output:
	// status 200
	// status 200
	// not sent, try again in 30s
}

// The service tells one process to wait, and all processes wait.
func ExampleTransport() {
	limiter, stop := exampleLimiter()
	defer stop()
	partner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "20")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer partner.Close()
	for range 2 {
		transport, err := httpcall.New(limiter, "partner", "100/s", httpcall.WithLongestWait(0))
		if err != nil {
			fmt.Println(err)
			return
		}
		caller := &http.Client{Transport: transport}
		call(caller, partner.URL)
		caller.CloseIdleConnections()
	}
	// Output:
	// status 429
	// not sent, try again in 20s
}
