package httplimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/internal/adapter"
	"github.com/ratelimit-functions/ratelimit/client/internal/seldom"
)

// Option sets how the middleware behaves. An option that cannot be met makes [New] fail.
type Option func(*middleware) error

// Skip leaves out requests for which skip returns true: they are not counted, and always let through. Given several times,
// each leaves out its own.
func Skip(skip func(*http.Request) bool) Option {
	return func(m *middleware) error {
		if skip == nil {
			return errors.New("Skip(nil); give a function, or leave it out")
		}
		m.skips = append(m.skips, skip)
		return nil
	}
}

// SkipMethods leaves out requests by their method, as in SkipMethods("HEAD", "OPTIONS").
func SkipMethods(methods ...string) Option {
	return Skip(func(r *http.Request) bool { return slices.Contains(methods, r.Method) })
}

// SkipPaths leaves out requests for exactly these paths, as in SkipPaths("/healthz", "/readyz").
func SkipPaths(paths ...string) Option {
	return Skip(func(r *http.Request) bool { return slices.Contains(paths, r.URL.Path) })
}

// WithRequest lets change complete what is asked of the limiter, by the HTTP request: another limit for who pays, a cost, a
// [client.Request.UsageKey]. req has one key and one limit, that of [New]. A change that leaves no key leaves the
// request out. An error is as one of the limiter, unless it is [ErrNoKey].
func WithRequest(change func(r *http.Request, req *client.Request) error) Option {
	return func(m *middleware) error {
		if change == nil {
			return errors.New("WithRequest(nil); give a function, or leave it out")
		}
		m.change = change
		return nil
	}
}

// Delay holds a request back that leaky_bucket admits with a wait, until its turn. Without it the handler is called at once.
// If the request's context ends before, the client gets 503 Service Unavailable; what was taken stays taken.
func Delay() Option {
	return func(m *middleware) error {
		m.delay = true
		return nil
	}
}

// RefuseOnError answers 503 Service Unavailable with Retry-After where there is no decision; without it the request is let
// through, unless its context has ended. retryAfter is at least a second.
func RefuseOnError(retryAfter time.Duration) Option {
	return func(m *middleware) error {
		if retryAfter < time.Second {
			return fmt.Errorf("RefuseOnError(%v); give at least a second, which is the unit of Retry-After", retryAfter)
		}
		m.refuse = retryAfter
		return nil
	}
}

// OnError has f called for each request without a decision, in place of the log. What becomes of the request is
// [RefuseOnError]'s. It is not called if a [Key] or [WithRequest] only returns that the request's context has ended.
func OnError(f func(*http.Request, error)) Option {
	return func(m *middleware) error {
		if f == nil {
			return errors.New("OnError(nil); give a function, or leave it out for the log")
		}
		m.onError = f
		return nil
	}
}

// WithXHeaders adds X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset, which many clients know. Reset is a Unix
// time in seconds, as GitHub has it.
func WithXHeaders() Option {
	return func(m *middleware) error {
		m.xHeaders = true
		return nil
	}
}

type middleware struct {
	limiter  *client.Client
	name     string
	limit    client.Limit
	key      Key
	policies map[client.Limit][]Policy

	skips    []func(*http.Request) bool
	change   func(*http.Request, *client.Request) error
	delay    bool
	refuse   time.Duration // 0: let through
	onError  func(*http.Request, error)
	xHeaders bool
}

