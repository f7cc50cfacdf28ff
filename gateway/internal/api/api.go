// Package api serves the plain API: calls to the library in JSON, for programs without a Redis
// client. openapi.yaml describes the API.
package api

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/holds"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/remedy"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
	"github.com/ratelimit-functions/ratelimit/internal/problem"
)

// Prefix is the beginning of all paths.
const Prefix = "/v1/"

const mostBytes = 64 << 10

//go:embed openapi.yaml
var document []byte

// Options configures a handler. Limiter, Metrics and Log are required.
type Options struct {
	Limiter *client.Client
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Admin   bool     // serve only the operations for operators, instead of the others
	Token   string   // token that requests must have; "" for none
	Hosts   []string // names under which clients call the API, besides localhost and addresses
	AnyHost bool     // do not check the names, because browsers cannot connect

	Holds *holds.Holds // reservations; not used if Admin
}

type handler struct {
	Options
	logs rate.Sometimes // limits the logging of errors
}

// New returns the handler for the paths that begin with [Prefix]. It refuses requests that a
// browser sends for pages of other origins, because such a page could otherwise use up or reset
// limits. A page can give its own name the address of this machine, so that the page and the API
// have the same origin (DNS rebinding). Therefore, the name must be a known one, too.
func New(options Options) http.Handler {
	h := &handler{Options: options, logs: rate.Sometimes{Interval: time.Second}}
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		problem.Details{Status: http.StatusForbidden, Detail: "a page of another origin sent the request; call the API from a program"}.Write(w)
	}))
	return guard.Handler(h)
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead && !h.AnyHost && !known(r.Host, h.Hosts):
		problem.Details{Status: http.StatusForbidden, Detail: fmt.Sprintf("%.100q is not a known name of the gateway; call it by its address, or start it with --hosts and the name", r.Host)}.Write(w)
		return
	case h.Token != "" && !authorized(r, h.Token):
		w.Header().Set("WWW-Authenticate", "Bearer")
		problem.Details{Status: http.StatusUnauthorized, Detail: "the request lacks the token of --admin; send it as Authorization: Bearer TOKEN"}.Write(w)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, Prefix)
	if name == "openapi.yaml" && r.Method == http.MethodGet {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(document) // the client may have hung up
		return
	}
	op, found := operations[name]
	switch {
	case !found:
		problem.Details{Status: http.StatusNotFound, Detail: r.URL.Path + " is not a path of the API; " + Prefix + "openapi.yaml lists the paths"}.Write(w)
	case op.admin && !h.Admin:
		problem.Details{Status: http.StatusForbidden, Detail: r.URL.Path + " is served on the admin port only; start the gateway with --admin 127.0.0.1:8082, and call it there"}.Write(w)
	case !op.admin && h.Admin:
		problem.Details{Status: http.StatusNotFound, Detail: r.URL.Path + " is served on the port of --http, and not on the admin port"}.Write(w)
	case r.Method != http.MethodPost && !(op.get && r.Method == http.MethodGet):
		w.Header().Set("Allow", op.methods())
		problem.Details{Status: http.StatusMethodNotAllowed, Detail: r.URL.Path + " takes " + op.methods() + ", not " + r.Method}.Write(w)
	default:
		h.serve(w, r, name, op)
	}
}

// serve executes an operation. A client that hangs up is still charged. The limiter's timeout
// bounds the call.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, name string, op operation) {
	began := time.Now()
	body, err := read(w, r)
	var answer answer
	if err == nil {
		answer, err = op.call(context.WithoutCancel(r.Context()), h.Options, body)
	}
	name = cmp.Or(answer.policy, name)
	if err != nil {
		h.Metrics.Decided("api", name, "error", began)
		h.refuse(w, name, err)
		return
	}
	h.Metrics.Decided("api", name, answer.decision, began)
	h.Metrics.Class("api", name, answer.class, answer.decision)
	if answer.failed != nil {
		h.logs.Do(func() {
			h.Log.Error("a denial got no penalty", "source", "api", "name", name, "error", remedy.For(answer.failed))
		})
	}
	if answer.decision == "denied" {
		h.Log.Debug("denied", "source", "api", "name", name)
	}
	text, err := printable.Encode(answer.reply, "")
	if err != nil { // cannot happen with these replies
		h.refuse(w, name, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if answer.status != 0 {
		w.WriteHeader(answer.status)
	}
	_, _ = io.WriteString(w, text) // the client may have hung up
}

// refuse sends an error. It logs errors that the caller cannot correct, at most once a second.
func (h *handler) refuse(w http.ResponseWriter, name string, err error) {
	p := describe(err)
	if p.Status == http.StatusServiceUnavailable {
		h.logs.Do(func() { h.Log.Error("no decision", "source", "api", "name", name, "error", remedy.For(err)) })
	}
	p.Write(w)
}

// invalid is the error for a request that is not sent to a server. reason is the error code that
// the library would use.
type invalid struct {
	status       int
	reason, text string
}

func (i *invalid) Error() string { return i.text }

func read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.Method == http.MethodGet {
		return nil, nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBytes))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, &invalid{http.StatusRequestEntityTooLarge, "BADARGS", fmt.Sprintf("the body has more than %d bytes; send fewer keys in a call", mostBytes)}
	}
	if err != nil {
		return nil, bad("the body did not arrive (%v); send it at once", err)
	}
	return body, nil
}

func describe(err error) problem.Details {
	if own, ok := errors.AsType[*invalid](err); ok {
		return problem.Details{Status: own.status, Reason: own.reason, Detail: own.text}
	}
	detail := strings.TrimPrefix(remedy.For(err).Error(), "ratelimit: ")
	p := problem.Details{Status: http.StatusServiceUnavailable, Reason: "UNAVAILABLE", Detail: detail, Lost: errors.Is(err, client.ErrOutcomeUnknown)}
	call, ok := errors.AsType[*client.Error](err)
	if !ok {
		return p
	}
	p.Reason = cmp.Or(call.Code, p.Reason)
	switch {
	case call.Code == "NOPOLICY":
		p.Status = http.StatusNotFound
	case errors.Is(err, client.ErrNotDeployed):
		p.Reason = "NOTDEPLOYED"
	case errors.Is(err, client.ErrMisconfigured):
		p.Status = http.StatusBadRequest
	}
	return p
}
