// Package httplimit limits what an HTTP server serves: middleware that asks package client before each request.
//
//	limit, err := httplimit.New(limiter, "api", "100/m", httplimit.Address())
//	...
//	mux.Handle("/api/", limit(api))
//
// A request that is let through goes on to the handler, with the fields RateLimit-Policy and RateLimit in its response. One
// that is not gets 429 Too Many Requests with Retry-After and a body of application/problem+json (RFC 9457).
//
// # What a request is counted under
//
// A [Key] says that: the client's address ([Address]), a header ([Header]), a cookie ([Cookie]), the pattern of the route
// ([Pattern], [PatternOf]), or a function ([Func]); several of them together ([Join]), or the first that the request has
// ([FirstOf]). A request without any gets 400 Bad Request: nobody escapes the limit by leaving a header out. Who wants to
// limit such requests by their address says so: FirstOf(Header("X-Api-Key"), Address()).
//
// The key on the server begins with the middleware's name: "api|address=203.0.113.7". So two middlewares, one inside the
// other, keep what they count apart. Values of headers and cookies are mostly secrets, and as long as the client likes:
// a hash stands for them, and nothing that a client sends comes back in a header.
//
// # Fields
//
// RateLimit-Policy and RateLimit are written as draft-ietf-httpapi-ratelimit-headers-11 has them:
//
//	RateLimit-Policy: "api";q=100
//	RateLimit: "api";r=99;t=1
//
// q and r are what the library on the server said in its decision (Result.Limit and Result.Remaining). t is the time until
// everything is there again, or, for a denial, until this request would be let through, in seconds, rounded up. The text of a
// limit is read by the library alone and not a second time here, so the window w is left out, as the draft allows, unless
// [WithPolicies] states it. A client that spreads r over t would go too fast just after its first call, when t is
// short; where the window is known, t is at least the time that r takes at the limit's rate.
//
// Nested middlewares add a field line each. [WithXHeaders] adds X-RateLimit-Limit, -Remaining and -Reset.
//
// # Without a decision
//
// When there is no decision, since no server could be reached or the limit is wrong, the request is let through, and the
// error goes to [log/slog], at most once a second: a limiter that is down should not take down what it protects.
// [RefuseOnError] answers 503 Service Unavailable instead, and [OnError] hears of every error. Where the client has a
// [client.Fallback] that does not return the error, that is asked first: what FailOpen lets through is served without the
// fields, and what FailClosed denies gets 503, since it is over no limit.
//
// # Clients that hang up
//
// A client that hangs up, or resets its stream, pays like any other: the decision does not end with the request's context. A
// request whose context has ended and for which there is no decision gets 503, and its handler does not run.
package httplimit
