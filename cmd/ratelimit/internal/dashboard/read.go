package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/replyjson"
	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/policycalls"
	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/usage"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
)

func readLimiter(ctx context.Context, c *client.Client, keys []string, limit string) (any, error) {
	req := client.Request{Keys: keys}
	for range keys {
		if req.Limits = append(req.Limits, client.Limit(limit)); limit[0] == '@' { // a policy contains the limits of all keys
			break
		}
	}
	res, err := c.Peek(ctx, req)
	if err != nil {
		return nil, err
	}
	return replyjson.Of(req, res), nil
}

// scan scans the usage keys. The first scan is shown while it runs.
func (d *Dashboard) scan(ctx context.Context, rdb redis.UniversalClient) (usage.Snapshot, error) {
	return usage.New(rows, "", usage.Orders...).RunShown(ctx, rdb, 500*time.Millisecond, func(found usage.Snapshot) {
		if d.before == nil {
			d.publish(func(s *state) {
				d.show(s, found)
				s.Progress = fmt.Sprintf("the first look is under way: %d of %d keys", found.Looked, found.Keys)
			})
		}
	})
}

// policies returns the rows of the table of policies: the policies that denied the most calls come
// first, and each canary follows its policy. more is the number of rows that the page leaves out.
func (d *Dashboard) policies(ctx context.Context, rdb redis.UniversalClient) (list []policy, more int, uncounted []string, _ error) {
	fleet, err := d.reader.Read(ctx, rdb)
	if fleet.Replied == 0 {
		return nil, 0, nil, err
	}
	denied := func(p policycalls.Policy) int64 {
		if p.Canary != nil {
			return p.Denied + p.Canary.Denied
		}
		return p.Denied
	}
	slices.SortStableFunc(fleet.Policies, func(a, b policycalls.Policy) int { return cmp.Compare(denied(b), denied(a)) })
	list = []policy{}
	for _, p := range fleet.Policies {
		list = append(list, newPolicy(p.Name, p.Limits, p.Shadow, p.Track, 0, p.Calls))
		if c := p.Canary; c != nil {
			list = append(list, newPolicy(p.Name, c.Limits, c.Shadow, p.Track, c.Share, c.Calls))
		}
		list = append(list, parts(p)...)
	}
	for _, addr := range fleet.Uncounted {
		uncounted = append(uncounted, printable.Line(d.from.NodeName(addr)))
	}
	return list, max(0, len(list)-mostPolicies), uncounted, err
}

// parts returns a row for each class of a policy, and rows for the calls that its guarantee and its pool
// paid.
func parts(p policycalls.Policy) (list []policy) {
	add := func(part string, shadow bool, calls policycalls.Calls) {
		row := newPolicy(p.Name, nil, shadow, false, 0, calls)
		row.Part = part
		list = append(list, row)
	}
	for _, c := range p.Classes {
		part := "class " + c.Name
		if c.Percent != nil {
			part += fmt.Sprintf(" %d%%", *c.Percent)
		}
		add(part, p.Shadow, policycalls.Calls{Counted: true, Count: c.Count, PerSec: c.PerSec})
	}
	if pool := p.Pool; pool != nil && p.Counted {
		rate := cmp.Or(pool.PerSec, &policycalls.Paid{})
		add("guaranteed", false, policycalls.Calls{Counted: true, Count: usage.Count{Allowed: pool.Guaranteed}, PerSec: &usage.Rate{Allowed: rate.Guaranteed}})
		add("borrowed", false, policycalls.Calls{Counted: true, Count: usage.Count{Allowed: pool.Borrowed}, PerSec: &usage.Rate{Allowed: rate.Borrowed}})
	}
	return list
}

func newPolicy(name string, limits []string, shadow, track bool, share int64, calls policycalls.Calls) policy {
	row := policy{Name: printable.Line(name), Limits: []string{}, Shadow: shadow, Track: track, Share: share, Counted: calls.Counted, Count: calls.Count}
	for _, limit := range limits {
		row.Limits = append(row.Limits, printable.Line(limit))
	}
	if calls.PerSec != nil {
		row.PerSec = *calls.PerSec
	}
	return row
}
