package dashboard

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
	"github.com/ratelimit-functions/ratelimit/internal/usage"
)

// state is what the page shows. Times are in ms since the epoch, by the servers' clock except for
// LookedMS.
type state struct {
	Servers  string   `json:"servers"`
	LookedMS int64    `json:"looked_ms"` // end of the last complete look, by this machine's clock
	Faults   []string `json:"faults"`    // current problems

	Nodes    []Node   `json:"nodes"`
	Policies []policy `json:"policies"`      // null if not known yet
	More     int      `json:"more_policies"` // number of policies that are not in Policies

	NowMS    int64              `json:"now_ms"`
	Progress string             `json:"progress"` // of the first look while it runs, else ""
	Keys     int64              `json:"keys"`     // keys with usage
	Refused  int64              `json:"refused"`
	Sum      usage.Count        `json:"sum"`
	PerSec   usage.Rate         `json:"per_second"`
	Points   []usage.Rate       `json:"points"` // PerSec of each look, the newest last
	Top      map[string][]entry `json:"top"`    // by order
}

// policy is a policy, and how many allowed calls it would have denied if it were not a shadow
// policy.
type policy struct {
	Name         string   `json:"name"`
	Limits       []string `json:"limits"`
	Shadow       bool     `json:"shadow"`
	Track        bool     `json:"track"`
	Denied       int64    `json:"shadow_denied"`
	DeniedPerSec float64  `json:"shadow_denied_per_second"`
}

// entry is a usage key.
type entry struct {
	Shown string `json:"shown"` // for people
	Key   string `json:"key"`   // base64url, for requests; "" if it is too long for them
	usage.Count
	Cost    int64      `json:"cost"`
	FirstMS int64      `json:"first_ms"`
	LastMS  int64      `json:"last_ms"`
	PerSec  usage.Rate `json:"per_second"`
}

const (
	longestKey   = 2048 // most bytes of a key in a request's address
	longestShown = 80
	mostPolicies = 500
)

// look queries the servers and publishes the results, even if some servers fail.
func (d *Dashboard) look(ctx context.Context) {
	var faults []string
	dead := false // the servers are unreachable; later errors would say the same
	fault := func(err error, words func(error) string) {
		if err == nil || ctx.Err() != nil {
			return
		}
		if text := words(err); !slices.Contains(faults, text) {
			faults = append(faults, text)
		}
	}
	if d.looks%nodesAt == 0 || len(d.state.Faults) > 0 {
		nodes, err := d.from.Nodes(ctx)
		fault(err, d.from.Explain)
		dead = err != nil && len(nodes) == 0 || slices.ContainsFunc(nodes, func(n Node) bool { return n.Dead })
		d.publish(func(s *state) { s.Nodes = nodes })
	}
	d.looks++
	rdb, err := d.connection(ctx)
	if err != nil {
		if !dead {
			fault(err, d.from.Explain)
		}
		d.publish(func(s *state) { s.Faults = faults })
		return
	}
	policies, more, err := d.policies(ctx, rdb)
	if err == nil || len(policies) > 0 { // some servers replied
		d.publish(func(s *state) { s.Policies, s.More = policies, more })
	}
	if !dead {
		fault(err, d.from.Explain)
	}
	found, err := d.scan(ctx, rdb)
	if !dead {
		fault(err, d.from.Faults)
	}
	if ctx.Err() != nil {
		return
	}
	d.publish(func(s *state) {
		s.Faults = faults
		if err != nil && found.Tracked == 0 { // the last result is better than nothing
			return
		}
		if err == nil {
			s.LookedMS = time.Now().UnixMilli()
		}
		d.show(s, found)
		s.Progress = ""
		s.Points = append(s.Points[max(0, len(s.Points)+1-kept):], s.PerSec)
	})
	if err == nil {
		d.before = &found
	}
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

// show writes the result of a scan into the state.
func (d *Dashboard) show(s *state, found usage.Snapshot) {
	s.NowMS, s.Keys, s.Refused, s.Sum, s.PerSec = found.At.UnixMilli(), found.Tracked, found.Refused, found.Sum, found.Rate(d.before)
	s.Top = map[string][]entry{}
	for order, records := range found.Top {
		list := []entry{}
		for _, r := range records {
			e := entry{
				Shown: d.shown(r.Key), Count: r.Count, Cost: r.Cost, FirstMS: r.First.UnixMilli(), LastMS: r.Last.UnixMilli(),
				PerSec: found.RateOf(r, d.before),
			}
			if len(r.Key) <= longestKey {
				e.Key = base64.RawURLEncoding.EncodeToString([]byte(r.Key))
			}
			list = append(list, e)
		}
		s.Top[string(order)] = list
	}
}

// shown returns a key for people, truncated if it is long and then followed by its length.
func (d *Dashboard) shown(key string) string {
	head := key
	if len(head) > 4*longestShown {
		head = strings.ToValidUTF8(head[:4*longestShown], "")
	}
	text := []rune(d.from.Visible(head))
	if len(text) <= longestShown && head == key {
		return string(text)
	}
	return fmt.Sprintf("%s… (%d bytes)", string(text[:min(len(text), longestShown)]), len(key))
}

// knownPolicies caches the policies of one build.
type knownPolicies struct {
	build string
	all   []functions.Policy
}

// shadows has, for each shadow policy, how many allowed calls it would have denied, and when that
// was read.
type shadows struct {
	at     time.Time
	denied map[string]int64
}

// policies returns the policies of the running builds, with what all primaries counted for shadow
// policies.
func (d *Dashboard) policies(ctx context.Context, rdb redis.UniversalClient) (list []policy, more int, _ error) {
	var mu sync.Mutex
	denied := map[string]int64{}
	known := map[string]policy{}
	var failed error
	each := func(ctx context.Context, node *redis.Client) error {
		c, err := client.New(node, client.WithTimeout(node.Options().ReadTimeout))
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
