package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestStream checks that the client gets each event before the upstream sends the next. The
// estimate is charged first, and then corrected to the usage, which the proxy requests from the
// upstream.
func TestStream(t *testing.T) {
	got := make(chan bool)
	asked := ""
	c := start(t, func(w http.ResponseWriter, body string) {
		asked = body
		w.Header().Set("RateLimit", "the upstream's")
		w.Header().Set("RateLimit-Policy", "the upstream's")
		for _, part := range []string{hello, ": a comment\n\n", "event: x\r\nid: 1\r\ndata: {}\r\n\r\n"} {
			flush(w, part)
			select {
			case <-got:
			case <-t.Context().Done(): // the test has failed
			}
		}
		flush(w, again+usage40+done)
	})
	response := c.send(t.Context(), streamed)
	wantStatus(t, response, http.StatusOK,
		`RateLimit-Policy: "org";q=20000000, "team";q=1000000, "user";q=20000`,
		`RateLimit: "org";r=19999484;t=43200, "team";r=999484;t=86400, "user";r=19484;t=31`)
	for _, want := range []string{hello, ": a comment\n\n", "event: x\r\nid: 1\r\ndata: {}\r\n\r\n"} {
		part := make([]byte, len(want))
		if _, err := io.ReadFull(response.Body, part); err != nil || string(part) != want {
			t.Fatalf("%q, %v, want %q", part, err, want)
		}
		got <- true
	}
	if rest := read(response); rest != again+done {
		t.Errorf("%q", rest)
	}
	c.wantUsed(40)
	var sent map[string]any
	if err := json.Unmarshal([]byte(asked), &sent); err != nil || fmt.Sprint(sent) != "map[max_tokens:500 messages:[0123456789abcdef] stream:true stream_options:map[include_usage:true]]" {
		t.Errorf("the upstream got %s, %v", asked, err)
	}
	request := <-c.asked
	delete(request.Header, "User-Agent")
	if got := fmt.Sprint(request.Header); got != fmt.Sprintf("map[Accept-Encoding:[identity] Authorization:[Bearer sk-upstream] Content-Length:[%d] Content-Type:[application/json]]", len(asked)) {
		t.Errorf("the upstream got %v", got)
	}
}

// TestEnds checks the charge for each way in which a response can end. Unless a case says
// otherwise, the prompt counts as 16 tokens, and the estimate is 516.
func TestEnds(t *testing.T) {
	abort := func() { panic(http.ErrAbortHandler) }
	send := func(status int, text string) func(http.ResponseWriter, string) {
		return func(w http.ResponseWriter, _ string) {
			w.WriteHeader(status)
			fmt.Fprint(w, text)
		}
	}
	const answer = `{"choices":[{"message":{"content":"Hello"}}],"usage":{"total_tokens":700}}`
	for _, tt := range []struct {
		name, request string
		answer        func(w http.ResponseWriter, body string)
		status        int
		body          string
		used          int64
	}{
		{"no stream", plain, send(200, answer), 200, answer, 700},
		{"no stream and no usage", plain, send(200, `{"choices":[{}]}`), 200, `{"choices":[{}]}`, 516},
		{"an answer that is no JSON", plain, send(200, "hello"), 200, "hello", 516},
		{"an empty answer", plain, send(200, ""), 200, "", 516},
		{"no stream, cut off", plain, func(w http.ResponseWriter, _ string) {
			fmt.Fprint(w, "{")
			_ = http.NewResponseController(w).Flush()
			abort()
		}, 200, "{unexpected EOF", 0},
		{"two answers of the default length", `{"n":2,"messages":["0123456789abcdef0123456789abcde"]}`, send(200, ""), 200, "", 14 + 2000},
		{"the newer name", `{"max_tokens":5,"max_completion_tokens":500,"messages":["01"]}`, send(200, ""), 200, "", 516},
		{"the usage for the client", `{"stream":true,"stream_options":{"include_usage":true}}`, func(w http.ResponseWriter, _ string) { flush(w, hello+usage40+done) }, 200, hello + usage40 + done, 40},
		{"a stream that gives its length", streamed, func(w http.ResponseWriter, _ string) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Content-Length", fmt.Sprint(len(hello+usage40+done)))
			fmt.Fprint(w, hello+usage40+done)
		}, 200, hello + done, 40},
		{"usage in each event", streamed, func(w http.ResponseWriter, _ string) {
			flush(w, `data: {"choices":[{}],"usage":{"total_tokens":20}}`+"\n\n"+`data: {"choices":[{}],"usage":{"total_tokens":21}}`+"\n\n")
			abort()
		}, 200, `data: {"choices":[{}],"usage":{"total_tokens":20}}` + "\n\n" + `data: {"choices":[{}],"usage":{"total_tokens":21}}` + "\n\nunexpected EOF", 21},
		{"no usage", streamed, func(w http.ResponseWriter, _ string) { flush(w, hello+again+done) }, 200, hello + again + done, 18},
		{"no events", streamed, func(w http.ResponseWriter, _ string) { flush(w, "") }, 200, "", 516},
		{"an upstream that dies in its answer", streamed, func(w http.ResponseWriter, _ string) { flush(w, hello); abort() }, 200, hello + "unexpected EOF", 17},
		{"an upstream that dies before its answer", streamed, func(w http.ResponseWriter, _ string) { flush(w, ": wait\n\n"); abort() }, 200, ": wait\n\nunexpected EOF", 0},
		{"an upstream that dies before its response", streamed, func(http.ResponseWriter, string) { abort() }, 502, `{"error":{"code":"upstream_failed","message":"the upstream sends no response","type":"upstream_failed"}}` + "\n", 0},
		{"an error of the upstream", plain, send(500, "oh"), 500, "oh", 0},
		{"an error in a stream", streamed, func(w http.ResponseWriter, _ string) { flush(w, `data: {"error":{}}`+"\n\n") }, 200, `data: {"error":{}}` + "\n\n", 0},
		{"a stream without an empty line at its end", streamed, func(w http.ResponseWriter, _ string) { flush(w, strings.TrimSpace(hello)) }, 200, strings.TrimSpace(hello), 17},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := start(t, tt.answer)
			response := c.send(t.Context(), tt.request)
			wantStatus(t, response, tt.status)
			if got := read(response); got != tt.body {
				t.Errorf("%q, want %q", got, tt.body)
			}
			c.wantUsed(tt.used)
		})
	}
}

