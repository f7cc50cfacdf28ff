// Package httplimit provides rate limiting middleware for HTTP servers, based on package client.
//
//	limit, err := httplimit.New(limiter, "api", "100/m", httplimit.Address())
//	...
//	err = limit.Check(ctx) // checks that the servers accept the limit
//	...
//	mux.Handle("/api/", limit(api))
//
// An allowed request goes to the handler, and its response has the fields RateLimit-Policy and
// RateLimit. A denied request gets 429 Too Many Requests with Retry-After and a body of
// application/problem+json (RFC 9457).
//
// # Keys
//
// A [Key] selects the key under which a request is counted: the client's address ([Address]), a
// header ([Header]), a cookie ([Cookie]), the pattern of the route ([Pattern]), or the
// result of a function ([Func]). Keys can be combined ([Join]) or tried in order ([FirstOf]). A
// request without a key gets 400 Bad Request, so clients cannot avoid the limit by omitting a
// header. To limit such requests by their address instead, write FirstOf(Header("X-Api-Key"),
// Address()).
//
// The key on the server begins with the middleware's name: "api|address=203.0.113.7". So nested
// middlewares count separately. Values of headers and cookies are often secret or long, so the key
// contains a hash of them. No value from a request appears in a response header.
//
// # Fields
//
// RateLimit-Policy and RateLimit follow draft-ietf-httpapi-ratelimit-headers-11:
//
//	RateLimit-Policy: "api";q=100
//	RateLimit: "api";r=99;t=1
//
// q and r are Result.Limit and Result.Remaining of the decision. t is in seconds, rounded up: the
// time until all units are available again or, for a denial, until this request would be allowed.
// This package does not parse limits, so the window w is omitted, as the draft permits, unless
// [WithPolicies] sets it. After a client's first call, all units are soon available again, so this
// time is short. A client that spread r requests over such a short time would exceed the limit. So
// if the window is known, t is at least the time in which r units refill.
//
// Each nested middleware adds a line to each field. [WithXHeaders] adds X-RateLimit-Limit,
// -Remaining and -Reset.
//
// # Without a decision
//
// If there is no decision, because no server is reachable or the limit is wrong, the request is
// allowed: an outage of the limiter should not become an outage of the service. The error goes to
// [log/slog], at most once a second. With [WithRefuseOnError], the response is 503 Service Unavailable
// instead. [WithOnError] receives every error. Retries do not help against a wrong limit:
// [Middleware.Check] finds it when the program starts. While the program runs, the error is logged
// separately. With [WithRefuseMisconfigured], the response is 500 Internal Server Error. If the client
// has a [client.Fallback] other than ReturnError, the fallback applies first. Requests allowed by
// FailOpen are served without the fields. Requests denied by FailClosed get 503, because they are
// not over a limit.
//
// # Costs known afterwards
//
// A handler that knows the cost of its request only afterwards can correct the charge: see package
// [github.com/ratelimit-functions/ratelimit/client/charge].
//
// # Clients that hang up
//
// A client that hangs up, or resets its stream, is charged like any other, because canceling the
// request does not cancel the decision. If there is no decision and the request's context is done,
// the response is 503 and the handler does not run.
package httplimit
