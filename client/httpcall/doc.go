// Package httpcall keeps calls to other HTTP services within their limits. It provides an
// [http.RoundTripper] that takes units from a limit of package client before each request, so all
// processes share the limit.
//
//	transport, err := httpcall.New(limiter, "partner", "10/s burst=20")
//	...
//	err = transport.Check(ctx) // checks that the servers accept the limit
//	...
//	partner := &http.Client{Transport: transport}
//
// A request over the limit waits for its turn, for at most a minute ([WithLongestWait]). If its
// context's deadline would pass first, it fails immediately with a [client.ErrLimited]: the
// RetryAfter of its [*client.Error] is the time to wait. Within a process, requests with the same key
// are served in order of arrival: see [client.Client.Wait].
//
// # Server limits
//
// If the other service tells a client to wait, all users of the key wait, in every process. The
// service does so with Retry-After (seconds or a date) in a 429 or 503 response, or otherwise with
// a RateLimit field with r=0 and t seconds (draft-ietf-httpapi-ratelimit-headers-11) in any
// response. The key is blocked for that time, for at most ten minutes ([WithLongestBlock]); an
// existing block is never shortened. The caller gets the response, unless [WithRetries] retries the
// request.
//
// # Without a decision
//
// If there is no decision, the request fails with the error from the client, unless the client has a
// [client.Fallback] other than ReturnError. To continue without a limit, set client.FailOpen.
package httpcall
