package rls

import (
	"context"
	"sync"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/remedy"
)

// penalize blocks the keys that policies with a penalty have denied. If a block fails, the denial holds.
// Rules in shadow and quota mode deny nothing, and descriptors that take no units only ask.
func (s *Server) penalize(ctx context.Context, list []question) {
	var wait sync.WaitGroup
	for i := range list {
		q := &list[i]
		if !q.over() || q.quota || q.back || q.hits == 0 || q.limit[0] != '@' {
			continue
		}
		wait.Go(func() {
			result, err := s.Limiter.Penalize(ctx, client.Block{}, client.For(q.key, q.limit), q.result)
			if q.result = result; err != nil {
				s.logs.Do(func() {
					s.Log.Error("a denial got no penalty", "source", source, "name", q.label, "error", remedy.For(err))
				})
			}
		})
	}
	wait.Wait()
}
