package httpcall_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/httpcall"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
	"github.com/ratelimit-functions/ratelimit/embedded"
)

// always returns a service that sends the same response to every request.
func always(status int, lines ...string) *base {
	b := &base{}
	b.respond = func(int, *http.Request) *http.Response { return b.response(status, lines...) }
	return b
}

// If the service asks one process to wait, all processes wait.
func TestBlocksForEverybody(t *testing.T) {
	for _, tt := range []struct {
		name  string
		to    *base
		opts  []httpcall.Option
		block time.Duration
	}{
		{"Retry-After", always(429, "Retry-After", "30"), nil, 30 * time.Second},
		{"of 503", always(503, "Retry-After", "30"), nil, 30 * time.Second},
		{"RateLimit", always(200, "RateLimit", `"x";r=0;t=20`), nil, 20 * time.Second},
		{"nothing said", always(429), nil, 0},
		{"now", always(429, "Retry-After", "0"), nil, 0},
		{"for too long", always(429, "Retry-After", "86400"), nil, 10 * time.Minute},
		{"for longer than is wanted", always(429, "Retry-After", "86400"), []httpcall.Option{httpcall.WithLongestBlock(time.Hour)}, time.Hour},
		{"not wanted", always(429, "Retry-After", "86400"), []httpcall.Option{httpcall.WithLongestBlock(0)}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limiter, server, _ := newLimiter(t, embedded.WithTime(noon))
			response := must[*http.Response](t)(newTransport(t, limiter, "100/s", tt.to, tt.opts...).RoundTrip(newRequest(t.Context(), t, "GET", site, nil)))
			if text, err := io.ReadAll(response.Body); err != nil || string(text) != "text" || tt.to.closed.Load() != 0 {
				t.Errorf("the response has the body %q, %v", text, err)
			}
			limitertest.WantBlocked(t, limiter, key, tt.block)
			other := newTransport(t, limiter, "100/s", &base{}, httpcall.WithLongestWait(0))
			_, err := other.RoundTrip(newRequest(t.Context(), t, "GET", site, nil))
			var limited *client.Error
			if limitertest.AsLimited(err, &limited) != (tt.block > 0) || limited != nil && limited.RetryAfter != tt.block {
				t.Errorf("another process got %v", err)
			}
			server.Advance(tt.block)
			must[*http.Response](t)(other.RoundTrip(newRequest(t.Context(), t, "GET", site, nil)))
		})
	}
}

// The block is stored even if the caller's context has ended in the meantime.
func TestBlocksForACallerThatHasGone(t *testing.T) {
	limiter, _, _ := newLimiter(t, embedded.WithTime(noon))
	ctx, cancel := context.WithCancel(t.Context())
	to := &base{}
	to.respond = func(int, *http.Request) *http.Response {
		cancel()
		return to.response(429, "Retry-After", "30")
	}
	must[*http.Response](t)(newTransport(t, limiter, "100/s", to).RoundTrip(newRequest(ctx, t, "GET", site, nil)))
	limitertest.WantBlocked(t, limiter, key, 30*time.Second)
}

// A Retry-After that ends before a block does not shorten the block. A longer Retry-After extends
// it.
func TestBlocksAreNotShortened(t *testing.T) {
	for _, tt := range []struct {
		said string
		want time.Duration
	}{{"5", 30 * time.Second}, {"30", 30 * time.Second}, {"60", time.Minute}} {
		limiter, _, _ := newLimiter(t, embedded.WithTime(noon))
		to := &base{}
		to.respond = func(int, *http.Request) *http.Response {
			limitertest.Check(t, limiter.Block(context.Background(), client.Block{For: 30 * time.Second}, key))
			return to.response(429, "Retry-After", tt.said)
		}
		must[*http.Response](t)(newTransport(t, limiter, "100/s", to).RoundTrip(newRequest(t.Context(), t, "GET", site, nil)))
		limitertest.WantBlocked(t, limiter, key, tt.want)
	}
}

