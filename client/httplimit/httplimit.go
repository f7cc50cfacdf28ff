package httplimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/internal/adapter"
	"github.com/ratelimit-functions/ratelimit/client/key"
	"github.com/ratelimit-functions/ratelimit/internal/keytext"
	"github.com/ratelimit-functions/ratelimit/internal/problem"
	"github.com/ratelimit-functions/ratelimit/internal/sleep"
)

// An Option configures the middleware. [New] returns an error if an option is invalid, or if one other
// than [WithSkip] and [WithPolicies] is given twice.
type Option func(*middleware) error

// once returns an Option that may be given once. values are its arguments that an error can show.
func once(name string, set Option, values ...any) Option {
	return func(m *middleware) error { return cmp.Or(m.Once(name, values...), set(m)) }
}

// WithSkip excludes requests for which skip returns true: they are not counted, and always allowed. If
// WithSkip is given several times, a request is excluded if any of the functions returns true.
func WithSkip(skip func(*http.Request) bool) Option {
	return func(m *middleware) error {
		if skip == nil {
			return errors.New("WithSkip(nil); give a function, or leave it out")
		}
		m.skips = append(m.skips, skip)
		return nil
	}
}

// WithRequest sets a function that modifies the request to the limiter, for example to set another
// limit for paying users, a cost, a [client.Request.Class], or a [client.Request.UsageKey]. req has one key and one limit,
// that of [New]. If change removes all keys, the HTTP request is not limited. An error is treated
// as an error from the limiter, unless it is [key.ErrMissing].
func WithRequest(change func(r *http.Request, req *client.Request) error) Option {
	return once("WithRequest", func(m *middleware) error {
		return adapter.Set(&m.Change, change, "WithRequest(nil); give a function, or leave it out")
	})
}

// WithPenalty blocks the key of a denied request: first for first, each next time for twice as long, and
// for at most longest. A block is forgotten forget after its end. Requests during a block are denied, and
// do not make it longer. Retry-After is the end of the block. See [client.Client.Penalize] for the
// denials that are no offence. All times are whole milliseconds, up to 36500 days.
//
// Without WithPenalty, a denial by a policy that has a penalty of its own gets that.
//
// The key must be the caller's: its address or its API key. Whoever can name another's key, such as an
// account at a login, could lock the other out.
func WithPenalty(first, longest, forget time.Duration) Option {
	return once("WithPenalty", func(m *middleware) error { return m.SetPenalty(first, longest, forget) }, first, longest, forget)
}

// WithDelay makes requests wait for their turn if a leaky_bucket allows them only after a wait. Without
// WithDelay the handler is called immediately. If the request's context ends first, the client gets 503
// Service Unavailable; the units are not given back.
func WithDelay() Option {
	return once("WithDelay", func(m *middleware) error { return adapter.On(&m.delay) })
}

// WithRefuseOnError makes the middleware respond with 503 Service Unavailable and Retry-After if there
// is no decision. Without this option, a request without a decision is allowed, unless its context
// has ended. retryAfter must be at least a second.
func WithRefuseOnError(retryAfter time.Duration) Option {
	return once("WithRefuseOnError", func(m *middleware) error {
		if retryAfter < time.Second {
			return fmt.Errorf("WithRefuseOnError(%v); give at least a second, which is the unit of Retry-After", retryAfter)
		}
		m.refuse = retryAfter
		return nil
	}, retryAfter)
}

// WithRefuseMisconfigured makes the middleware respond with 500 Internal Server Error if there is no
// decision because of a [client.ErrMisconfigured], such as a wrong limit, which no retry can fix.
// Without this option, a request whose limit is wrong is treated as in an outage.
// [Middleware.Check] finds a wrong limit when the program starts.
func WithRefuseMisconfigured() Option {
	return once("WithRefuseMisconfigured", func(m *middleware) error { return adapter.On(&m.refuseMisconfigured) })
}

// WithOnError calls f for each request without a decision, instead of logging. It does not change the
// response; see [WithRefuseOnError]. f is not called if a [Key] or [WithRequest] fails only because the
// request's context has ended.
func WithOnError(f func(*http.Request, error)) Option {
	return once("WithOnError", func(m *middleware) error {
		return adapter.Set(&m.onError, f, "WithOnError(nil); give a function, or leave it out for the log")
	})
}

// WithXHeaders adds X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset, which many
// clients understand. Reset is a Unix time in seconds, as in GitHub's API.
func WithXHeaders() Option {
	return once("WithXHeaders", func(m *middleware) error { return adapter.On(&m.xHeaders) })
}

type middleware struct {
	adapter.Requests[*http.Request]
	policies            map[client.Limit][]Policy
	skips               []func(*http.Request) bool
	delay               bool
	refuse              time.Duration // 0: allow
	refuseMisconfigured bool
	onError             func(*http.Request, error)
	xHeaders            bool
}

// Middleware limits the requests to a handler. Make it with [New].
type Middleware func(next http.Handler) http.Handler

