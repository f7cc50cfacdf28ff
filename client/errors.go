package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/internal/dialing"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
)

// Errors to which a program may react, for errors.Is. [Error.Code] is finer. Unless an error is also
// ErrOutcomeUnknown, nothing was counted or changed.
var (
	// ErrNotDeployed means that the server does not have the library, or that the library is too
	// old for the call. Deploy the library with package loader.
	ErrNotDeployed = errors.New("library not deployed")

	// ErrNoPermission means that the server denies this user the login, the function, a command
	// within the function, or the key. If it denies a command within the function, earlier commands
	// of the function remain in effect; the error from a call that writes is then also
	// ErrOutcomeUnknown. If the call is then repeated, it can count again, even with an OnceKey: the
	// reply to the first call may not have been stored.
	ErrNoPermission = errors.New("no permission")

	// ErrUnavailable means that no server could decide: there was no connection or no reply, or the
	// server cannot serve calls now (READONLY, OOM, BUSY, LOADING, CLUSTERDOWN and the like; see
	// Error.Code). It also means that the context was done before the call was sent, or that the
	// client is closed.
	ErrUnavailable = errors.New("no server could decide")

	// ErrOutcomeUnknown means that the call may have been executed. Usually it was sent and no
	// reply came. The error is then also [ErrUnavailable], and the call took effect once or not at
	// all. Otherwise a reply came that does not say whether the call was executed: one that the
	// library never sends, a denied command within the function, or an error that this package does not
	// know. Calls that write nothing (Peek, Usage, Info) never return it.
	ErrOutcomeUnknown = errors.New("outcome unknown")

	// ErrMisconfigured means that the call is wrong, and that no retry helps: the program or the
	// deployed policies must be corrected. Error.Code says what is wrong. A [Fallback] never replaces
	// it. [Client.Check] finds wrong limits when the program starts.
	ErrMisconfigured = errors.New("misconfigured")

	// ErrLimited means that a limit or a block prevents the operation for longer than the caller can
	// wait: RetryAfter says for how long. It is the error of [Client.Wait], [Lease.Wait], [Lease.Run]
	// and [AsError]. Nothing was taken, unless Error says that units could not be given back or are kept
	// under an OnceKey. If the error matches ErrOutcomeUnknown, the units may have been taken, at most
	// once.
	ErrLimited = errors.New("limited")
)

// The kinds of errors, as Observation.ErrorType has them.
const (
	typeBadLimit     = "bad_limit"
	typeBadCost      = "bad_cost"
	typeBadKeys      = "bad_keys"
	typeBadArgs      = "bad_args"
	typeBadState     = "bad_state"
	typeNoPolicy     = "no_policy"
	typeCrossSlot    = "cross_slot"
	typeNotDeployed  = "not_deployed"
	typeNoPermission = "no_permission"
	typeUnavailable  = "unavailable"
	typeBadReply     = "bad_reply"
	typeLimited      = "limited"
)

// Error is the type of all errors that calls in this package return. errors.Is matches it against
// the Err values above. errors.Is and errors.As also find the error from go-redis, the network or
// the context. An Error is not modified after it is returned, and is safe to share.
type Error struct {
	// Op is the operation: "take" (Allow, AllowN, Take, Wait), "peek", "refund", "reset", "block",
	// "unblock", "override", "override_end", "acquire", "renew", "release", "usage", "info" or "check".
	Op string

	// Code is the server's error code, such as "BADLIMIT" or "READONLY". It is empty if there was
	// no error reply: the connection failed, or the reply was malformed. For an [ErrMisconfigured] it is
	//   - "BADLIMIT": the server cannot parse the limit.
	//   - "BADCOST": a cost is not an integer from 0 to 2^53.
	//   - "BADKEYS": there is no key, a key is empty or given twice, or the number of keys does not match
	//     the limits.
	//   - "BADARGS": arguments contradict each other, for example two costs for three keys or an OnceKey
	//     without an OnceTTL, or a duration or the id of a lease is out of range.
	//   - "BADSTATE": a key stores a value that the library did not write, or one of another kind, such as
	//     leases where the call needs counts.
	//   - "NOPOLICY": the library on the server has no policy of this name.
	//   - "CROSSSLOT": the keys of one call are in different hash slots of a cluster, or have different
	//     hash tags in a call through a Ring.
	Code string

	// Keys are the keys of the call as sent, including the prefix. For an [ErrLimited], it is the key
	// that denied or, if that is unknown, the first of them.
	Keys []string

	// RetryAfter is for an [ErrLimited]: a lower bound on the time until the operation can succeed. It
	// is 0 if this is unknown, and [Never] if the operation needs more units than the limit can ever
	// have.
	RetryAfter time.Duration

	// Err is the underlying error: the server's reply as a redis.Error, or the error from the
	// connection or the context. For an [ErrLimited] it can be nil, or wrap several of these:
	// context.DeadlineExceeded if the wait would outlast the context, the error of a context that ended
	// during the wait, and the reason why no server decided (see Result.Err).
	Err error

	// Remedy is what a Go program or its operator can do. It is empty if no remedy is known, or if
	// the server's reply contains it.
	Remedy string

	kind     string // one of the constants above, or "" for a server's error that is not known
	unknown  bool   // whether the error also matches ErrOutcomeUnknown
	sentence string // the problem: the part of Error() after the operation and the keys
}

