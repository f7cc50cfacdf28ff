// Package httpcall keeps calls to other HTTP services within their limits: an [http.RoundTripper] that asks package client
// before each request, for all processes together.
//
//	transport, err := httpcall.New(limiter, "partner", "10/s burst=20")
//	...
//	partner := &http.Client{Transport: transport}
//
// A request that is over the limit waits for its turn, for a minute at most ([WithLongestWait]) and never where its
// context's deadline would come first: then it fails at once with a [*client.LimitedError], which says when to come back. In
// one process the requests of one key wait in line, first come, first served: see [client.Client.WaitRequest].
//
// # When they say stop
//
// What the other service says holds for everybody who uses the key, in any process: a Retry-After of a response 429 or 503
// (seconds or a date), or else a field RateLimit that has r=0 left for t seconds (draft-ietf-httpapi-ratelimit-headers-11), in
// any response. The key is blocked for that time, for ten minutes at most ([WithLongestBlock]), and never for less than it
// was. The response itself goes to the caller, unless [WithRetries] says to ask again.
//
// # Without a decision
//
// Where there is no decision, the request fails with the error of the client, unless that has a [client.Fallback] that does
// not return it: to call on without a limit, set client.FailOpen.
package httpcall
