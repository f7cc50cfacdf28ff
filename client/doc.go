// Package client gets rate limit decisions from a Redis server that has the ratelimit library.
//
// Each call is one FCALL. The server decides and counts in one atomic step, by its own clock. A
// call returns within its timeout, whatever the server does.
//
//	limiter, err := client.Open("redis://127.0.0.1:6379")
//	...
//	defer limiter.Close()
//	res, err := limiter.Allow(ctx, "user:42", "100/m")
//	switch {
//	case err != nil: // no decision; see Errors
//	case !res.Allowed: // come back after res.RetryAfter
//	default: // go ahead
//	}
//
// # Limits
//
// A [Limit] is text that the server parses: "100/m", "5/10s", "gcra 10/s burst=20", "fixed_window
// 1000/h align=clock". [ParseLimit] checks one without a server. Package limits makes limits from
// numbers, and package key makes the keys of the middleware in httplimit and grpclimit.
//
// # Calls
//
// [Client.Allow] takes one unit from a key. [Client.AllowN] takes n units or none. [Client.Take]
// executes a whole [Request]; [For] makes one for a single key. A Request can take units from several
// keys in one decision, or as many units as fit (UpTo). It can be repeated without being charged again
// (OnceKey), and it can be counted for [Client.Usage] (UsageKey). [Client.TakeAll] makes several
// independent decisions in one round trip. [Client.Peek] returns the same result as Take and changes
// nothing. [Client.Refund] gives units back; [Result.Charged] says how many a call took.
//
// [Client.Wait] waits until it has taken the units. [Client.TakeEstimate] takes an estimate, and Settle
// corrects it once the cost is known. [Client.Lease] limits how much work runs at the same time. [Client.Block], [Client.Unblock], [Client.Override], [Client.EndOverride],
// [Client.Reset], [Client.Info] and [Client.Check] are for operators.
//
// # Waiting
//
// [Client.Wait] returns once it has taken its units. If the context's deadline is too early for
// that, it returns an [ErrLimited] immediately. [Lease.Wait] waits until it has acquired the
// lease. [Lease.Run] keeps the lease while a function runs: it renews the lease, and cancels the
// function's context if the lease is lost.
//
// Callers of one Client that wait for the same key and limit are served in order of arrival. The
// first of them sends its call to the server. Callers behind it send theirs at the same time only
// if the last reply reported enough remaining units.
//
// # Errors
//
// A denial is a [Result], not an error. An error means that there is no decision. It is an
// [*Error]. errors.Is matches it against the Err values of this package. [AsError] turns a denial into
// an error too, for code that handles only errors. If there is no decision, the application may need to know whether the call was
// counted. After [ErrOutcomeUnknown] it may have been; after any other error nothing was counted.
// After [ErrMisconfigured], for example because of a wrong limit, no retry helps: the program or
// the deployed policies must be corrected.
//
// # Lost replies
//
// go-redis retries a command whose reply was lost, so one call could be counted up to four times.
// For calls that change data, this package uses a command that go-redis does not retry, so these
// calls are executed at most once. Cluster redirections (MOVED, ASK) are followed, because a
// redirected command was not executed.
//
// The client itself retries calls that are safe to repeat: requests with an OnceKey, and acquiring
// or renewing a lease. It retries up to three times, with at most 0.3 s of pauses in total.
// go-redis itself retries Peek, Usage and Info, as configured in its options.
//
// # Time
//
// A call sends nothing if its context has already ended. Any other call, except one that waits for
// units or a lease, returns by the context's deadline or within the client's timeout
// ([WithTimeout], 500 ms by default), whichever is earlier, retries included. This holds even if
// the server hangs, cannot be reached, or sends its reply byte by byte.
//
// After five calls in a row without a reply, the client stops calling the server. Calls then fail
// immediately, except for single calls, two a second or fewer, that probe the server. With calls to
// probe with, the client notices within a second, plus the time that the server takes to reply, that
// the server is back. In a cluster, each node is handled separately: a call that is redirected counts
// for the node that executed it, or failed to.
//
// # Without a decision
//
// If no server decides, a call that takes units returns an error, is allowed, is denied, or is
// decided by this process with a share of the limit ([LocalFallback]). The client ([WithFallback])
// or the call (Request.Fallback) selects one of these. Result.Source is the source of the decision,
// and Result.Err is the reason why no server decided. If a reply was lost, Result.Err matches
// [ErrOutcomeUnknown]: a server may have counted the call, whatever the Fallback decided. While a
// Fallback decides, the client logs a warning once a minute. A LocalFallback reads limits such as
// "100/m" itself; give it the limits of policies, for a program that starts while no server is
// reachable.
//
// # Logs, metrics and traces
//
// An [Observer] receives the outcome of each call ([WithObserver]). [LogTo] returns one that writes
// to log/slog. Package otellimit, a separate module in a subdirectory of this one, provides
// OpenTelemetry metrics and spans.
//
// # Hot keys
//
// With [WithBatches], a client takes several units of a busy key at once and spends them within a
// short time, without a request for each unit. If this time is 100 ms, the units admitted in any
// second are at most those that the limit allows in 1.1 seconds, however many processes take part.
// With [WithDenialMemory], the client remembers that a key was denied, for at most a second and
// never longer than RetryAfter, and denies it again without a request. Result.Source is then
// "batch" or "memory". Both options apply to calls with one key, and are off by
// default.
//
// # Many goroutines
//
// Concurrent calls to the same server share round trips, which multiplies the number of decisions
// per second: calls that arrive while more than eight are in progress are sent together, in a
// pipeline. Each call keeps the guarantees of a single call: its timeout, and that it is executed at
// most once. If a connection breaks, all calls that share the round trip lose their replies
// ([ErrOutcomeUnknown]). Calls that write nothing (Peek, Usage, Info) do not share round trips.
//
// # Layers
//
// A Client is a [Limiter], and so is whatever wraps one: an application can count, cache or change
// decisions in a layer of its own, and give a Limiter of three lines to its tests. The packages
// httplimit, httpcall, grpclimit and grpccall, and [WaitFunc], accept any Limiter. The Client's own layers
// ([WithObserver], [WithFallback], [WithBatches], [WithDenialMemory]) are always in this order, from
// the caller to the server, whatever the order of the options: in another one they would break their
// bounds.
//
// # The library on the servers
//
// The command `ratelimit deploy` or package loader installs the library; this package does not.
// [Client.Check], called when a program starts, reports whether all servers have it and accept the
// limits of the program. If a server loses the library, for example because it restarted without
// persistence, a healer ([WithHealer], made by loader.Healer) reinstalls it. Without a healer the
// error says which command to run.
package client
