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

// Transport is an [http.RoundTripper] that keeps requests within a limit. Make one with [New]. It is safe for concurrent
// use.
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

// Option sets how a Transport behaves. An option that cannot be met makes [New] fail.
type Option func(*Transport) error

// WithBase sends requests through base in place of [http.DefaultTransport].
func WithBase(base http.RoundTripper) Option {
	return func(t *Transport) error {
		if base == nil {
			return errors.New("WithBase(nil); give a transport, or leave it out for http.DefaultTransport")
		}
		t.base = base
		return nil
	}
}

// WithKey counts requests under what key returns, such as the account that they are made for, in place of [Host]. An error,
// or an empty text, fails the request.
func WithKey(key func(*http.Request) (string, error)) Option {
	return func(t *Transport) error {
		if key == nil {
			return errors.New("WithKey(nil); give a function, or leave it out for the host")
		}
		t.key = key
		return nil
	}
}

// WithRequest lets change complete what is asked of the limiter: a cost, another limit, a [client.Request.Fallback]. req has one key
// and one limit. A change that leaves no key leaves the request out; an error fails it.
func WithRequest(change func(r *http.Request, req *client.Request) error) Option {
	return func(t *Transport) error {
		if change == nil {
			return errors.New("WithRequest(nil); give a function, or leave it out")
		}
		t.change = change
		return nil
	}
}

// WithLongestWait bounds how long a request waits for its turn in all; a minute without it, and 0 refuses at once what
// would have to wait.
func WithLongestWait(d time.Duration) Option {
	return func(t *Transport) error {
		if d < 0 {
			return fmt.Errorf("WithLongestWait(%v); give 0 to refuse at once, or more", d)
		}
		t.wait = d
		return nil
	}
}

// WithLongestBlock bounds for how long a response can block a key, whatever it says; ten minutes without it. With 0 nothing
// blocks.
func WithLongestBlock(d time.Duration) Option {
	return func(t *Transport) error {
		if d < 0 {
			return fmt.Errorf("WithLongestBlock(%v); give 0 to block nothing, or more", d)
		}
		t.block = d
		return nil
	}
}

// WithRetries repeats a request up to n times, each taken from the limit, that got 429, or 503, with a Retry-After or the
// like, if there is time to wait for that. A request whose body cannot be had again ([http.Request.GetBody]) is not repeated, nor one
// that got 503 and may have been carried out: only GET, HEAD, OPTIONS, TRACE, PUT and DELETE, or what has an Idempotency-Key.
// An OnceKey is for the first time alone.
func WithRetries(n int) Option {
	return func(t *Transport) error {
		if n < 1 {
			return fmt.Errorf("WithRetries(%d); give 1 or more, or leave it out", n)
		}
		t.retries = n
		return nil
	}
}

// OnError has f called where what a response says could not be kept on the server, in place of the log.
func OnError(f func(*http.Request, error)) Option {
	return func(t *Transport) error {
		if f == nil {
			return errors.New("OnError(nil); give a function, or leave it out for the log")
		}
		t.onError = f
		return nil
	}
}

// New returns a Transport that takes 1 from limit for each request, under the name, a | and the host, or what [WithKey]
// says: "partner|api.example.com:8443". Processes that use the same name share the limit. Redirects are requests of their
// own.
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

// Host returns the host and, if it is not the scheme's own, the port that a request goes to: "api.example.com",
// "[2001:db8::1]:8080".
//
// A host that can be written in several ways has one text: in lower case, without a dot at its end and without an IPv6 zone, an
// IPv4 address written as IPv6 as the IPv4 address, the port without leading zeros. Names are not looked up, and a name that is not
// ASCII is not encoded.
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

// ownPort is the port of a scheme.
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
			return response, nil // the caller sees what came
		}
		discard(response.Body)
		ask.OnceKey, ask.OnceTTL = "", 0 // which would pay for all of them
		r = again
		if err := adapter.Sleep(r.Context(), pause); err != nil {
			closeBody(r)
			return nil, err
		}
	}
}

// CloseIdleConnections closes those of the transport below, for [http.Client.CloseIdleConnections].
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// request is what is asked of the limiter.
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

// repeatable tells whether a request that got this response was not carried out, or does no harm a second time.
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

// discard reads what is left of a response, so that its connection can be used again; not for longer than a second, as a
// body may come slowly, or never end.
func discard(body io.ReadCloser) {
	end := time.AfterFunc(time.Second, func() { _ = body.Close() })
	_, _ = io.CopyN(io.Discard, body, 64<<10)
	if end.Stop() {
		_ = body.Close()
	}
}

// rewound is the request to send again, which has its body from the start.
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

// inTime tells whether there is time left to wait for d.
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
