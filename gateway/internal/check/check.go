// Package check answers the subrequests that proxies send: 200 if a request is allowed, and 429 if
// it is denied.
package check

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/httplimit"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/remedy"
	"github.com/ratelimit-functions/ratelimit/internal/problem"
)

// Options configures a [Handler]. Limiter, Metrics and Log are required.
type Options struct {
	Limiter        *client.Client
	Metrics        *metrics.Metrics
	Log            *slog.Logger
	TrustedProxies []string // networks of the proxies whose X-Forwarded-For is read
	IPv6Prefix     int      // prefix length of the IPv6 networks that count as one address; 0 for the default of httplimit
}

// Handler answers /check/POLICY/KEY... and /deny403/check/POLICY/KEY... for requests with any method
// and body. docs/gateway.md describes the keys.
type Handler struct {
	Options
	address httplimit.Key
	logs    rate.Sometimes // limits the logging of errors
	mu      sync.RWMutex
	limits  map[string]limited // by policy and keys, as in the path
}

// limited is the handler for a path, with the words of its share.
type limited struct {
	http.Handler
	share
}

// A Handler caches at most mostLimits handlers, for paths of at most longestKept bytes. It creates
// other handlers for each request.
const (
	mostLimits  = 1000
	longestKept = 256
)

// New returns a Handler, or an error if a network is invalid.
func New(options Options) (*Handler, error) {
	var address []httplimit.AddressOption
	if len(options.TrustedProxies) > 0 {
		address = append(address, httplimit.WithTrustedProxies("X-Forwarded-For", options.TrustedProxies...))
	}
	if options.IPv6Prefix != 0 {
		address = append(address, httplimit.WithIPv6Prefix(options.IPv6Prefix))
	}
	h := &Handler{Options: options, address: httplimit.Address(address...), logs: rate.Sometimes{Interval: time.Second}, limits: map[string]limited{}}
	if _, err := httplimit.New(options.Limiter, "check", "1/s", h.address); err != nil {
		return nil, err
	}
	return h, nil
}

// Matches reports whether the handler serves this path. Do not serve such paths through a ServeMux:
// it redirects paths that are not clean, and a proxy needs a decision.
func Matches(path string) bool {
	return strings.HasPrefix(path, "/check/") || strings.HasPrefix(path, "/deny403/check/")
}

// outcome holds the error if a request gets no decision.
type outcome struct{ err error }

type outcomeKey struct{}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	path, denies403 := strings.CutPrefix(r.URL.EscapedPath(), "/deny403")
	policy, limit, err := h.limit(strings.TrimPrefix(path, "/check/"))
	if err != nil {
		h.Metrics.Decided("check", "unknown", "error", began)
		problem.Details{Status: http.StatusBadRequest, Detail: err.Error()}.Write(w)
		return
	}
	var got outcome
	answer := &recorder{ResponseWriter: w, outcome: &got, denies403: denies403}
	limit.ServeHTTP(answer, r.WithContext(context.WithValue(r.Context(), outcomeKey{}, &got)))
	if answer.held {
		w.Header().Del("Retry-After")
		refusal(policy, path, limit.pool, got.err).Write(w)
	}
	decision := "allowed"
	switch {
	case got.err != nil, answer.status == http.StatusServiceUnavailable, answer.status == http.StatusBadRequest:
		decision = "error"
	case answer.status != http.StatusOK:
		decision = "denied"
		h.Log.Debug("denied", "policy", policy)
	}
	h.Metrics.Decided("check", "@"+policy, decision, began)
	h.Metrics.Class("check", "@"+policy, limit.class, decision)
}

// refusal returns the response if the policy does not exist, lacks the class, or cannot be used with
// these keys or with the pool, which is "" if the path names none. The status is 400, because many
// proxies let a request through after a 5xx status.
func refusal(policy, path, pool string, err error) problem.Details {
	p := problem.Details{Status: http.StatusBadRequest, Reason: remedy.Code(err)}
	path = remedy.Cut(path)
	switch {
	case p.Reason == "NOPOLICY":
		p.Detail = fmt.Sprintf("there is no policy %s on the server; deploy it, or correct the path %s in the proxy", policy, path)
	case p.Reason == "BADLIMIT":
		p.Detail = fmt.Sprintf("the policy %s has leases (concurrency), which %s could never give back; name a policy that limits a rate, or call acquire and release", policy, path)
	case strings.Contains(err.Error(), "a usage key last"): // the library names the keys that a policy takes
		p.Detail = fmt.Sprintf("the policy %s has track, and %s gives no usage key; name a policy without track", policy, path)
	case pool != "":
		p.Detail = fmt.Sprintf("the policy %s has no guarantee and pool, and %s names a pool; name a policy that has them, or leave the pool out", policy, path)
	case p.Reason == "BADARGS": // the class: the server's text names those of the policy
		_, p.Detail, _ = strings.Cut(err.Error(), p.Reason+" ")
	default:
		p.Detail = fmt.Sprintf("the policy %s takes several keys, and %s gives one; name a policy that takes one, or add pool:NAME if it has a guarantee and a pool", policy, path)
	}
	return p
}

// recorder records the status. If denies403 is true, it changes 429 to 403. After a configuration
// error, it sends nothing and sets held, so that the handler can send another response.
type recorder struct {
	http.ResponseWriter
	outcome   *outcome
	status    int
	denies403 bool
	held      bool
}

func (r *recorder) Write(text []byte) (int, error) {
	if r.held {
		return len(text), nil
	}
	return r.ResponseWriter.Write(text)
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	err := r.outcome.err
	code := remedy.Code(err)
	r.held = code == "NOPOLICY" || code == "BADKEYS" || code == "BADLIMIT" || code == "BADARGS"
	if r.held {
		return
	}
	if r.denies403 && status == http.StatusTooManyRequests {
		status = http.StatusForbidden
	}
	r.ResponseWriter.WriteHeader(status)
}

func (h *Handler) limit(path string) (string, limited, error) {
	first, keys, _ := strings.Cut(path, "/")
	keys, _ = cutPath("/" + keys)
	policy, _ := url.PathUnescape(first) // cannot fail, because the server has already refused such paths
	if policy == "" {
		return "", limited{}, errors.New("the path names no policy; write /check/POLICY/KEY, as in /check/api/address")
	}
	given := first + keys
	h.mu.RLock()
	limit := h.limits[given]
	h.mu.RUnlock()
	if limit.Handler != nil {
		return policy, limit, nil
	}
	key, share, err := h.key(keys)
	if err != nil {
		return "", limited{}, err
	}
	middleware, err := httplimit.New(h.Limiter, policy, client.Limit("@"+policy), key, httplimit.WithRefuseOnError(time.Second),
		httplimit.WithOnError(h.failed), httplimit.WithRequest(share.change))
	if err != nil {
		return "", limited{}, err
	}
	limit = limited{middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })), share}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.limits) < mostLimits && len(given) <= longestKept {
		h.limits[given] = limit
	}
	return policy, limit, nil
}
