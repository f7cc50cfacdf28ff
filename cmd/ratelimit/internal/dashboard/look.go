package dashboard

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/usage"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
)

// state is the content of the page. Times are in ms since the epoch, by the servers' clock except
// for LookedMS.
type state struct {
	Servers  string   `json:"servers"`
	LookedMS int64    `json:"looked_ms"` // end of the last complete poll, by this machine's clock
	Faults   []string `json:"faults"`    // current problems

	Nodes     []Node   `json:"nodes"`
	Policies  []policy `json:"policies"`      // null if not known yet
	More      int      `json:"more_policies"` // number of rows that are not in Policies
	Uncounted []string `json:"uncounted"`     // servers whose library is too old to count calls for policies

	Calls    usage.Rate         `json:"calls"`  // calls of all policies a second; a shadow allows all of its calls
	Points   []point            `json:"points"` // rates of each poll, the newest last: of the policies or, if there are none, of the usage keys
	NowMS    int64              `json:"now_ms"`
	Progress string             `json:"progress"` // progress of the first poll while it runs; "" afterwards
	Keys     int64              `json:"keys"`     // keys with usage
	Refused  int64              `json:"refused"`
	Sum      usage.Count        `json:"sum"`
	PerSec   usage.Rate         `json:"per_second"`
	Top      map[string][]entry `json:"top"` // the first usage keys of each sort order
}

type point struct {
	AtMS int64 `json:"at_ms"` // time by this machine's clock
	usage.Rate
}

// policy is a row of the page's table of policies: a policy, a canary, or a part of the policy's calls,
// such as those of a class. The calls are summed over all primaries.
type policy struct {
	Name    string   `json:"name"`
	Limits  []string `json:"limits"`
	Shadow  bool     `json:"shadow"`
	Track   bool     `json:"track"`
	Share   int64    `json:"canary_share_per_mille"` // the canary's share of the keys; 0 if the row is not a canary
	Part    string   `json:"part"`                   // the calls in the row, if not all: "class batch 50%", "guaranteed" or "borrowed"
	Counted bool     `json:"counted"`                // false if no primary that replied counts calls
	usage.Count
	PerSec usage.Rate `json:"per_second"`
}

// entry is a usage key and its usage.
type entry struct {
	Shown string `json:"shown"` // for display
	Key   string `json:"key"`   // in base64url, for requests to /usage; "" if the key is longer than longestKey
	usage.Entry
}

const (
	longestKey   = 2048 // maximum length in bytes of a key in a URL
	longestShown = 80
	mostPolicies = 500
)

// look polls the servers once and publishes the results, even if some servers fail.
func (d *Dashboard) look(ctx context.Context) {
	var faults []string
	dead := false // whether a server is unreachable; later errors would only repeat this
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
	policies, more, uncounted, err := d.policies(ctx, rdb)
	if policies != nil { // policies is nil if no server replied
		d.publish(func(s *state) {
			s.Policies, s.More, s.Uncounted = policies[:len(policies)-more], more, uncounted
			s.Calls = usage.Rate{}
			for _, p := range policies {
				if p.Part != "" {
					continue // another row has these calls, too
				}
				if p.Shadow {
					p.PerSec.Allowed, p.PerSec.Denied = p.PerSec.Allowed+p.PerSec.Denied, 0
				}
				s.Calls.Allowed += p.PerSec.Allowed
				s.Calls.Denied += p.PerSec.Denied
			}
		})
	}
	if !dead {
		fault(err, d.from.Faults)
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
		if err != nil && found.Tracked == 0 { // keep the last result
			return
		}
		if err == nil {
			s.LookedMS = time.Now().UnixMilli()
		}
		d.show(s, found)
		s.Progress = ""
		now := point{time.Now().UnixMilli(), s.Calls}
		if len(s.Policies) == 0 {
			now.Rate = s.PerSec
		}
		s.Points = append(s.Points[max(0, len(s.Points)+1-kept):], now)
	})
	if err == nil {
		d.before = &found
	}
}

func (d *Dashboard) show(s *state, found usage.Snapshot) {
	s.NowMS, s.Keys, s.Refused, s.Sum, s.PerSec = found.At.UnixMilli(), found.Tracked, found.Refused, found.Sum, found.Rate(d.before)
	s.Top = map[string][]entry{}
	for order, records := range found.Top {
		list := []entry{}
		for _, r := range records {
			e := entry{Shown: shown(r.Key), Entry: found.Entry(r, d.before)}
			if len(r.Key) <= longestKey {
				e.Key = base64.RawURLEncoding.EncodeToString([]byte(r.Key))
			}
			list = append(list, e)
		}
		s.Top[string(order)] = list
	}
}

// shown returns a key for display. A long key is truncated, and followed by its length.
func shown(key string) string {
	head := key
	if len(head) > 4*longestShown {
		head = strings.ToValidUTF8(head[:4*longestShown], "")
	}
	text := []rune(printable.Key(head))
	if len(text) <= longestShown && head == key {
		return string(text)
	}
	return fmt.Sprintf("%s… (%d bytes)", string(text[:min(len(text), longestShown)]), len(key))
}