func TestRetries(t *testing.T) {
	again := []httpcall.Option{httpcall.WithRetries(2)}
	text := func() io.Reader { return strings.NewReader("payload") } // http.NewRequest sets GetBody for this type, so the body can be sent again
	once := func() io.Reader { return io.MultiReader(strings.NewReader("payload")) }
	for _, tt := range []struct {
		name    string
		opts    []httpcall.Option
		method  string
		body    func() io.Reader
		status  int
		header  []string
		respond int // number of responses with tt.status; later responses have status 200
		sent    int64
		want    int
	}{
		{"without retries", nil, "GET", nil, 429, []string{"Retry-After", "0"}, 1, 1, 429},
		{"once again", again, "GET", nil, 429, []string{"Retry-After", "0"}, 1, 2, 200},
		{"to the end", again, "GET", nil, 429, []string{"Retry-After", "0"}, 9, 3, 429},
		{"a body that can be had again", again, "POST", text, 429, []string{"Retry-After", "0"}, 2, 3, 200},
		{"one that cannot", again, "POST", once, 429, []string{"Retry-After", "0"}, 1, 1, 429},
		{"503 of GET", again, "GET", nil, 503, []string{"Retry-After", "0"}, 1, 2, 200},
		{"503 of PUT", again, "PUT", text, 503, []string{"Retry-After", "0"}, 1, 2, 200},
		{"503 of POST", again, "POST", text, 503, []string{"Retry-After", "0"}, 1, 1, 503},
		{"503 of POST with a key", again, "POST", text, 503, []string{"Retry-After", "0"}, 1, 2, 200},
		{"nothing said", again, "GET", nil, 429, nil, 1, 1, 429},
		{"another status", again, "GET", nil, 500, []string{"Retry-After", "0"}, 1, 1, 500},
		{"nothing left", again, "GET", nil, 200, []string{"RateLimit", `"x";r=0;t=1`}, 1, 1, 200},
		{"too late", again, "GET", nil, 429, []string{"Retry-After", "61"}, 1, 1, 429},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limiter, _, _ := newLimiter(t, embedded.WithTime(noon))
			to := &base{}
			to.respond = func(n int, _ *http.Request) *http.Response {
				if n > tt.respond {
					return to.response(200)
				}
				return to.response(tt.status, tt.header...)
			}
			var body io.Reader
			if tt.body != nil {
				body = tt.body()
			}
			r := newRequest(t.Context(), t, tt.method, site, body)
			if strings.HasSuffix(tt.name, "with a key") {
				r.Header.Set("Idempotency-Key", "1")
			}
			response := must[*http.Response](t)(newTransport(t, limiter, "100/d", to, tt.opts...).RoundTrip(r))
			if response.StatusCode != tt.want || to.n.Load() != tt.sent || to.closed.Load() != tt.sent-1 {
				t.Errorf("status %d after %d requests, %d responses closed; want %d after %d", response.StatusCode, to.n.Load(), to.closed.Load(), tt.want, tt.sent)
			}
			if body != nil && !slices.Equal(to.bodies, slices.Repeat([]string{"payload"}, int(tt.sent))) {
				t.Errorf("sent the bodies %q", to.bodies)
			}
			must[int64](t)(limiter.Unblock(t.Context(), key))
			if left := must[client.Result](t)(limiter.Peek(t.Context(), client.For(key, "100/d", 0))).Remaining; left != 100-tt.sent {
				t.Errorf("%d are left after %d requests", left, tt.sent)
			}
		})
	}
}

// A request with an OnceKey is charged once, however often its caller sends it, but each retry by
// the Transport is charged.
func TestRetriesAreTakenDespiteAnOnceKey(t *testing.T) {
	limiter, _, _ := newLimiter(t, embedded.WithTime(noon))
	transport := newTransport(t, limiter, "100/d", always(429, "Retry-After", "0"), httpcall.WithRetries(2),
		httpcall.WithRequest(func(_ *http.Request, req *client.Request) error {
			req.OnceKey, req.OnceTTL = "once", time.Minute
			return nil
		}))
	for range 2 {
		must[*http.Response](t)(transport.RoundTrip(newRequest(t.Context(), t, "GET", site, nil)))
	}
	if left := must[client.Result](t)(limiter.Peek(t.Context(), client.For(key, "100/d", 0))).Remaining; left != 95 {
		t.Errorf("%d are left, want 95: one for both requests, and two for the repetitions of each", left)
	}
}

