// Command limit decides for nginx whether to serve a request. nginx, configured by
// auth_request.conf, calls it before each request. It responds with 204 to allow the request and
// 403 to deny it.
//
//	REDIS_URL=redis://localhost:6379 go run ./examples/nginx
//
// Its responses have the header fields RateLimit and RateLimit-Policy, and also Retry-After if the
// request is denied. nginx copies these fields into its own responses.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/httplimit"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8081", "where nginx asks")
	limit := flag.String("limit", "100/m", "the limit of each address, or @policy")
	timeout := flag.Duration("timeout", 500*time.Millisecond, "how long a decision may take; without one, requests are let through")
	flag.Parse()
	limiter, err := client.Open(os.Getenv("REDIS_URL"), client.WithTimeout(*timeout))
	if err != nil {
		log.Fatal(err)
	}
	// All connections come from nginx, which puts the client's address into X-Forwarded-For.
	address := httplimit.Address(httplimit.WithTrustedProxies("X-Forwarded-For", "127.0.0.1", "::1"))
	within, err := httplimit.New(limiter, "nginx", client.Limit(*limit), address)
	if err != nil {
		log.Fatal(err)
	}
	switch err := within.Check(context.Background()); {
	case errors.Is(err, client.ErrUnavailable): // an outage ends; until then, requests are let through
		log.Print(err)
	case err != nil: // such as a wrong limit, or a server without the library
		log.Fatal(err)
	}
	allowed := within(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on %s", listener.Addr())
	log.Fatal(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		allowed.ServeHTTP(forNginx{w}, r)
	})))
}

// forNginx sends status 403 instead of 429, because auth_request treats 429 as an error.
type forNginx struct{ http.ResponseWriter }

func (w forNginx) WriteHeader(status int) {
	if status == http.StatusTooManyRequests {
		status = http.StatusForbidden
	}
	w.ResponseWriter.WriteHeader(status)
}
