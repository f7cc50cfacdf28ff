// Package client asks a Redis server that holds the ratelimit library for decisions.
//
// One call is one FCALL: the server decides and counts in one atomic step, on its own clock. A call returns within its
// bound, whatever the server does.
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
// A [Limit] is text, read by the server: "100/m", "5/10s", "gcra 10/s burst=20", "fixed_window 1000/h align=clock".
// [PerSecond], [PerMinute], [PerHour], [PerDay] and [Concurrency] write the common ones.
//
// # Calls
//
// [Client.Allow] takes one unit from a key, [Client.AllowN] several, all or none, [Client.AllowAtMost] as many as fit, and
// [Client.Take] what a whole [Request] says: from several keys in one decision, with an OnceKey a repetition of the same work for nothing, with a UsageKey counted
// for [Client.Usage]. [Client.Peek], [Client.PeekN] and [Client.PeekRequest] return the same and change nothing.
// [Client.RefundN] and [Client.Refund] give back. [Client.Wait], [Client.WaitN] and [Client.WaitRequest] wait until they have taken, and [Client.Reserve] and
// [Client.ReserveN] take what can be given back by Cancel. [Client.Lease] is for work of which only so much may run at once.
// [Client.Block], [Client.Unblock], [Client.Reset], [Client.Info] and [Client.Check] are for who runs the service.
//
// # Waiting
//
// [Client.Wait] returns when it has taken, and refuses at once what the context's deadline would cut off ([LimitedError]).
// [Lease.Wait] waits for a place, and [Lease.Hold] keeps it while a function runs: it renews the lease, and ends the function's
// context when the lease is lost. Callers of one Client that wait for the same are served in the order in which they came, and one
// at a time asks the server for all of them, or as many as the last reply left room for.
//
// # Errors
//
// A denial is a [Result], not an error. An error means that no decision reached the caller. It is an [*Error], or a
// [*LimitedError] where somebody waited in vain, and errors.Is sorts it into one of the Err values of this package. An application
// that must choose what to do without a decision needs to know most of all whether the call may have been counted: only [ErrOutcomeUnknown] leaves that open,
// and any other error means that nothing was.
//
// # Lost replies
//
// go-redis repeats a command whose reply was lost, and would so count one call up to four times. Calls that count are
// sent here with a command that it does not repeat: at most once. Redirections of a cluster (MOVED, ASK) are followed,
// since a redirected command was not executed.
//
// Where asking again is safe, it is done here: up to three times, within 0.3 s besides the calls themselves, for a
// request with an OnceKey and for acquiring or renewing a lease. Peek, Usage and Info go-redis repeats as it is set to.
//
// # Time
//
// A call whose context has ended before it sends nothing. Any other returns by the context's deadline or within the
// client's timeout ([WithTimeout], 500 ms unless told), whichever is earlier, asking again included: also when the server
// hangs, when it cannot be connected to, and when its reply comes byte by byte.
//
// A server that did not reply to five calls in a row is left alone: calls for it fail at once, but for one at a time that
// finds out whether it is back, which is noticed within a second. In a cluster this is so for each node by itself.
//
// # Without a decision
//
// When no server decides, calls that take return an error, let through, deny, or are decided by this process with a share of the
// limit ([LocalLimiter]), as the client ([WithFallback]) or the call (Request.Fallback) says. Result.Source tells who decided, and
// Result.Err why it was not a server.
//
// # Logs, metrics and traces
//
// An [Observer] hears how each call ended ([WithObserver]): [LogTo] writes to log/slog, and package otellimit, a module of its
// own below this one, has metrics and spans of OpenTelemetry.
//
// # Hot keys
//
// With [WithBatches] a client takes several units at once of a key that is asked for often, and spends them within a short time
// without a request for each: in any span L no more is admitted than the limit allows in L and that time, however many processes
// take part. With [WithDenialMemory] a key that was denied is denied for a second at most, and never longer than its
// RetryAfter, without asking again. Result.Source tells what decided. Both are for calls with one key, and off unless they are given.
//
// # Many goroutines
//
// Calls for the same server share round trips while many of them are under way, and so get several times as many decisions
// of it. What holds for a call by itself holds for each of them. See [WithSharedRoundTrips].
//
// # The library on the servers
//
// It is put there by the command `ratelimit deploy` or by package loader, not by this package. [Client.Check], at the start of a
// program, tells whether all servers have it. Where one loses it, as in a restart without persistence, a healer
// ([WithHealer]; loader.Healer makes one) puts it back; without one the error says what to run.
package client