// longestShown is how much of a key an error shows, in bytes: a key may have 64 KiB, and errors are logged.
const longestShown = 200

// Error returns one sentence with the call, the problem and, if there is one, the remedy.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("ratelimit: ")
	b.WriteString(e.Op)
	for i, key := range e.Keys {
		if i == 3 {
			fmt.Fprintf(&b, " and %d more", len(e.Keys)-i)
			break
		}
		fmt.Fprintf(&b, " %q", printable.Cut(key, longestShown))
	}
	b.WriteString(": ")
	if e.sentence == "" && e.Err != nil { // not made by this package
		b.WriteString(e.Err.Error())
	}
	b.WriteString(e.sentence)
	if e.Remedy != "" {
		b.WriteString("; " + e.Remedy)
	}
	return b.String()
}

// Unwrap returns the Err values that apply, and the cause.
func (e *Error) Unwrap() []error {
	all := make([]error, 0, 3)
	switch e.kind {
	case typeBadLimit, typeBadCost, typeBadKeys, typeBadArgs, typeBadState, typeNoPolicy, typeCrossSlot:
		all = append(all, ErrMisconfigured)
	case typeNotDeployed:
		all = append(all, ErrNotDeployed)
	case typeNoPermission:
		all = append(all, ErrNoPermission)
	case typeUnavailable:
		all = append(all, ErrUnavailable)
	case typeLimited:
		all = append(all, ErrLimited)
	}
	if e.unknown {
		all = append(all, ErrOutcomeUnknown)
	}
	if e.Err != nil {
		all = append(all, e.Err)
	}
	return all
}

// newError classifies err. written is true if a command that is not read-only may have been sent.
func newError(ctx context.Context, op string, keys []string, err error, written bool) *Error {
	var failed *dialing.Failed
	if errors.As(err, &failed) {
		err = failed.Cause
	}
	e := &Error{Op: op, Keys: slices.Clone(keys), Err: err}
	_, unreadable := err.(panicked)
	if !unreadable {
		_, unreadable = errors.AsType[*dialing.ReplyError](err)
	}
	if unreadable {
		e.kind, e.sentence = typeBadReply, fmt.Sprintf("the reply could not be read (%v)", err)
		e.Remedy = "check that the address is that of a Redis or Valkey server"
		e.doubt(written)
		return e
	}
	if reply, ok := errors.AsType[redis.Error](err); ok {
		if why, hint := dialing.Refusal(err, reply); why != "" {
			e.kind, e.sentence, e.Remedy = typeUnavailable, "no connection, nothing was "+past(op)+": "+why, hint
			return e
		}
		e.sortReply(reply.Error(), written)
		return e
	}
	// A deadline appears as a network timeout, but callers check for the context's own error.
	if cause := ended(ctx); cause != nil && !errors.Is(err, cause) {
		e.Err = fmt.Errorf("%w: %w", cause, err)
	}
	var dial *net.OpError
	did := past(op)
	var untrusted *tls.CertificateVerificationError
	undialled := failed != nil || errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, &untrusted)
	switch {
	case undialled, errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed):
		e.kind = typeUnavailable
		e.sentence = fmt.Sprintf("no connection, nothing was %s (%v)", did, e.Err)
	case written:
		e.kind, e.unknown = typeUnavailable, true
		e.sentence = fmt.Sprintf("sent, but the reply was lost; it %s once or not at all (%v)", effect(op), e.Err)
	default:
		e.kind = typeUnavailable
		e.sentence = fmt.Sprintf("no reply, nothing was %s (%v)", did, e.Err)
	}
	switch found := dialing.New("", err, &tls.Config{}, 0, ""); found.Class {
	case dialing.ErrAuthority, dialing.ErrHost, dialing.ErrCertificate:
		e.Remedy = found.Remedy
	}
	return e
}

