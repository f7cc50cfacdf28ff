package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/reply"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
	"github.com/ratelimit-functions/ratelimit/internal/usage"
)

// readLimiter reads the state of a limiter, for /peek.
func readLimiter(ctx context.Context, c *client.Client, keys []string, limit string) (any, error) {
	req := client.Request{Keys: keys}
	for range keys {
		if req.Limits = append(req.Limits, client.Limit(limit)); limit[0] == '@' { // a policy has limits for all keys
			break
		}
	}
	res, err := c.PeekRequest(ctx, req)
	if err != nil {
		return nil, err
	}
	return reply.NewDecision(req, res), nil
}

// readUsage reads what was counted under a usage key, for /usage.
func readUsage(ctx context.Context, c *client.Client, key string) (any, error) {
	u, err := c.Usage(ctx, key)
	return reply.NewUsage(u), err
}

// scan scans the usage keys. The first scan is shown while it runs.
func (d *Dashboard) scan(ctx context.Context, rdb redis.UniversalClient) (usage.Snapshot, error) {
	scan := usage.New(rows, "", usage.Orders...)
	over := make(chan error, 1)
	go func() { over <- scan.Run(ctx, rdb) }()
	for {
		select {
		case err := <-over:
			return scan.Snapshot(), err
		case <-time.After(500 * time.Millisecond):
			if d.before == nil {
				found := scan.Snapshot()
				d.publish(func(s *state) {
					d.show(s, found)
					s.Progress = fmt.Sprintf("the first look is under way: %d of %d keys", found.Looked, found.Keys)
				})
			}
		}
	}
}

// knownPolicies caches the policies of one build.
type knownPolicies struct {
	build string
	all   []functions.Policy
}

// shadows contains, for each shadow policy, how many allowed calls it would have denied, as of the
// time at.
type shadows struct {
	at     time.Time
	denied map[string]int64
}

// policies returns the policies of the builds that the primaries run, with the denials that all
// primaries together counted for shadow policies. more is the number of policies that the list
// leaves out.
func (d *Dashboard) policies(ctx context.Context, rdb redis.UniversalClient) (list []policy, more int, _ error) {
	var mu sync.Mutex
	denied := map[string]int64{}
	known := map[string]policy{}
	var failed error
	each := func(ctx context.Context, node *redis.Client) error {
		c, err := client.New(node, client.WithTimeout(d.from.Timeout))
		if err != nil {
			return err
		}
		info, err := c.Info(ctx)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed = cmp.Or(failed, err)
			return nil
		}
		if d.policy.build != info.BuildID {
			d.policy = knownPolicies{info.BuildID, readPolicies(ctx, node)}
		}
		for _, name := range info.Policies {
			known[name] = policy{Name: name, Limits: []string{}}
		}
		for _, p := range d.policy.all {
			about := policy{Name: p.Name, Limits: []string{}, Shadow: p.Shadow, Track: p.Track}
			for _, limit := range p.Limits {
				text := limit.Limit
				if limit.Key != "" {
					text = limit.Key + ": " + text
				}
				about.Limits = append(about.Limits, text)
			}
			known[p.Name] = about
		}
		for name, n := range info.ShadowDenied {
			denied[name] += n
			about := known[name]
			about.Shadow = true
			known[name] = about
		}
		return nil
	}
	err := usage.EachPrimary(ctx, rdb, each)
	now := time.Now()
	list = []policy{}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		p := known[name]
		if before, counted := d.shadow.denied[name]; counted && denied[name] > before {
			p.DeniedPerSec = float64(denied[name]-before) / now.Sub(d.shadow.at).Seconds()
		}
		p.Denied, p.Name = denied[name], printable.Line(name)
		for i, limit := range p.Limits {
			p.Limits[i] = printable.Line(limit)
		}
		list = append(list, p)
	}
	d.shadow = shadows{now, denied}
	slices.SortStableFunc(list, func(a, b policy) int { return cmp.Compare(b.Denied, a.Denied) })
	more = max(0, len(list)-mostPolicies)
	return list[:len(list)-more], more, cmp.Or(failed, err)
}

// readPolicies reads the policies from the text of a server's library, or returns nil if the user
// may not read it.
func readPolicies(ctx context.Context, node *redis.Client) []functions.Policy {
	libraries, err := node.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: functions.Name, WithCode: true}).Result()
	if err != nil || len(libraries) != 1 {
		return nil
	}
	policies, _ := functions.ReadPolicies(libraries[0].Code)
	return policies
}
