package cli

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/usage"
	"github.com/ratelimit-functions/ratelimit/internal/sleep"
)

// topLive shows one pass after another on the full screen until the user quits, and leaves the last
// one on the screen.
func (a *app) topLive(ctx context.Context, rdb redis.UniversalClient, s servers, f topFlags) error {
	shown := &topView{by: usage.Order(f.by)}
	err := a.live(ctx, shown, func(ctx context.Context, change func(func())) {
		show := func(p pass) { change(func() { shown.show(p) }) }
		a.topPasses(ctx, rdb, s, f, usage.Orders, show, show)
	})
	if err != nil {
		return err
	}
	a.printPass(shown.pass)
	return shown.pass.err
}

// topPasses scans repeatedly until ctx is done, and shows each pass when it is complete. A pass has
// the top keys in each of the given orders. If running is not nil, topPasses also shows the first
// pass while it runs.
func (a *app) topPasses(ctx context.Context, rdb redis.UniversalClient, s servers, f topFlags, orders []usage.Order, running, show func(pass)) {
	by := usage.Order(f.by)
	var before *usage.Snapshot
	for ctx.Err() == nil {
		found, err := usage.New(f.limit, f.match, orders...).RunShown(ctx, rdb, 200*time.Millisecond, func(found usage.Snapshot) {
			if running != nil && before == nil && found.Tracked > 0 { // otherwise the previous pass stays on the screen
				running(pass{by: by, found: found})
			}
		})
		show(pass{by, found, before, a.faults(s, err, topRights)})
		if err == nil {
			before = &found
		}
		_ = sleep.For(ctx, f.interval)
	}
}

type topView struct {
	pass pass // the latest pass, with the top keys in every order
	any  bool // whether a pass has been received
	by   usage.Order
}

func (t *topView) show(p pass) {
	if p.err != nil && p.found.Tracked == 0 {
		p.found, p.before = t.pass.found, t.pass.before // keep showing the last result
	}
	p.by = t.by
	t.pass, t.any = p, true
}

func (t *topView) press(key byte) {
	if key == 'b' {
		t.by = usage.Orders[(slices.Index(usage.Orders, t.by)+1)%len(usage.Orders)]
		t.pass.by = t.by
	}
}

func (t *topView) lines(l look) []string {
	var lines []string
	fault := ""
	if t.pass.err != nil {
		fault = t.pass.err.Error()
	}
	if t.any {
		lines = topLines(t.pass, l, max(1, l.width))
	}
	return l.screen("ratelimit top", " by "+string(t.by)+" · b: other order", fault, lines)
}