// Check returns nil if the servers are ready and accept the middleware's limit and the limits of
// [WithPolicies]. See [client.Client.Check]. Call it when the program starts, because New does not
// contact a server. Limits that only [WithRequest] sets are not checked: give them to
// client.Client.Check.
func (m Middleware) Check(ctx context.Context) error {
	l, ok := m(nil).(*limited)
	if !ok {
		return errors.New("ratelimit: httplimit: the Middleware was not made by New")
	}
	return l.Requests.Check(ctx, slices.Sorted(maps.Keys(l.policies))...)
}

type limited struct {
	*middleware
	next http.Handler
}

func (l *limited) ServeHTTP(w http.ResponseWriter, r *http.Request) { l.serve(l.next, w, r) }

// New returns middleware that takes 1 unit from limit for each request, under key, and denies the
// request if none is left.
//
// name identifies the limit in the response fields, and is the prefix of the key on the server. Use
// a different name for each middleware, or the same one if several share a limit. limit is text,
// such as "100/m", or a policy deployed with the library, such as "@api". For a policy with several
// limits, [WithRequest] adds the other keys. New does not check whether limit is valid;
// [Middleware.Check] does.
//
// The call to the limiter uses the values of the request's context, but not its deadline or
// cancellation; the timeout of limiter bounds it ([client.WithTimeout]). So a client that hangs up
// is still counted.
func New(limiter client.Limiter, name string, limit client.Limit, key Key, opts ...Option) (Middleware, error) {
	m := &middleware{
		Requests: adapter.Requests[*http.Request]{Limiter: limiter, Name: name, Limit: limit, Key: key.key.Of},
		policies: map[client.Limit][]Policy{},
	}
	log := m.Log("no decision on a request")
	m.onError = func(r *http.Request, err error) { log(r.Context(), err) }
	if err := cmp.Or(m.Given(), checkName(name), keys.Check("New", key.key), adapter.Apply(m, opts)); err != nil {
		return nil, fmt.Errorf("ratelimit: httplimit.New: %w", err)
	}
	return func(next http.Handler) http.Handler { return &limited{m, next} }, nil
}

func (m *middleware) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	for _, skip := range m.skips {
		if skip(r) {
			next.ServeHTTP(w, r)
			return
		}
	}
	ctx := r.Context()
	req, err := m.Request(r)
	switch {
	case errors.Is(err, key.ErrMissing), errors.Is(err, keytext.ErrDiffer):
		problem.Details{Status: http.StatusBadRequest, Detail: err.Error()}.Write(w)
		return
	case err != nil:
		if !errors.Is(err, ctx.Err()) { // not reported if the client has hung up
			m.onError(r, err)
		}
		m.undecided(next, w, r, m.refuse, err)
		return
	case len(req.Keys) == 0:
		next.ServeHTTP(w, r)
		return
	}
	result, err := m.Take(ctx, req) // a client that hangs up is charged, too
	switch {
	case err != nil:
		m.onError(r, err)
		m.undecided(next, w, r, m.refuse, err)
		return
	case result.Source == "fallback":
		m.onError(r, result.Err)
		m.undecided(next, w, r, adapter.Refusal(result), result.Err)
		return
	}
	fields := m.newFields(w.Header())
	charge := adapter.NewCharge(m.Limiter, req, result, fields.set)
	fields.warn(m.Warning(ctx, req, result))
	if !result.Allowed {
		m.deny(w, req, result)
		return
	}
	if m.delay && result.RetryAfter > 0 && sleep.For(ctx, result.RetryAfter) != nil {
		w.Header().Set("Retry-After", fmt.Sprint(seconds(result.RetryAfter)))
		problem.Details{Status: http.StatusServiceUnavailable, Detail: "the request waited for its turn for as long as it may take"}.Write(w)
		return
	}
	defer fields.end()
	next.ServeHTTP(w, r.WithContext(adapter.WithCharge(ctx, m.Name, charge)))
}

func (m *middleware) deny(w http.ResponseWriter, req client.Request, result client.Result) {
	name, _ := m.policyOf(req, result)
	p := problem.Details{
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
	p.Write(w)
}

// undecided handles a request without a decision. err is the reason why there is none. The request
// is rejected if WithRefuseMisconfigured applies, or if refuse, the retry delay, is above 0. It is also
// rejected if its context has ended, because the client may have ended it to avoid the limit.
// Otherwise it is served. undecided writes no RateLimit fields.
func (m *middleware) undecided(next http.Handler, w http.ResponseWriter, r *http.Request, refuse time.Duration, err error) {
	switch {
	case m.refuseMisconfigured && errors.Is(err, client.ErrMisconfigured):
		problem.Details{Status: http.StatusInternalServerError, Detail: "the rate limit " + m.Name + " of this service is misconfigured; its log says what to correct"}.Write(w)
		return
	case refuse > 0:
		w.Header().Set("Retry-After", fmt.Sprint(seconds(refuse)))
	case !adapter.Ended(r.Context()):
		next.ServeHTTP(w, r)
		return
	}
	problem.Details{Status: http.StatusServiceUnavailable, Detail: "whether the request is within its limit could not be found out"}.Write(w)
}

// seconds rounds d up to whole seconds.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}
