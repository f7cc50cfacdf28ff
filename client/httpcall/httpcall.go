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
	"github.com/ratelimit-functions/ratelimit/client/internal/outgoing"
	"github.com/ratelimit-functions/ratelimit/internal/sleep"
)

// Transport is an [http.RoundTripper] that keeps requests within a limit. Make one with [New]. It
// is safe for concurrent use.
type Transport struct {
	calls   outgoing.Calls[*http.Request]
	base    http.RoundTripper
	retries int
}

// An Option configures a Transport. [New] returns an error if an option is invalid,
// or given twice.
type Option func(*Transport) error

// once returns an Option that may be given once. values are its arguments that an error can show.
func once(name string, set Option, values ...any) Option {
	return func(t *Transport) error { return cmp.Or(t.calls.Once(name, values...), set(t)) }
}

// WithBase sends requests through base instead of [http.DefaultTransport].
func WithBase(base http.RoundTripper) Option {
	return once("WithBase", func(t *Transport) error {
		return adapter.Set(&t.base, base, "WithBase(nil); give a transport, or leave it out for http.DefaultTransport")
	})
}

// WithKey counts requests by the result of key, for example the account that a request is for,
// instead of [Host]. If key returns an error or an empty string, the request fails.
func WithKey(key func(*http.Request) (string, error)) Option {
	return once("WithKey", func(t *Transport) error {
		return adapter.Set(&t.calls.Key, key, "WithKey(nil); give a function, or leave it out for the host")
	})
}

// WithRequest sets a function that modifies the request to the limiter, for example to set a cost,
// another limit or a [client.Request.Fallback]. req has one key and one limit. If change removes
// all keys, the HTTP request is not limited; if it returns an error, the request fails.
func WithRequest(change func(r *http.Request, req *client.Request) error) Option {
	return once("WithRequest", func(t *Transport) error {
		return adapter.Set(&t.calls.Change, change, "WithRequest(nil); give a function, or leave it out")
	})
}

// WithLongestWait sets the longest total time that a request waits for its turn. The default is a
// minute. With 0, a request that would have to wait fails immediately.
func WithLongestWait(d time.Duration) Option {
	return once("WithLongestWait", func(t *Transport) error { return t.calls.LongestWait(d) }, d)
}

// WithLongestBlock sets the longest time for which a response can block a key. The default is ten
// minutes. With 0, responses do not block.
func WithLongestBlock(d time.Duration) Option {
	return once("WithLongestBlock", func(t *Transport) error { return t.calls.LongestBlock(d) }, d)
}

// WithRetries retries a request up to n times. It retries after a 429 or 503 response that says how
// long to wait, for example in Retry-After, if there is time for that wait. Each retry is charged
// to the limit. A request is not retried if its body cannot be read again ([http.Request.GetBody]).
// After a 503 the request may have been executed, so only GET, HEAD, OPTIONS, TRACE, PUT and
// DELETE, and requests with an Idempotency-Key, are retried. An OnceKey applies only to the first
// attempt.
func WithRetries(n int) Option {
	return once("WithRetries", func(t *Transport) error {
		if n < 1 {
			return fmt.Errorf("WithRetries(%d); give 1 or more, or leave it out", n)
		}
		t.retries = n
		return nil
	}, n)
}

// WithOnError calls f, instead of logging the error, if the Transport could not block a key for the
// time that a response asks for.
func WithOnError(f func(*http.Request, error)) Option {
	return once("WithOnError", func(t *Transport) error {
		return adapter.Set(&t.calls.OnError, f, "WithOnError(nil); give a function, or leave it out for the log")
	})
}

// New returns a Transport that takes 1 unit from limit for each request. The key consists of name,
// the character | and the host or the result of [WithKey], as in "partner|api.example.com:8443".
// Processes that use the same name share the limit. Each redirect is a separate request.
func New(limiter client.Limiter, name string, limit client.Limit, opts ...Option) (*Transport, error) {
	t := &Transport{
		calls: outgoing.New[*http.Request](limiter, name, limit, "the key of the request is empty; have WithKey return one, or an error"),
		base:  http.DefaultTransport,
	}
	t.calls.Key = Host
	t.calls.OnError = func(r *http.Request, err error) {
		slog.WarnContext(r.Context(), "the limit of calls to another service", "error", err)
	}
	if err := cmp.Or(t.calls.Given(), adapter.Apply(t, opts)); err != nil {
		return nil, fmt.Errorf("ratelimit: httpcall.New: %w", err)
	}
	return t, nil
}

// Check returns nil if the servers are ready and accept the limit of New, as [client.Client.Check]
// does. Call it when the program starts, because New does not contact a server. Check does not
// check limits that only [WithRequest] sets: pass them to client.Client.Check.
func (t *Transport) Check(ctx context.Context) error { return t.calls.Check(ctx) }

// Host returns the host of a request and, if it is not the default of the scheme, the port:
// "api.example.com", "[2001:db8::1]:8080".
//
// Different spellings of a host give the same result. It is in lower case, without a trailing dot
// and without an IPv6 zone; an IPv4 address written as IPv6 becomes the IPv4 address; the port has
// no leading zeros. Names are not resolved, and names that are not ASCII are not encoded.
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

// ownPort maps a scheme to its default port.
var ownPort = map[string]string{"http": "80", "https": "443"}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	req, err := t.calls.Request(r)
	if err != nil {
		closeBody(r)
		return nil, fmt.Errorf("ratelimit: httpcall: %w", err)
	}
	if len(req.Keys) == 0 {
		return t.base.RoundTrip(r)
	}
	until := t.calls.Until()
	for tries := 0; ; tries++ {
		if err := t.calls.Wait(r.Context(), req, until); err != nil {
			closeBody(r)
			return nil, err
		}
		response, err := t.base.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		pause, ok := requestedWait(response, time.Now())
		if ok {
			t.calls.Block(r.Context(), r, req, pause)
		}
		if !ok || tries == t.retries || !repeatable(r, response) || !inTime(r.Context(), pause, until) {
			return response, nil
		}
		retry, err := withBody(r)
		if err != nil {
			return response, nil // no retry: the caller gets the response
		}
		discard(response.Body)
		req.OnceKey, req.OnceTTL = "", 0 // otherwise one charge would pay for all attempts
		r = retry
		if err := sleep.For(r.Context(), pause); err != nil {
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

// repeatable reports whether r can be sent again: the response means that r was not executed, or
// executing r twice is harmless.
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

// discard reads the rest of a response, so that its connection can be reused. It stops after 64 KiB
// or a second, because a body may be long, slow or endless.
func discard(body io.ReadCloser) {
	end := time.AfterFunc(time.Second, func() { _ = body.Close() })
	_, _ = io.CopyN(io.Discard, body, 64<<10)
	if end.Stop() {
		_ = body.Close()
	}
}

// withBody returns r, or a copy of r with the body from its beginning, to be sent again.
func withBody(r *http.Request) (*http.Request, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return r, nil
	}
	if r.GetBody == nil {
		return nil, errors.New("the body cannot be read again")
	}
	body, err := r.GetBody()
	if err != nil {
		return nil, err
	}
	retry := *r
	retry.Body = body
	return &retry, nil
}

// inTime reports whether a wait of d ends before until and before the deadline of ctx.
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
