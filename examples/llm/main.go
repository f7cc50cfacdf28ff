// Command llm is a reverse proxy that limits the tokens of chat completions, for an API like
// OpenAI's. Organizations, teams and users have budgets, which policies.yaml defines.
// docs/budgets.md explains the proxy.
//
//	go run ./examples/llm -offline
//	REDIS_URL=redis://localhost:6379 UPSTREAM_KEY=sk-... go run ./examples/llm -accounts accounts.json
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "where clients connect")
	upstream := flag.String("upstream", "https://api.openai.com", "the API; its key is in UPSTREAM_KEY")
	accounts := flag.String("accounts", "examples/llm/accounts.json", "the `file` that says whose tokens each API key spends")
	answer := flag.Int64("answer", 1000, "the tokens of an answer, as an estimate for requests without max_tokens")
	offline := flag.Bool("offline", false, "try it with the offline engine and a pretend API")
	reserveAt := flag.String("gateway", "", "the `URL` of a ratelimit-gateway that reserves the tokens, in place of Redis, such as http://127.0.0.1:8080")
	flag.Parse()
	redisURL := os.Getenv("REDIS_URL")
	if *offline {
		redisURL, *upstream = startOffline()
	}
	var err error
	p := &proxy{key: os.Getenv("UPSTREAM_KEY"), answer: *answer}
	if *reserveAt != "" {
		p.gateway = &gateway{url: *reserveAt, timeout: 5 * time.Second}
	} else {
		p.limiter, err = client.Open(redisURL)
		check(err)
		check(p.limiter.Check(context.Background(), "@llm"))
	}
	p.upstream, err = url.Parse(*upstream)
	check(err)
	listener, err := net.Listen("tcp", *listen)
	check(err)
	fmt.Println("listening on", listener.Addr())
	p.accounts, err = readAccounts(*accounts)
	check(err)
	for _, a := range p.accounts {
		if a.Class != "" && p.gateway != nil {
			check(fmt.Errorf("%s: an account has the class %s, and a reservation has no class; remove it, or leave -gateway out", *accounts, a.Class))
		}
	}
	ended, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	check(serve(ended, listener, p, 30*time.Second))
	if p.limiter != nil {
		check(p.limiter.Close())
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func readAccounts(file string) (accounts map[string]account, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &accounts); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for key, a := range accounts {
		if key == "" || a.Org == "" || a.Team == "" || a.User == "" {
			return nil, fmt.Errorf("%s: the account of the key %q is %+v; give a key, an organisation, a team and a user", file, key, a)
		}
	}
	return accounts, nil
}

// serve serves p until ctx ends. After that, open streams may continue for up to grace before they
// are cut off. All estimates are settled before serve returns.
func serve(ctx context.Context, listener net.Listener, p *proxy, grace time.Duration) error {
	mux := http.NewServeMux()
	mux.Handle("POST /v1/chat/completions", p)
	streams, cut := context.WithCancel(context.Background())
	defer cut()
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return streams }}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	time.AfterFunc(grace, cut)
	return server.Shutdown(context.Background())
}
