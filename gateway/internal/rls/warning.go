package rls

import (
	"context"
	"slices"
	"strconv"
	"sync"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// warning returns X-RateLimit-Warning for an allowed request, if a policy of one of its descriptors warns: the
// percentage of the limit that is used, and of several the largest. A shadow policy counts only if no enforced
// limit is beside it. To find out which policies warn may take a call for each; they are made at the same time,
// and end with the deadline of the request.
func (s *Server) warning(ctx context.Context, list []question) []*core.HeaderValue {
	limited, cancel := context.WithoutCancel(ctx), context.CancelFunc(func() {})
	if deadline, hurried := ctx.Deadline(); hurried {
		limited, cancel = context.WithDeadline(limited, deadline.Add(-s.Margin))
	}
	defer cancel()
	enforced := false
	for i := range list {
		enforced = enforced || list[i].limit != "" && list[i].decided && !list[i].trial()
	}
	used := make([]int, len(list))
	var wait sync.WaitGroup
	for i := range list {
		q := &list[i]
		if q.limit == "" || q.limit[0] != '@' || !q.decided || q.back || q.hits == 0 || 2*q.result.Remaining > q.result.Limit ||
			q.shadow || q.quota || enforced && q.trial() {
			continue
		}
		wait.Go(func() { used[i] = s.Limiter.Warning(limited, q.request(q.hits), q.result) })
	}
	wait.Wait()
	largest := slices.Max(append(used, 0))
	if largest == 0 {
		return nil
	}
	return []*core.HeaderValue{{Key: "X-RateLimit-Warning", Value: strconv.Itoa(largest)}}
}

// trial reports whether the descriptor denies nothing, or may be one that does not.
func (q *question) trial() bool { return q.shadow || q.quota || q.aside || q.result.Shadow != nil }
