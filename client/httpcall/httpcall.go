package httpcall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/internal/adapter"
)

// Transport is an [http.RoundTripper] that keeps requests within a limit. Make one with [New]. It
// is safe for concurrent use.
type Transport struct {
	limiter *client.Client
	name    string
	limit   client.Limit
	base    http.RoundTripper
	key     func(*http.Request) (string, error)
	change  func(*http.Request, *client.Request) error
	retries int
	wait    time.Duration
	block   time.Duration
	onError func(*http.Request, error)
}

// Option sets how a Transport behaves. [New] returns an error if an option is invalid.
type Option func(*Transport) error

// WithBase sends requests through base instead of [http.DefaultTransport].
func WithBase(base http.RoundTripper) Option {
	return func(t *Transport) error {
		if base == nil {
			return errors.New("WithBase(nil); give a transport, or leave it out for http.DefaultTransport")
		}
		t.base = base
		return nil
	}
}

// WithKey counts requests under the result of key, for example the account that they are for,
// instead of [Host]. If key returns an error or an empty string, the request fails.
func WithKey(key func(*http.Request) (string, error)) Option {
	return func(t *Transport) error {
		if key == nil {
			return errors.New("WithKey(nil); give a function, or leave it out for the host")
		}
		t.key = key
		return nil
	}
}

// WithRequest calls change to modify the limiter's request, for example with a cost, another limit
// or a [client.Request.Fallback]. req has one key and one limit. If change removes all keys, the
// HTTP request is not limited; if it returns an error, the request fails.
func WithRequest(change func(r *http.Request, req *client.Request) error) Option {
	return func(t *Transport) error {
		if change == nil {
			return errors.New("WithRequest(nil); give a function, or leave it out")
		}
		t.change = change
		return nil
	}
}

// WithLongestWait sets how long a request waits for its turn in total. The default is a minute.
// With 0, a request that would have to wait fails at once.
func WithLongestWait(d time.Duration) Option {
	return func(t *Transport) error {
		if d < 0 {
			return fmt.Errorf("WithLongestWait(%v); give 0 to refuse at once, or more", d)
		}
		t.wait = d
		return nil
	}
}

// WithLongestBlock sets how long a response can block a key at most. The default is ten minutes.
// With 0, responses do not block.
func WithLongestBlock(d time.Duration) Option {
	return func(t *Transport) error {
		if d < 0 {
			return fmt.Errorf("WithLongestBlock(%v); give 0 to block nothing, or more", d)
		}
		t.block = d
		return nil
	}
}

// WithRetries retries a request up to n times if it got 429, or 503, that says how long to wait,
// for example in Retry-After, and if there is time for that wait. Each retry is taken from the
// limit. A request is not retried if its body cannot be read again ([http.Request.GetBody]). After
// a 503 the request may have been executed, so only GET, HEAD, OPTIONS, TRACE, PUT and DELETE, and
// requests with an Idempotency-Key, are retried. An OnceKey applies only to the first attempt.
func WithRetries(n int) Option {
	return func(t *Transport) error {
		if n < 1 {
			return fmt.Errorf("WithRetries(%d); give 1 or more, or leave it out", n)
		}
		t.retries = n
		return nil
	}
}

// OnError calls f, instead of logging, if a block that a response asked for could not be stored on
// the server.
func OnError(f func(*http.Request, error)) Option {
	return func(t *Transport) error {
		if f == nil {
			return errors.New("OnError(nil); give a function, or leave it out for the log")
		}
		t.onError = f
		return nil
	}
}

// New returns a Transport that takes 1 unit from limit for each request. The key is name, a |, and
// the host or the result of [WithKey]: "partner|api.example.com:8443". Processes that use the same
// name share the limit. Each redirect is a separate request.
func New(limiter *client.Client, name string, limit client.Limit, opts ...Option) (*Transport, error) {
	t := &Transport{
		limiter: limiter, name: name, limit: limit, key: Host, base: http.DefaultTransport,
		wait: time.Minute, block: 10 * time.Minute,
		onError: func(r *http.Request, err error) {
			slog.WarnContext(r.Context(), "the limit of calls to another service", "error", err)
		},
	}
	if err := cmp.Or(adapter.Given(limiter, name, limit), adapter.Apply(t, opts)); err != nil {
		return nil, fmt.Errorf("ratelimit: httpcall.New: %w", err)
	}
	return t, nil
}

