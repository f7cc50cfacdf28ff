package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
	"github.com/ratelimit-functions/ratelimit/policies"
)

// The tests run on the offline engine. With -redis, they run on a server that has the policies, no
// keys, and a clock that is stopped at noon. integration_test uses -redis.
var redisURL = flag.String("redis", "", "the `URL` of a server; without it, the tests run offline")

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func startEngine(t *testing.T) string {
	t.Helper()
	if *redisURL != "" {
		return *redisURL
	}
	file := redistest.Must[*policies.File](t)(policies.Read("policies.yaml"))
	build, err := file.Build()
	if err != nil {
		t.Fatal(err)
	}
	server := embedded.Run(t, embedded.WithLibrary(build.Text()), embedded.WithTime(noon), embedded.WithClusterRules())
	return "redis://" + server.Addr()
}

// trial is a proxy with a client and an upstream.
type trial struct {
	t       *testing.T
	proxy   *proxy
	url     string
	limiter *client.Client
	who     account
	served  chan bool // receives a value when the proxy has served a request
	asked   chan *http.Request
}

// start starts a proxy. answer implements its upstream. Each test has its own budgets.
func start(t *testing.T, answer func(w http.ResponseWriter, body string)) *trial {
	t.Helper()
	limiter := redistest.Must[*client.Client](t)(client.Open(startEngine(t), client.WithTimeout(time.Minute)))
	t.Cleanup(func() { _ = limiter.Close() })
	c := &trial{t: t, limiter: limiter, who: account{Org: t.Name(), Team: "search", User: "ann"}, served: make(chan bool, 100), asked: make(chan *http.Request, 100)}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		c.asked <- r
		answer(w, string(body))
	}))
	upstream.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(upstream.Close)
	base := redistest.Must[*url.URL](t)(url.Parse(upstream.URL))
	c.proxy = &proxy{limiter: limiter, upstream: base, key: "sk-upstream", answer: 1000, accounts: map[string]account{
		"sk-ann": c.who, "sk-bob": {Org: c.who.Org, Team: "sales", User: "bob"}, "sk-nightly": {Org: c.who.Org, Team: "search", User: "nightly", Class: "batch"},
	}}
	c.url = c.serve(c.proxy)
	return c
}

// serve serves a proxy, and returns its URL.
func (c *trial) serve(p *proxy) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { c.served <- true }()
		p.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	c.t.Cleanup(server.Close)
	return server.URL
}

// send sends a request from ann.
func (c *trial) send(ctx context.Context, body string) *http.Response {
	c.t.Helper()
	return c.sendAs(ctx, "sk-ann", body)
}

// try sends a request from ann, whose client may hang up.
func (c *trial) try(ctx context.Context, body string) (*http.Response, error) {
	request := redistest.Must[*http.Request](c.t)(http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/v1/chat/completions", strings.NewReader(body)))
	request.Header.Set("Authorization", "Bearer sk-ann")
	response, err := http.DefaultClient.Do(request)
	if err == nil {
		c.t.Cleanup(func() { _ = response.Body.Close() })
	}
	return response, err
}

func (c *trial) sendAs(ctx context.Context, key, body string) *http.Response {
	c.t.Helper()
	request := redistest.Must[*http.Request](c.t)(http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/v1/chat/completions", strings.NewReader(body)))
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("OpenAI-Organization", "another")
	response := redistest.Must[*http.Response](c.t)(http.DefaultClient.Do(request))
	c.t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// read reads the rest of a response. If the response is cut off, the text ends with the error.
func read(response *http.Response) string {
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return string(text) + err.Error()
	}
	return string(text)
}

// wantUsed waits until the proxy has served a request, and checks how many tokens of ann's budgets
// are used.
func (c *trial) wantUsed(want int64) {
	c.t.Helper()
	<-c.served
	res := redistest.Must[client.Result](c.t)(c.limiter.Peek(c.t.Context(), client.Request{Keys: c.who.keys(), Limits: []client.Limit{"@llm"}, Costs: []int64{0}, Each: true}))
	for i, each := range res.Each {
		if used := each.Limit - each.Remaining; used != want {
			c.t.Errorf("%d tokens of the %s are used, want %d", used, budgets[i], want)
		}
	}
}

func wantStatus(t *testing.T, response *http.Response, status int, fields ...string) {
	t.Helper()
	if response.StatusCode != status {
		t.Errorf("status %d, want %d", response.StatusCode, status)
	}
	for _, field := range fields {
		name, want, _ := strings.Cut(field, ": ")
		if got := response.Header.Values(name); len(got) > 1 || response.Header.Get(name) != want || want == "" && len(got) > 0 {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// flush sends part of a stream.
func flush(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	fmt.Fprint(w, text)
	_ = http.NewResponseController(w).Flush()
}

// Events of a stream, and requests. Each prompt counts as 16 tokens.
const (
	hello    = `data: {"choices":[{"delta":{"content":"Hello"}}],"usage":null}` + "\n\n"
	again    = `data: {"choices":[{"delta":{"content":" again"}}],"usage":null}` + "\n\n"
	usage40  = `data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":31,"total_tokens":40}}` + "\n\n"
	done     = "data: [DONE]\n\n"
	streamed = `{"stream":true,"max_tokens":500,"messages":["0123456789abcdef"]}`
	plain    = `{"max_tokens":500,"messages":["0123456789abcdef0123456789abcd"]}`
)
