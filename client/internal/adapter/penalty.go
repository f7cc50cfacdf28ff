package adapter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/internal/layer"
	"github.com/ratelimit-functions/ratelimit/internal/penalty"
)

// penalizer is a layer that can block what it denies.
type penalizer interface {
	Penalize(context.Context, client.Block, client.Request, client.Result) (client.Result, error)
}

// Warning returns the percentage of the limit that is used, if the policy of req warns from it on, and else 0.
func (r *Requests[C]) Warning(ctx context.Context, req client.Request, result client.Result) int {
	limiter, ok := layer.Beneath[interface {
		Warning(context.Context, client.Request, client.Result) int
	}](r.Limiter)
	if !ok {
		return 0
	}
	return limiter.Warning(context.WithoutCancel(ctx), req, result)
}

// SetPenalty sets the penalty for denials, in place of that of the policy.
func (r *Requests[C]) SetPenalty(first, longest, forget time.Duration) error {
	wrong := penalty.Fault(first, longest, forget)
	if _, ok := layer.Beneath[penalizer](r.Limiter); wrong == "" && !ok {
		wrong = fmt.Sprintf("the limiter %T has no Penalize, and wraps none that has; give it a method Unwrap, or leave WithPenalty out", r.Limiter)
	}
	if wrong != "" {
		return errors.New("WithPenalty: " + wrong)
	}
	r.penalty = client.Block{For: first, Max: longest, Forget: forget}
	return nil
}

// Take is [Take], and then penalizes a denial, if there is a penalty. A penalty that fails is logged, at
// most once a second, and the denial holds.
func (r *Requests[C]) Take(ctx context.Context, req client.Request) (client.Result, error) {
	result, err := Take(ctx, r.Limiter, req)
	if err != nil || result.Allowed {
		return result, err
	}
	if limiter, ok := layer.Beneath[penalizer](r.Limiter); ok {
		var failed error
		if result, failed = limiter.Penalize(context.WithoutCancel(ctx), r.penalty, req, result); failed != nil && r.unpenalized.Allow(time.Second) {
			slog.ErrorContext(ctx, "a denial got no penalty", "name", r.Name, "error", failed)
		}
	}
	return result, nil
}
