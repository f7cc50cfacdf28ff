// Package adapter has code shared by the packages for HTTP, gRPC and OpenTelemetry.
package adapter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/internal/layer"
	"github.com/ratelimit-functions/ratelimit/client/internal/throttle"
)

// Requests turns calls into requests to the limiter. C is the type of these calls, such as
// *http.Request.
type Requests[C any] struct {
	Limiter client.Limiter
	Name    string // the prefix of the keys
	Limit   client.Limit
	Key     func(C) (string, error)
	Empty   error                          // the error for an empty key; nil if empty keys are valid
	Change  func(C, *client.Request) error // nil: requests are not changed

	given       map[string]string // by the name of an option that may be given once: its arguments, or ""
	penalty     client.Block      // see SetPenalty; the zero Block for that of the policy
	unpenalized throttle.Throttle
}

// Given returns an error if the limiter, the name or the limit is missing.
func (r *Requests[C]) Given() error {
	if err := layer.Given(r.Limiter); err != nil {
		return err
	}
	switch {
	case r.Name == "":
		return errors.New("the name is empty; give what is limited or called, such as api or partner")
	case r.Limit == "":
		return errors.New("the limit is empty; give one such as 100/m")
	}
	return nil
}

// Once returns an error if the option with this name was given before. values are its arguments that the
// error can show.
func (r *Requests[C]) Once(name string, values ...any) error {
	if r.given == nil {
		r.given = map[string]string{}
	}
	first, twice := r.given[name]
	switch second := fmt.Sprint(values...); {
	case !twice:
		r.given[name] = second
		return nil
	case second == "":
		return fmt.Errorf("%s is given twice; give it once", name)
	default:
		return fmt.Errorf("%s is given twice, as %q and as %q; give it once", name, first, second)
	}
}

// Request returns the request to the limiter for a call.
func (r *Requests[C]) Request(call C) (client.Request, error) {
	key, err := r.Key(call)
	if err == nil && key == "" {
		err = r.Empty
	}
	if err != nil {
		return client.Request{}, err
	}
	req := client.Request{Keys: []string{r.Name + "|" + key}, Limits: []client.Limit{r.Limit}}
	if r.Change != nil {
		err = r.Change(call, &req)
	}
	return req, err
}

// Check returns nil if the servers are ready for these requests and accept r.Limit and the limits
// in others. If r.Change is nil, every request has one key and r.Limit. Check then also peeks at a
// key, and returns an error if r.Limit is for leases, if it is a policy of several keys, or if the
// user has no permission for the key. If no layer of r.Limiter has a Check or a Peek, it is left out.
func (r *Requests[C]) Check(ctx context.Context, others ...client.Limit) error {
	others = slices.DeleteFunc(others, func(l client.Limit) bool { return l == r.Limit })
	if limiter, ok := layer.Beneath[interface {
		Check(context.Context, ...client.Limit) error
	}](r.Limiter); ok {
		if err := limiter.Check(ctx, append([]client.Limit{r.Limit}, others...)...); err != nil {
			return err
		}
	}
	if limiter, ok := layer.Beneath[interface {
		Peek(context.Context, client.Request) (client.Result, error)
	}](r.Limiter); ok && r.Change == nil {
		_, err := limiter.Peek(ctx, client.For(r.Name+"|", r.Limit, 0))
		return err
	}
	return nil
}

// Log returns a function that logs an error with text, at most once a second. A
// client.ErrMisconfigured is logged separately, with the remedy.
func (r *Requests[C]) Log(text string) func(ctx context.Context, err error, args ...any) {
	var failed, misconfigured throttle.Throttle
	return func(ctx context.Context, err error, args ...any) {
		lines, text := &failed, text
		if errors.Is(err, client.ErrMisconfigured) {
			lines, text, args = &misconfigured, throttle.Misconfigured, append(args, "limit", string(r.Limit), "fix", throttle.Fix)
		}
		if lines.Allow(time.Second) {
			slog.ErrorContext(ctx, text, append(args, "name", r.Name, "error", err)...)
		}
	}
}

// Apply applies options to a until one returns an error.
func Apply[A any, O ~func(*A) error](a *A, opts []O) error {
	for _, opt := range opts {
		if opt == nil {
			return errors.New("an option is nil; leave it out")
		}
		if err := opt(a); err != nil {
			return err
		}
	}
	return nil
}

// On turns on what an option without arguments stands for.
func On(field *bool) error {
	*field = true
	return nil
}

// Set stores value in field. If value is nil, it returns an error with the given text instead.
func Set[V any](field *V, value V, text string) error {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Invalid:
		return errors.New(text)
	case reflect.Chan, reflect.Func, reflect.Map, reflect.Pointer, reflect.Slice: // IsNil panics for other kinds
		if v.IsNil() {
			return errors.New(text)
		}
	}
	*field = value
	return nil
}

// Block blocks keys for at least d; it does not shorten a longer block. If d is 0 or less, it does
// nothing. It ignores the cancellation of ctx; the timeout of limiter bounds the call.
func Block(ctx context.Context, limiter client.Limiter, d time.Duration, keys []string) error {
	if d <= 0 {
		return nil
	}
	blocker, ok := layer.Beneath[interface {
		Block(context.Context, client.Block, ...string) error
	}](limiter)
	if !ok {
		return fmt.Errorf("ratelimit: a block of %v, not made, since the limiter %T has no Block and wraps none that has; give it that method, or Unwrap", d, limiter)
	}
	return blocker.Block(context.WithoutCancel(ctx), client.Block{For: d, Extend: true}, keys...)
}

// Ended reports whether ctx is done or its deadline has passed. At the deadline, a connection may
// time out before the timer of ctx fires.
func Ended(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}