// A retry waits as long as the response says, even if no key is blocked. Canceling the context
// stops the wait.
func TestRetriesWait(t *testing.T) {
	limiter, _, _ := newLimiter(t)
	to := &base{}
	to.respond = func(n int, _ *http.Request) *http.Response {
		if n > 1 {
			return to.response(200)
		}
		return to.response(429, "Retry-After", "1")
	}
	began := time.Now()
	must[*http.Response](t)(newTransport(t, limiter, "100/s", to, httpcall.WithRetries(1), httpcall.WithLongestBlock(0)).RoundTrip(newRequest(t.Context(), t, "GET", site, nil)))
	if waited := time.Since(began); waited < time.Second || to.n.Load() != 2 {
		t.Errorf("%d requests in %v", to.n.Load(), waited)
	}

	ctx, cancel := context.WithCancel(t.Context())
	to = &base{}
	to.respond = func(int, *http.Request) *http.Response {
		time.AfterFunc(10*time.Millisecond, cancel)
		return to.response(429, "Retry-After", "50")
	}
	var closed atomic.Int64
	r := newRequest(ctx, t, "POST", site, &body{Reader: strings.NewReader("x"), closed: &closed})
	r.GetBody = func() (io.ReadCloser, error) { return &body{Reader: strings.NewReader("x"), closed: &closed}, nil }
	_, err := newTransport(t, limiter, "100/s", to, httpcall.WithRetries(1)).RoundTrip(r)
	if !errors.Is(err, context.Canceled) || closed.Load() != 2 || to.closed.Load() != 1 {
		t.Errorf("%v; %d bodies of requests closed, want 2; %d of responses, want 1", err, closed.Load(), to.closed.Load())
	}
}

// If the wait would go beyond the context's deadline, the caller gets the response immediately.
func TestNoRetryBeyondTheDeadline(t *testing.T) {
	for _, tt := range []struct {
		after  string
		sent   int64
		status int
	}{
		{"31", 1, http.StatusTooManyRequests},
		{"0", 2, http.StatusOK},
	} {
		limiter, _, _ := newLimiter(t, embedded.WithTime(noon))
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		to := &base{}
		to.respond = func(n int, _ *http.Request) *http.Response {
			if n > 1 {
				return to.response(http.StatusOK)
			}
			return to.response(http.StatusTooManyRequests, "Retry-After", tt.after)
		}
		response, err := newTransport(t, limiter, "100/s", to, httpcall.WithRetries(1)).RoundTrip(newRequest(ctx, t, "GET", site, nil))
		if err != nil || response.StatusCode != tt.status || to.n.Load() != tt.sent || to.closed.Load() != tt.sent-1 {
			t.Errorf("Retry-After: %s gave %v, %v after %d requests, %d responses closed; want %d after %d",
				tt.after, response, err, to.n.Load(), to.closed.Load(), tt.status, tt.sent)
		}
		cancel()
	}
}

func TestHost(t *testing.T) {
	for _, tt := range []struct{ url, want string }{
		{"http://API.Example.com/items", "api.example.com"},
		{"http://api.example.com:80/", "api.example.com"},
		{"https://api.example.com:443/", "api.example.com"},
		{"https://api.example.com:80/", "api.example.com:80"},
		{"https://api.example.com:8443/", "api.example.com:8443"},
		{"http://[2001:db8::1]:8080/", "[2001:db8::1]:8080"},
		{"http://user:secret@api.example.com/", "api.example.com"},
		{"http://api.example.com./", "api.example.com"},
		{"http://API.example.com.:8080/", "api.example.com:8080"},
		{"http://api.example.com:/", "api.example.com"},
		{"http://api.example.com:080/", "api.example.com"},
		{"http://api.example.com:000000000080/", "api.example.com"},
		{"https://api.example.com:00443/", "api.example.com"},
		{"https://api.example.com:08443/", "api.example.com:8443"},
		{"https://api.example.com:00/", "api.example.com:0"},
		{"ws://api.example.com:080/", "api.example.com:80"},
		{"http://api.example.com:99999999999999999999/", "api.example.com:99999999999999999999"},
		{"http://127.0.0.1:080/", "127.0.0.1"},
		{"http://127.0.0.1./", "127.0.0.1"},
		{"http://[::ffff:127.0.0.1]/", "127.0.0.1"},
		{"http://[::FFFF:7f00:1]:8080/", "127.0.0.1:8080"},
		{"http://[::ffff:127.0.0.1%25lo]/", "127.0.0.1"},
		{"http://[2001:DB8:0::0:1]:080/", "[2001:db8::1]"},
		{"http://[2001:db8::1%25eth0]:8080/", "[2001:db8::1]:8080"},
		{"http://:8080/", ":8080"},
	} {
		if got, err := httpcall.Host(newRequest(t.Context(), t, "GET", tt.url, nil)); got != tt.want || err != nil {
			t.Errorf("%s: %q, %v, want %s", tt.url, got, err, tt.want)
		}
	}
	for _, url := range []string{"/items", "http://:80/", "http://./"} {
		if got, err := httpcall.Host(newRequest(t.Context(), t, "GET", url, nil)); err == nil || err.Error() != "the request names no host" {
			t.Errorf("%s: %q, %v, want an error", url, got, err)
		}
	}
	if got, err := httpcall.Host(&http.Request{}); err == nil {
		t.Errorf("without a URL: %q", got)
	}
}