// past returns what a call that did not reach a server has not done.
func past(op string) string {
	if op == "take" || op == "peek" {
		return "counted"
	}
	return "changed"
}

// effect describes the effect of a call that may write.
func effect(op string) string {
	if op == "take" {
		return "was counted"
	}
	return "took effect"
}

// lostAgain returns the error for a call whose reply was lost and that was retried n times without
// success. Whatever the last error says, the first attempt may have been executed.
func lostAgain(ctx context.Context, first, last error, n int) error {
	var e, l *Error
	if !errors.As(first, &e) || !errors.As(last, &l) {
		return first
	}
	err := e.Err
	if n > 0 {
		err = fmt.Errorf("%w; asked again %s, at last: %w", e.Err, times(n), l.Err)
	}
	if cause := ended(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return &Error{
		Op: e.Op, Keys: e.Keys, Err: err, kind: typeUnavailable, unknown: true,
		sentence: fmt.Sprintf("sent, but the reply was lost; it %s once or not at all (%v)", effect(e.Op), err),
	}
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// lost reports whether err means that a reply was lost.
func lost(err error) bool { return errors.Is(err, ErrOutcomeUnknown) && errors.Is(err, ErrUnavailable) }

// endedBefore marks the error for a call whose context had ended before the call.
type endedBefore struct{ error }

func (e endedBefore) Unwrap() error { return e.error }

// notSent returns the error for a call that is not sent because of cause, or nil if cause is nil.
// If cause is the client's timeout, the call has waited for another call's request until the
// timeout. Any other cause comes from the caller's own context.
func notSent(call *call, cause error) error {
	if cause == nil {
		return nil
	}
	if timeout, ok := cause.(timedOut); ok {
		return waitedInVain(call.keys, timeout)
	}
	return &Error{
		Op: call.verb, Keys: slices.Clone(call.keys), Err: endedBefore{cause}, kind: typeUnavailable,
		sentence: fmt.Sprintf("not sent, because the context has ended (%v)", cause),
	}
}

// refused returns the error for a call rejected before sending; err starts with the server's error
// code.
func refused(op string, keys []string, err error) *Error {
	code, _, _ := strings.Cut(err.Error(), " ")
	return &Error{Op: op, Code: code, Keys: slices.Clone(keys), Err: err, sentence: err.Error(), kind: refusals[code]}
}

// doubt marks the error as [ErrOutcomeUnknown] if the call writes, because the server may have
// executed the call despite the error.
func (e *Error) doubt(writes bool) {
	if writes {
		e.unknown = true
		e.sentence += "; whether it " + effect(e.Op) + " is not known"
	}
}

func badReply(op string, keys []string, want string, got any) *Error {
	err := fmt.Errorf("%s returned %s, want %s", prefixOfFunctions+op, describe(got), want)
	e := &Error{
		Op: op, Keys: slices.Clone(keys), Err: err, kind: typeBadReply, sentence: err.Error(),
		Remedy: "check with Loader.Status whether the server has another library of this name",
	}
	e.doubt(op != "peek" && op != "usage" && op != "info")
	return e
}

// describe formats a reply as one short line.
func describe(reply any) string {
	var text string
	switch v := reply.(type) {
	case nil:
		return "nothing"
	case string:
		text = fmt.Sprintf("the text %q", v)
	case []any:
		parts := make([]string, 0, len(v))
		for _, x := range v {
			if s, ok := x.(string); ok {
				parts = append(parts, fmt.Sprintf("%q", s))
			} else {
				parts = append(parts, fmt.Sprint(x))
			}
		}
		text = fmt.Sprintf("[%s]", strings.Join(parts, " "))
	default:
		text = fmt.Sprintf("%v", v)
	}
	return printable.Cut(text, 100)
}