// Host returns the host of a request and, if it is not the default of the scheme, the port:
// "api.example.com", "[2001:db8::1]:8080".
//
// Different spellings of a host give the same text. It is in lower case, without a trailing dot and
// without an IPv6 zone; an IPv4 address written as IPv6 becomes the IPv4 address; the port has no
// leading zeros. Names are not resolved, and names that are not ASCII are not encoded.
func Host(r *http.Request) (string, error) {
	host, port := "", ""
	if r.URL != nil {
		host, port = strings.TrimSuffix(strings.ToLower(r.URL.Hostname()), "."), r.URL.Port()
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		host = addr.WithZone("").Unmap().String()
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if n, err := strconv.ParseUint(port, 10, 64); err == nil {
		port = strconv.FormatUint(n, 10)
	}
	if port != "" && port != ownPort[r.URL.Scheme] {
		host += ":" + port
	}
	if host == "" {
		return "", errors.New("the request names no host")
	}
	return host, nil
}

// ownPort is the default port of a scheme.
var ownPort = map[string]string{"http": "80", "https": "443"}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ask, err := t.request(r)
	if err != nil {
		closeBody(r)
		return nil, fmt.Errorf("ratelimit: httpcall: %w", err)
	}
	if len(ask.Keys) == 0 {
		return t.base.RoundTrip(r)
	}
	until := time.Now().Add(t.wait)
	for tries := 0; ; tries++ {
		if err := t.limiter.WaitRequest(r.Context(), ask, until); err != nil {
			closeBody(r)
			return nil, err
		}
		response, err := t.base.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		pause, said := told(response, time.Now())
		if said {
			if err := adapter.Block(r.Context(), t.limiter, min(pause, t.block), ask.Keys); err != nil {
				t.onError(r, err)
			}
		}
		if !said || tries == t.retries || !repeatable(r, response) || !inTime(r.Context(), pause, until) {
			return response, nil
		}
		again, err := rewound(r)
		if err != nil {
			return response, nil // the caller gets the response
		}
		discard(response.Body)
		ask.OnceKey, ask.OnceTTL = "", 0 // otherwise one charge would pay for all attempts
		r = again
		if err := adapter.Sleep(r.Context(), pause); err != nil {
			closeBody(r)
			return nil, err
		}
	}
}

// CloseIdleConnections closes the idle connections of the base transport, for
// [http.Client.CloseIdleConnections].
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// request returns the request for the limiter.
func (t *Transport) request(r *http.Request) (client.Request, error) {
	key, err := t.key(r)
	if err != nil {
		return client.Request{}, err
	}
	if key == "" {
		return client.Request{}, errors.New("the key of the request is empty; have WithKey return one, or an error")
	}
	ask := client.Request{Keys: []string{t.name + "|" + key}, Limits: []client.Limit{t.limit}}
	if t.change != nil {
		err = t.change(r, &ask)
	}
	return ask, err
}

// repeatable reports whether a request with this response was not executed, or is harmless to
// execute again.
func repeatable(r *http.Request, response *http.Response) bool {
	switch response.StatusCode {
	case http.StatusTooManyRequests:
		return true
	case http.StatusServiceUnavailable:
		switch r.Method {
		case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
			return true
		}
		return r.Header.Get("Idempotency-Key") != ""
	}
	return false
}

// discard reads the rest of a response, so that its connection can be reused. It stops after a
// second, because a body may be slow or endless.
func discard(body io.ReadCloser) {
	end := time.AfterFunc(time.Second, func() { _ = body.Close() })
	_, _ = io.CopyN(io.Discard, body, 64<<10)
	if end.Stop() {
		_ = body.Close()
	}
}

// rewound returns a request to send again, with its body from the start.
func rewound(r *http.Request) (*http.Request, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return r, nil
	}
	if r.GetBody == nil {
		return nil, errors.New("the body cannot be had again")
	}
	body, err := r.GetBody()
	if err != nil {
		return nil, err
	}
	again := *r
	again.Body = body
	return &again, nil
}

// inTime reports whether there is time left to wait for d.
func inTime(ctx context.Context, d time.Duration, until time.Time) bool {
	at := time.Now().Add(d)
	deadline, ok := ctx.Deadline()
	return !at.After(until) && (!ok || !at.After(deadline))
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}
