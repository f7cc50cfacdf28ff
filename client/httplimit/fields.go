package httplimit

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/ratelimit-functions/ratelimit/client"
)

// Policy describes a limit, or one rate of it, for the field RateLimit-Policy. See [WithPolicies].
type Policy struct {
	Name   string        // such as "hourly"
	Limit  client.Limit  // the limit as used in calls, such as "10/s burst=20, 1000/h" or "@api"
	Quota  int64         // q: the largest possible cost of one call, as in Result.Limit
	Window time.Duration // w: the time in which the quota refills, rounded up to whole seconds
}

// WithPolicies names limits and sets their windows. A limit with several rates has a Policy for
// each. If the limit depends on the request, as with [WithRequest], give the policies of each
// limit:
//
//	httplimit.WithPolicies(
//		httplimit.Policy{Name: "burst", Limit: "10/s burst=20, 1000/h", Quota: 20, Window: 2 * time.Second},
//		httplimit.Policy{Name: "hourly", Limit: "10/s burst=20, 1000/h", Quota: 1000, Window: time.Hour},
//	)
//
// RateLimit-Policy lists the policies of the limit that decided. RateLimit names the policy whose
// Quota equals Result.Limit. If no policy has that Quota, the given policies are out of date, and
// the fields are written as without WithPolicies.
func WithPolicies(policies ...Policy) Option {
	return func(m *middleware) error {
		for _, p := range policies {
			if err := checkName(p.Name); err != nil {
				return err
			}
			same := func(other Policy) bool { return other.Name == p.Name || other.Quota == p.Quota }
			switch {
			case p.Limit == "":
				return fmt.Errorf("policy %q has no limit; give the text that is asked for, such as 100/m", p.Name)
			case p.Quota < 1 || p.Window <= 0:
				return fmt.Errorf("policy %q has the quota %d and the window %v; give both, such as 100 and time.Minute", p.Name, p.Quota, p.Window)
			case slices.ContainsFunc(m.policies[p.Limit], same):
				return fmt.Errorf("policy %q has the name or the quota of another one of %q; one of both is wrong", p.Name, p.Limit)
			}
			m.policies[p.Limit] = append(m.policies[p.Limit], p)
		}
		return nil
	}
}

// checkName returns an error for a name that cannot be used in a key or in a String of a structured
// field.
func checkName(name string) error {
	const longest = 129 // a policy's namespace and name have 64 bytes each, with a slash between them
	if name == "" || len(name) > longest {
		return fmt.Errorf("the name %.80q has %d bytes; give 1 to %d", name, len(name), longest)
	}
	for _, c := range []byte(name) {
		if c <= ' ' || c >= 0x7f || c == '|' || c == '{' || c == '}' || c == '"' || c == '\\' {
			return fmt.Errorf("the name %q holds %q; use letters, digits and - _ . : /", name, c)
		}
	}
	return nil
}

// bindingLimit returns the limit that decided, or "" if it is not known.
func bindingLimit(req client.Request, result client.Result) client.Limit {
	switch i := result.Index - 1; {
	case len(req.Limits) == 1:
		return req.Limits[0]
	case len(req.Limits) == len(req.Keys) && i >= 0 && i < len(req.Limits):
		return req.Limits[i]
	}
	return "" // a policy has several limits, so Index does not say which of req.Limits decided
}

// policyOf returns the name of the policy that decided, and the policies of the limit that decided.
// If no policy matches, it returns the middleware's name and nil.
func (m *middleware) policyOf(req client.Request, result client.Result) (string, []Policy) {
	policies := m.policies[bindingLimit(req, result)]
	for _, p := range policies {
		if p.Quota == result.Limit {
			return p.Name, policies
		}
	}
	return m.Name, nil
}

// fields writes the response fields of one middleware. It can rewrite them until the response
// begins.
type fields struct {
	*middleware
	at [2]int // index of this middleware's line in RateLimit-Policy and in RateLimit

	mu     sync.Mutex
	header http.Header // nil after the handler has returned, when the server owns the header
}

const (
	policyField = "Ratelimit-Policy" // as spelled in http.Header
	limitField  = "Ratelimit"
	warnField   = "X-Ratelimit-Warning"
)

func (m *middleware) newFields(header http.Header) *fields {
	f := &fields{middleware: m, header: header, at: [2]int{len(header[policyField]), len(header[limitField])}}
	header.Add(policyField, "")
	header.Add(limitField, "")
	return f
}

// end stops further changes to the fields.
func (f *fields) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.header = nil
}

// set writes the fields for a decision, unless end was called.
func (f *fields) set(req client.Request, result client.Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.header == nil {
		return
	}
	name, policies := f.policyOf(req, result)
	if policies == nil {
		policies = []Policy{{Name: name, Quota: result.Limit}}
	}
	var list httpsfv.List
	reset := seconds(result.ResetAfter)
	for _, p := range policies {
		q := item(p.Name, "q", p.Quota)
		if p.Window > 0 {
			q.Params.Add("w", integer(seconds(p.Window)))
			if p.Name == name { // t is at least the time in which the remaining units refill
				left := float64(min(result.Remaining, p.Quota)) / float64(p.Quota)
				reset = max(reset, seconds(time.Duration(float64(p.Window)*left)))
			}
		}
		list = append(list, q)
	}
	f.put(policyField, f.at[0], list)

	r := item(name, "r", result.Remaining)
	switch {
	case result.Allowed:
		r.Params.Add("t", integer(reset))
	case result.RetryAfter != client.Never: // t then equals Retry-After
		r.Params.Add("t", integer(seconds(result.RetryAfter)))
	}
	f.put(limitField, f.at[1], httpsfv.List{r})

	if f.xHeaders {
		f.header.Set("X-Ratelimit-Limit", strconv.FormatInt(result.Limit, 10))
		f.header.Set("X-Ratelimit-Remaining", strconv.FormatInt(result.Remaining, 10))
		f.header.Set("X-Ratelimit-Reset", strconv.FormatInt(time.Now().Add(result.ResetAfter).Add(time.Second-1).Unix(), 10))
	}
}

// warn writes the field for a policy that warns: the percentage of its limit that is used. Of several
// middlewares, the largest stays.
func (f *fields) warn(percent int) {
	before, _ := strconv.Atoi(f.header.Get(warnField))
	if percent > before {
		f.header.Set(warnField, strconv.Itoa(percent))
	}
}

// put replaces one line of the field with list. at is the index of the line. Marshaling cannot
// fail, because names and numbers were checked. If a handler removed the line, it stays removed.
func (f *fields) put(field string, at int, list httpsfv.List) {
	text, err := httpsfv.Marshal(list)
	if lines := f.header[field]; err == nil && at < len(lines) {
		lines[at] = text
	}
}

func item(name, parameter string, n int64) httpsfv.Item {
	i := httpsfv.NewItem(name)
	i.Params.Add(parameter, integer(n))
	return i
}

// integer limits n to the range of an Integer of a structured field, which has at most 15 digits.
// It returns 0 for a negative n.
func integer(n int64) int64 { return max(0, min(n, 999_999_999_999_999)) }
