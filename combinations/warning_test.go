package combinations

import (
	"context"
	"math/big"
	"slices"
	"strings"

	"github.com/ratelimit-functions/ratelimit/client"
)

// warned asks for the warning of a take's result, and checks it.
func (s *scenario) warned(st *step, req client.Request, o outcome) {
	id, ctx := s.call(context.Background())
	got := s.clients[st.client].Warning(ctx, req, o.res)
	if a := s.account(id); a.executed > 0 {
		s.broke("a warning decides nothing", "Warning sent %d commands that are no questions", a.executed)
	}
	// The client remembers for a minute from which percentage on a policy warns. So the other build may
	// have told it. Without a reply, it says nothing.
	possible := []int{warning(0, req, o), warning(1, req, o)}
	if o.res.Source != "server" || st.outage || st.close || len(st.faults) > 0 || s.plan.Fallback != "" {
		possible = append(possible, 0)
	}
	if !slices.Contains(possible, got) {
		s.broke("a warning says how much of the limit is used", "%d %% of %+v, want one of %v", got, o.res, possible)
	}
}

// warning returns what a client should say that knows the policies of a build.
func warning(build int, req client.Request, o outcome) int {
	if o.err != nil || !o.res.Allowed || o.res.Limit == 0 {
		return 0
	}
	text := string(req.Limits[0])
	switch {
	case len(req.Limits) == len(req.Keys):
		text = string(req.Limits[o.res.Index-1])
	case len(req.Limits) > 1:
		return 0
	}
	name, ok := strings.CutPrefix(text, "@")
	from := warns[build][name]
	if !ok || from == 0 {
		return 0
	}
	used := big.NewInt(o.res.Limit - max(o.res.Remaining, 0))
	used.Div(used.Mul(used, big.NewInt(100)), big.NewInt(o.res.Limit))
	if percent := int(used.Int64()); percent >= from {
		return percent
	}
	return 0
}
