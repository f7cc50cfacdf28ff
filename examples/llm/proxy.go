package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// budgets names the limits of the policy llm, in the order of policies.yaml.
var budgets = []string{"org", "team", "user"}

// account identifies the organization, team and user of an API key. Class is the class of its requests
// under the policy, such as "batch", or "".
type account struct{ Org, Team, User, Class string }

// keys returns a key for each of the budgets. All keys have the hash tag {org}, so one node of a
// cluster decides on all of them in one step.
func (a account) keys() []string {
	org := "llm:{" + a.Org + "}"
	return []string{org, org + ":team:" + a.Team, org + ":user:" + a.User}
}

// proxy passes chat completions on to an upstream, within the budgets. It charges an estimate of
// the tokens before each request, and corrects the estimate to the actual usage afterwards.
type proxy struct {
	limiter  *client.Client
	gateway  *gateway           // reserves in place of limiter; nil for none
	accounts map[string]account // by API key
	upstream *url.URL
	key      string // API key of the upstream
	answer   int64  // estimated tokens of an answer, for requests without max_tokens
}

// maxBody is the maximum number of bytes of a request. Requests with images are large.
const maxBody = 16 << 20

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, known := p.accounts[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	if !known {
		refuse(w, http.StatusUnauthorized, "invalid_api_key", "the API key is missing or unknown")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		refuse(w, http.StatusRequestEntityTooLarge, "request_too_large", err.Error())
		return
	}
	var chat chat
	if err == nil {
		chat, err = readChat(body, p.answer)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "invalid_request", err.Error())
		return
	}
	// The decision uses a context that outlives the request, because a client that hangs up must
	// still be charged.
	hold, result, err := p.charge(context.WithoutCancel(r.Context()), who, chat.estimate)
	if err == nil && !result.Allowed {
		err = result.Err // not nil if no server decided and a Fallback denied the request
	}
	if err != nil { // to serve requests without a decision, open the client with WithFallback(FailOpen)
		slog.ErrorContext(r.Context(), "no decision on a chat", "error", err)
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable, "no_decision", "whether the budgets allow the request could not be found out")
		return
	}
	setFields(w.Header(), result)
	if !result.Allowed {
		deny(w, result)
		return
	}
	m := &meter{chat: chat, hold: hold, ctx: r.Context()}
	defer m.keep()
	(&httputil.ReverseProxy{
		Rewrite:        func(pr *httputil.ProxyRequest) { p.rewrite(pr, chat.body) },
		ModifyResponse: m.response,
		ErrorHandler:   m.unreachable,
	}).ServeHTTP(w, r)
}

// charge charges an estimate, or denies it.
func (p *proxy) charge(ctx context.Context, who account, estimate int64) (hold, client.Result, error) {
	if p.gateway != nil {
		return p.gateway.reserve(ctx, who, estimate)
	}
	hold, err := p.limiter.TakeEstimate(ctx, client.Request{
		Keys: who.keys(), Limits: []client.Limit{"@llm"}, Costs: []int64{estimate}, Class: who.Class, Each: true,
	})
	if err != nil {
		return nil, client.Result{}, err
	}
	return hold, hold.Result, nil
}

// rewrite makes the request for the upstream.
func (p *proxy) rewrite(pr *httputil.ProxyRequest, body []byte) {
	pr.SetURL(p.upstream)
	pr.Out.Header = http.Header{ // the upstream gets no header fields from the client
		"Authorization": {"Bearer " + p.key}, "Content-Type": {"application/json"},
		"Accept-Encoding": {"identity"}, // not compressed, because the meter reads the response
	}
	pr.Out.Body, pr.Out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
}

// setFields sets RateLimit and RateLimit-Policy, with an item for each budget. Until the answer is
// complete, the estimate counts as used.
func setFields(h http.Header, res client.Result) {
	var policies, limits []string
	for i, each := range res.Each {
		after := each.ResetAfter
		if !each.Allowed {
			after = each.RetryAfter
		}
		limit := fmt.Sprintf("%q;r=%d", budgets[i], each.Remaining)
		if after != client.Never {
			limit += fmt.Sprintf(";t=%d", seconds(after))
		}
		limits = append(limits, limit)
		policies = append(policies, fmt.Sprintf("%q;q=%d", budgets[i], each.Limit))
	}
	if len(limits) > 0 { // without a server's decision, there are no limits to report
		h.Set("RateLimit-Policy", strings.Join(policies, ", "))
		h.Set("RateLimit", strings.Join(limits, ", "))
	}
}

func deny(w http.ResponseWriter, res client.Result) {
	budget := budgets[res.Index-1]
	text := fmt.Sprintf("the request may need more tokens than the budget of the %s ever allows at once; lower max_tokens", budget)
	if res.RetryAfter != client.Never {
		w.Header().Set("Retry-After", fmt.Sprint(seconds(res.RetryAfter)))
		text = fmt.Sprintf("the budget of the %s is used up; try again in %d s", budget, seconds(res.RetryAfter))
	}
	refuse(w, http.StatusTooManyRequests, "rate_limit_exceeded", text)
}

// refuse sends an error in the format that clients of the API expect.
func refuse(w http.ResponseWriter, status int, code, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"code": code, "type": code, "message": text}})
}

// seconds returns d in seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