// TestHangUp checks that a client that hangs up is charged for the prompt and the tokens that it
// received, or for the estimate if it received none. The proxy must then cancel the request to the
// upstream.
func TestHangUp(t *testing.T) {
	for _, tt := range []struct {
		name  string
		parts string
		used  int64
	}{{"in the answer", hello + again, 18}, {"before the answer", ": wait\n\n", 516}, {"before the response", "", 516}} {
		t.Run(tt.name, func(t *testing.T) {
			var c *trial
			ctx, hangUp := context.WithCancel(t.Context())
			c = start(t, func(w http.ResponseWriter, _ string) {
				request := <-c.asked
				if tt.parts == "" {
					hangUp()
				} else {
					flush(w, tt.parts)
				}
				<-request.Context().Done()
			})
			if tt.parts == "" {
				request := redistest.Must[*http.Request](t)(http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(streamed)))
				request.Header.Set("Authorization", "Bearer sk-ann")
				if response, err := http.DefaultClient.Do(request); err == nil {
					_ = response.Body.Close()
					t.Error("a response although the client has hung up")
				}
			} else if _, err := io.ReadFull(c.send(ctx, streamed).Body, make([]byte, len(tt.parts))); err != nil {
				t.Fatal(err)
			}
			hangUp()
			c.wantUsed(tt.used)
		})
	}
}

// TestHangUpBeforeTheDecision checks that a client that hangs up before the decision is charged
// too.
func TestHangUpBeforeTheDecision(t *testing.T) {
	c := start(t, func(http.ResponseWriter, string) {})
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(streamed))
	request.Header.Set("Authorization", "Bearer sk-ann")
	c.proxy.ServeHTTP(httptest.NewRecorder(), request)
	c.served <- true
	c.wantUsed(516)
}

// TestServe checks what happens to streams when the program ends. Streams may finish within the
// grace period. Streams that last longer are cut off and settled.
func TestServe(t *testing.T) {
	for _, tt := range []struct {
		name  string
		grace time.Duration
		rest  string
		used  int64
	}{{"graceful", time.Hour, usage40 + done, 40}, {"cut off", 0, "", 17}} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			var c *trial
			c = start(t, func(w http.ResponseWriter, _ string) {
				flush(w, hello)
				<-ctx.Done()
				if tt.rest == "" {
					<-(<-c.asked).Context().Done()
				}
				flush(w, tt.rest)
			})
			listener := redistest.Must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
			served := make(chan error, 1)
			go func() { served <- serve(ctx, listener, c.proxy, tt.grace) }()
			c.url = "http://" + listener.Addr().String()
			response := c.send(t.Context(), streamed)
			redistest.Must[int](t)(io.ReadFull(response.Body, make([]byte, len(hello))))
			end()
			if err := <-served; err != nil {
				t.Error(err)
			}
			c.served <- true
			c.wantUsed(tt.used)
			if _, err := http.Get(c.url); err == nil {
				t.Error("still served")
			}
		})
	}
}