// Each host has its own limit, unless WithKey selects another key. Excluded requests are not
// counted.
func TestKeys(t *testing.T) {
	limiter, _, _ := newLimiter(t, embedded.WithTime(noon))
	to := &base{}
	send := func(transport *httpcall.Transport, url string, lines ...string) error {
		r := newRequest(t.Context(), t, "GET", url, nil)
		for i := 0; i < len(lines); i += 2 {
			r.Header.Set(lines[i], lines[i+1])
		}
		_, err := transport.RoundTrip(r)
		return err
	}
	refuse := httpcall.WithLongestWait(0)
	byHost := newTransport(t, limiter, "1/h", to, refuse)
	limitertest.Check(t, errors.Join(send(byHost, "http://a.example"), send(byHost, "http://b.example")))
	if send(byHost, "http://a.example/x") == nil {
		t.Error("a second request to one host was sent")
	}
	byAccount := newTransport(t, limiter, "1/h", to, refuse, httpcall.WithKey(func(r *http.Request) (string, error) { return r.Header.Get("X-Account"), nil }))
	limitertest.Check(t, send(byAccount, "http://a.example", "X-Account", "7"))
	if send(byAccount, "http://b.example", "X-Account", "7") == nil {
		t.Error("a second request of one account was sent")
	}
	if err := send(byAccount, "http://b.example"); err == nil || !strings.Contains(err.Error(), "the key of the request is empty; have WithKey return one, or an error") {
		t.Error(err)
	}
	if err := send(byHost, "/items"); err == nil || !strings.Contains(err.Error(), "the request names no host") {
		t.Error(err)
	}
	change := func(change func(req *client.Request)) httpcall.Option {
		return httpcall.WithRequest(func(_ *http.Request, req *client.Request) error { change(req); return nil })
	}
	limitertest.Check(t, send(newTransport(t, limiter, "1/h", to, change(func(req *client.Request) { req.Keys = nil })), "http://a.example"))
	err := send(newTransport(t, limiter, "1/h", to, change(func(req *client.Request) { req.UpTo, req.Costs = true, []int64{0} })), "http://a.example")
	if err == nil || !strings.Contains(err.Error(), "leave UpTo false") {
		t.Error(err)
	}
}

// The body is closed even if no request was sent.
func TestClosesTheBody(t *testing.T) {
	limiter, _, _ := newLimiter(t)
	no := errors.New("no account")
	var closed atomic.Int64
	transport := newTransport(t, limiter, "1/s", &base{}, httpcall.WithKey(func(*http.Request) (string, error) { return "", no }))
	_, err := transport.RoundTrip(newRequest(t.Context(), t, "POST", site, &body{Reader: strings.NewReader("x"), closed: &closed}))
	if !errors.Is(err, no) || closed.Load() != 1 {
		t.Errorf("%v; closed %d times", err, closed.Load())
	}
}

// If a block cannot be stored, WithOnError receives the error and the caller still gets the response.
func TestBlockFails(t *testing.T) {
	limiter, server, _ := newLimiter(t)
	to := &base{}
	to.respond = func(int, *http.Request) *http.Response {
		_ = server.Close()
		return to.response(429, "Retry-After", "30")
	}
	var found error
	transport := must[*httpcall.Transport](t)(httpcall.New(limiter, "partner", "1/s", httpcall.WithBase(to), httpcall.WithOnError(func(_ *http.Request, err error) { found = err })))
	response := must[*http.Response](t)(transport.RoundTrip(newRequest(t.Context(), t, "GET", site, nil)))
	var e *client.Error
	if response.StatusCode != 429 || !errors.As(found, &e) || e.Op != "block" {
		t.Errorf("%d, %v", response.StatusCode, found)
	}
}

type idle struct {
	base
	closed bool
}

func (i *idle) CloseIdleConnections() { i.closed = true }

func TestCloseIdleConnections(t *testing.T) {
	limiter, _, _ := newLimiter(t)
	to := &idle{}
	(&http.Client{Transport: newTransport(t, limiter, "1/s", to)}).CloseIdleConnections()
	if !to.closed {
		t.Error("the transport below was not told")
	}
	newTransport(t, limiter, "1/s", &base{}).CloseIdleConnections() // the base has no such method
}