// New returns middleware that takes 1 from limit for each request, under key, and refuses the request if that is not there.
//
// name is what the limit is called in the fields, and what the key on the server begins with. Use another for each
// middleware, or the same where several share one limit. limit is a text, such as "100/m", or a policy that is deployed with the
// library, such as "@api"; of a policy with several limits, [WithRequest] gives the other keys. Neither is checked
// before the first request: a wrong one shows as an error of the limiter.
//
// The call to the limiter has the values of the request's context, but does not end with it: the timeout of limiter bounds it
// ([client.WithTimeout]). So a client that hangs up is counted as well.
func New(limiter *client.Client, name string, limit client.Limit, key Key, opts ...Option) (func(http.Handler) http.Handler, error) {
	log := seldom.Log("no decision on a request")
	m := &middleware{
		limiter: limiter, name: name, limit: limit, key: key,
		onError: func(r *http.Request, err error) { log(r.Context(), err) },
	}
	if err := cmp.Or(adapter.Given(limiter, name, limit), checkName(name), keys.Check("New", key.key), adapter.Apply(m, opts)); err != nil {
		return nil, fmt.Errorf("ratelimit: httplimit.New: %w", err)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(next, w, r) })
	}, nil
}

func (m *middleware) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	for _, skip := range m.skips {
		if skip(r) {
			next.ServeHTTP(w, r)
			return
		}
	}
	ctx := r.Context()
	req, err := m.request(r)
	switch {
	case errors.Is(err, ErrNoKey):
		problem{Status: http.StatusBadRequest, Detail: err.Error()}.write(w)
		return
	case err != nil:
		if !errors.Is(err, ctx.Err()) { // a client that has gone is no fault of this server
			m.onError(r, err)
		}
		m.undecided(next, w, r, m.refuse)
		return
	case len(req.Keys) == 0:
		next.ServeHTTP(w, r)
		return
	}
	result, err := m.limiter.Take(context.WithoutCancel(ctx), req) // a client that hangs up pays, too
	switch {
	case err != nil:
		m.onError(r, err)
		m.undecided(next, w, r, m.refuse)
		return
	case result.Source == client.SourcePolicy:
		m.onError(r, result.Err)
		m.undecided(next, w, r, result.RetryAfter)
		return
	}
	charge := m.newCharge(w.Header(), req, result)
	if !result.Allowed {
		m.deny(w, req, result)
		return
	}
	if m.delay && result.RetryAfter > 0 && adapter.Sleep(ctx, result.RetryAfter) != nil {
		w.Header().Set("Retry-After", fmt.Sprint(seconds(result.RetryAfter)))
		problem{Status: http.StatusServiceUnavailable, Detail: "the request waited for its turn for as long as it may take"}.write(w)
		return
	}
	defer charge.fields.end()
	next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, chargeOf(m.name), charge)))
}

// request is what is asked of the limiter.
func (m *middleware) request(r *http.Request) (client.Request, error) {
	key, err := m.key.key.Of(r)
	if err != nil {
		return client.Request{}, err
	}
	req := client.Request{Keys: []string{m.name + "|" + key}, Limits: []client.Limit{m.limit}}
	if m.change != nil {
		err = m.change(r, &req)
	}
	return req, err
}

func (m *middleware) deny(w http.ResponseWriter, req client.Request, result client.Result) {
	name, _ := m.policyOf(req, result)
	p := problem{
		Type:     "https://iana.org/assignments/http-problem-types#quota-exceeded",
		Title:    "Request cannot be satisfied as assigned quota has been exceeded",
		Status:   http.StatusTooManyRequests,
		Detail:   "the request asks for more than its limit ever allows",
		Violated: []string{name},
	}
	if result.RetryAfter != client.Never {
		after := seconds(result.RetryAfter)
		w.Header().Set("Retry-After", fmt.Sprint(after))
		p.Detail = fmt.Sprintf("try again in %d s", after)
	}
	p.write(w)
}

// undecided serves a request without a decision, or refuses it for a time above 0. A request whose context has ended is always
// refused, because its client may have ended it to get past the limit. There is nothing to tell in the fields.
func (m *middleware) undecided(next http.Handler, w http.ResponseWriter, r *http.Request, refuse time.Duration) {
	switch {
	case refuse > 0:
		w.Header().Set("Retry-After", fmt.Sprint(seconds(refuse)))
	case !adapter.Ended(r.Context()):
		next.ServeHTTP(w, r)
		return
	}
	problem{Status: http.StatusServiceUnavailable, Detail: "whether the request is within its limit could not be found out"}.write(w)
}

// seconds rounds up.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}
