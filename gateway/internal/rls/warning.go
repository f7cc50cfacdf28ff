package rls

import (
	"context"
	"strconv"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// warning returns X-RateLimit-Warning for an allowed request, if a policy of one of its descriptors warns: the
// percentage of the limit that is used, and of several the largest. To find out which policies warn may take a
// call. It ends with the deadline of the request.
func (s *Server) warning(ctx context.Context, list []question) []*core.HeaderValue {
	largest := 0
	for i := range list {
		q := &list[i]
		if q.limit == "" || q.limit[0] != '@' || !q.decided || q.back || q.hits == 0 || 2*q.result.Remaining > q.result.Limit {
			continue
		}
		limited, cancel := context.WithoutCancel(ctx), context.CancelFunc(func() {})
		if deadline, hurried := ctx.Deadline(); hurried {
			limited, cancel = context.WithDeadline(limited, deadline.Add(-s.Margin))
		}
		largest = max(largest, s.Limiter.Warning(limited, q.request(q.hits), q.result))
		cancel()
	}
	if largest == 0 {
		return nil
	}
	return []*core.HeaderValue{{Key: "X-RateLimit-Warning", Value: strconv.Itoa(largest)}}
}