// structBase is a base transport that is not a pointer.
type structBase struct{}

func (structBase) RoundTrip(*http.Request) (*http.Response, error) {
	return (&base{}).response(http.StatusTeapot), nil
}

// The base may have any type that is a RoundTripper. Only a nil pointer, function and so on are refused.
func TestBaseOfAnyType(t *testing.T) {
	limiter, _, _ := newLimiter(t)
	response := must[*http.Response](t)(newTransport(t, limiter, "1/s", structBase{}).RoundTrip(newRequest(t.Context(), t, "GET", site, nil)))
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusTeapot {
		t.Errorf("status %d", response.StatusCode)
	}
	var none *http.Transport
	if _, err := httpcall.New(limiter, "a", "1/s", httpcall.WithBase(none)); err == nil || !strings.Contains(err.Error(), "WithBase(nil)") {
		t.Errorf("a nil *http.Transport: %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	limiter, _, _ := newLimiter(t)
	twice := func(opt httpcall.Option) httpcall.Option {
		return func(t *httpcall.Transport) error { return cmp.Or(opt(t), opt(t)) }
	}
	for _, tt := range []struct {
		limiter *client.Client
		name    string
		limit   client.Limit
		opt     httpcall.Option
		want    string
	}{
		{nil, "a", "1/s", httpcall.WithRetries(1), "the limiter is a nil *client.Client; make one with client.Open or client.New"},
		{limiter, "", "1/s", httpcall.WithRetries(1), "the name is empty; give what is limited or called, such as api or partner"},
		{limiter, "a", "", httpcall.WithRetries(1), "the limit is empty; give one such as 100/m"},
		{limiter, "a", "1/s", nil, "an option is nil; leave it out"},
		{limiter, "a", "1/s", httpcall.WithBase(nil), "WithBase(nil)"},
		{limiter, "a", "1/s", httpcall.WithKey(nil), "WithKey(nil)"},
		{limiter, "a", "1/s", httpcall.WithRequest(nil), "WithRequest(nil)"},
		{limiter, "a", "1/s", httpcall.WithOnError(nil), "WithOnError(nil)"},
		{limiter, "a", "1/s", httpcall.WithLongestWait(-1), "WithLongestWait(-1ns); give 0 to refuse at once, or more"},
		{limiter, "a", "1/s", httpcall.WithLongestBlock(-1), "WithLongestBlock(-1ns); give 0 to block nothing, or more"},
		{limiter, "a", "1/s", httpcall.WithRetries(0), "WithRetries(0); give 1 or more, or leave it out"},
		{limiter, "a", "1/s", twice(httpcall.WithLongestWait(time.Second)), `WithLongestWait is given twice, as "1s" and as "1s"; give it once`},
		{limiter, "a", "1/s", twice(httpcall.WithLongestBlock(time.Second)), `WithLongestBlock is given twice, as "1s" and as "1s"; give it once`},
		{limiter, "a", "1/s", twice(httpcall.WithRetries(2)), `WithRetries is given twice, as "2" and as "2"; give it once`},
		{limiter, "a", "1/s", twice(httpcall.WithBase(http.DefaultTransport)), "WithBase is given twice; give it once"},
		{limiter, "a", "1/s", twice(httpcall.WithKey(httpcall.Host)), "WithKey is given twice; give it once"},
		{limiter, "a", "1/s", twice(httpcall.WithRequest(func(*http.Request, *client.Request) error { return nil })), "WithRequest is given twice; give it once"},
		{limiter, "a", "1/s", twice(httpcall.WithOnError(func(*http.Request, error) {})), "WithOnError is given twice; give it once"},
	} {
		transport, err := httpcall.New(tt.limiter, tt.name, tt.limit, tt.opt)
		if transport != nil || err == nil || !strings.HasPrefix(err.Error(), "ratelimit: httpcall.New: ") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
}

// Check returns an error for an invalid limit and for a policy that is not deployed.
func TestCheck(t *testing.T) {
	limiter, _, _ := newLimiter(t)
	for limit, want := range map[client.Limit]error{"100/m": nil, "3/min": limitertest.Code("BADLIMIT"), "@fre": limitertest.Code("NOPOLICY")} {
		transport := must[*httpcall.Transport](t)(httpcall.New(limiter, "partner", limit))
		if err := transport.Check(t.Context()); !limitertest.Is(err, want) {
			t.Errorf("%s: %v, want %v", limit, err, want)
		}
	}
}