// TestBudgets checks that a request over a budget is refused with the time until it would be
// allowed, and charges nothing. Usage beyond the estimate must be charged, and the next requests
// must then be denied.
func TestBudgets(t *testing.T) {
	c := start(t, func(w http.ResponseWriter, _ string) {
		fmt.Fprint(w, `{"usage":{"total_tokens":30000}}`)
	})
	if got := read(c.send(t.Context(), plain)); got != `{"usage":{"total_tokens":30000}}` {
		t.Errorf("%q", got)
	}
	<-c.served
	response := c.send(t.Context(), plain)
	wantStatus(t, response, http.StatusTooManyRequests, "Content-Type: application/json",
		`RateLimit: "org";r=19970000;t=43200, "team";r=970000;t=86400, "user";r=0;t=631`, "Retry-After: 631") // 631 s: a debt of 10,000 and a cost of 516, at 1,000 a minute
	if got := read(response); got != `{"error":{"code":"rate_limit_exceeded","message":"the budget of the user is used up; try again in 631 s","type":"rate_limit_exceeded"}}`+"\n" {
		t.Error(got)
	}
	<-c.served
	response = c.sendAs(t.Context(), "sk-bob", `{"max_tokens":20000}`)
	wantStatus(t, response, http.StatusTooManyRequests, "Retry-After: ", `RateLimit: "org";r=19970000;t=43200, "team";r=1000000;t=0, "user";r=20000`)
	if got := read(response); !strings.Contains(got, "than the budget of the user ever allows at once; lower max_tokens") {
		t.Error(got)
	}
	<-c.served
	if len(c.asked) != 1 {
		t.Errorf("the upstream got %d requests, want 1", len(c.asked))
	}
}

// TestBatch checks that the jobs of an account with the class batch leave a fifth of each budget, and that
// more than the estimate is charged to them, too.
func TestBatch(t *testing.T) {
	c := start(t, func(w http.ResponseWriter, _ string) {
		fmt.Fprint(w, `{"usage":{"total_tokens":15900}}`)
	})
	wantStatus(t, c.sendAs(t.Context(), "sk-nightly", `{"max_tokens":15000}`), http.StatusOK)
	<-c.served
	response := c.sendAs(t.Context(), "sk-nightly", plain)
	wantStatus(t, response, http.StatusTooManyRequests, "Retry-After: 25") // 100 of the 516 are left above the fifth
	<-c.served
	if len(c.asked) != 1 {
		t.Errorf("the upstream got %d requests, want 1", len(c.asked))
	}
}

func TestRefusals(t *testing.T) {
	c := start(t, func(w http.ResponseWriter, _ string) { t.Error("the upstream is asked") })
	for _, tt := range []struct {
		key, body string
		status    int
		text      string
	}{
		{"", plain, 401, "the API key is missing or unknown"},
		{"sk-eve", plain, 401, "the API key is missing or unknown"},
		{"sk-ann", "hello", 400, "the body is no chat completion: invalid character"},
		{"sk-ann", `[]`, 400, "the body is no chat completion: json: cannot unmarshal array"},
		{"sk-ann", `{"max_tokens":"many"}`, 400, "the body is no chat completion: json: cannot unmarshal string"},
		{"sk-ann", `{"max_tokens":-1}`, 400, "n is 1 and max_tokens -1; give up to 1000 and up to 1073741824"},
		{"sk-ann", `{"max_tokens":1073741825}`, 400, "max_tokens 1073741825;"},
		{"sk-ann", `{"n":0}`, 400, "n is 0 and"},
		{"sk-ann", `{"n":1001}`, 400, "n is 1001 and"},
		{"sk-ann", `{"stream":1}`, 400, "the body is no chat completion"},
		{"sk-ann", strings.Repeat(" ", maxBody+1), 413, "request body too large"},
	} {
		response := c.sendAs(t.Context(), tt.key, tt.body)
		wantStatus(t, response, tt.status, "RateLimit: ")
		if got := read(response); !strings.Contains(got, tt.text) {
			t.Errorf("%.80s: %s, want %s", tt.body, got, tt.text)
		}
		c.wantUsed(0)
	}
}

// TestWithoutADecision checks that requests without a decision are refused or, with the fallback
// FailOpen, served.
func TestWithoutADecision(t *testing.T) {
	previous := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	defer slog.SetDefault(previous)
	for name, tt := range map[string]struct {
		fallback client.Fallback
		status   int
		fields   []string
	}{
		"an error": {client.ReturnError, 503, []string{"Retry-After: 5", "RateLimit: "}},
		"closed":   {client.FailClosed, 503, []string{"Retry-After: 5", "RateLimit: "}},
		"open":     {client.FailOpen, 200, []string{"RateLimit: "}},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, func(w http.ResponseWriter, _ string) { fmt.Fprint(w, "{}") })
			gone := httptest.NewServer(nil)
			gone.Close()
			limiter := redistest.Must[*client.Client](t)(client.Open("redis://"+gone.Listener.Addr().String(), client.WithFallback(tt.fallback), client.WithTimeout(time.Minute)))
			defer limiter.Close()
			upstream := httptest.NewServer(http.HandlerFunc(pretend))
			defer upstream.Close()
			base := redistest.Must[*url.URL](t)(url.Parse(upstream.URL))
			c.url = c.serve(&proxy{limiter: limiter, upstream: base, accounts: map[string]account{"sk-ann": c.who}})
			wantStatus(t, c.send(t.Context(), plain), tt.status, tt.fields...)
		})
	}
}
