// Package envoyconfig reads the configuration files of envoyproxy/ratelimit, and finds the rule for
// a descriptor. docs/gateway.md describes these files.
package envoyconfig

import (
	"fmt"
	"strings"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/ratelimit-functions/ratelimit/client"
)

// Config holds the rules of all domains. It does not change, so goroutines may share it.
type Config struct {
	domains  map[string]*node
	notices  []string
	policies []client.Limit
	rules    int
}

// Rule describes how to decide on a descriptor.
type Rule struct {
	Label     string       // for metrics: the rule's domain, keys and values as configured
	Name      string       // for responses and for Replaces of other rules; may be empty
	Limit     client.Limit // empty if Unlimited
	Count     uint32       // requests_per_unit; 0 if the rule has the field limit instead
	Unit      rls.RateLimitResponse_RateLimit_Unit
	Unlimited bool
	Shadow    bool     // shadow_mode: decided and counted, but the status is never OVER_LIMIT
	Quota     bool     // quota_mode: like Shadow, but a denial counts as denied in the metrics
	Replaces  []string // names of rules that this rule replaces within a request
}

// node is a node in the tree that the nested descriptors of a domain form.
type node struct {
	exact     map[pair]*node // a descriptor without a value has an empty value
	wildcards []wildcard     // in the order in which they are configured
	rule      *Rule
	shared    bool // share_threshold: all values that match the wildcard share a key
}

type pair struct{ key, value string }

// wildcard is a descriptor whose value, or whose key if it has no value, ends with *.
type wildcard struct {
	key     string // not used if ofKey
	prefix  string // the text before the *
	ofKey   bool   // whether the * is in the key
	pattern string // the value as written
	node    *node
}

func (w *wildcard) matches(key, value string) bool {
	if w.ofKey {
		return strings.HasPrefix(key, w.prefix)
	}
	return key == w.key && strings.HasPrefix(value, w.prefix)
}

// Rules returns the number of rules.
func (c *Config) Rules() int { return c.rules }

// Notices describes the features that the configuration uses but this service does not support, one
// sentence each.
func (c *Config) Notices() []string { return c.notices }

// Policies returns the policies that the rules name, such as @api. Only a server knows whether they
// exist.
func (c *Config) Policies() []client.Limit { return c.policies }

// Known reports whether the configuration contains this domain.
func (c *Config) Known(domain string) bool { return c.domains[domain] != nil }

// Find returns the rule for a descriptor, and the key on the server. It returns nil if no rule has
// exactly the descriptor's entries. For each entry, an exact value takes precedence over a
// wildcard, and a wildcard over a descriptor without a value.
func (c *Config) Find(domain string, descriptor []*entries.RateLimitDescriptor_Entry) (*Rule, string) {
	at := c.domains[domain]
	if at == nil || len(descriptor) == 0 {
		return nil, ""
	}
	var patterns map[int]string
	for i, entry := range descriptor {
		next := at.exact[pair{entry.Key, entry.Value}]
		if next == nil {
			for w := range at.wildcards {
				if at.wildcards[w].matches(entry.Key, entry.Value) {
					next = at.wildcards[w].node
					if next.shared {
						if patterns == nil {
							patterns = map[int]string{}
						}
						patterns[i] = at.wildcards[w].pattern
					}
					break
				}
			}
		}
		if next == nil {
			next = at.exact[pair{entry.Key, ""}]
		}
		if next == nil {
			return nil, ""
		}
		at = next
	}
	if at.rule == nil {
		return nil, ""
	}
	return at.rule, Key(domain, descriptor, patterns)
}

// Known reports whether a limit can have this unit.
func Known(unit rls.RateLimitResponse_RateLimit_Unit) bool { return units[unit] != "" }

// units maps the units of the configuration to the periods of limits. Weeks, months and years are
// those of the calendar; a week begins on Monday.
var units = map[rls.RateLimitResponse_RateLimit_Unit]string{
	rls.RateLimitResponse_RateLimit_SECOND: "s",
	rls.RateLimitResponse_RateLimit_MINUTE: "m",
	rls.RateLimitResponse_RateLimit_HOUR:   "h",
	rls.RateLimitResponse_RateLimit_DAY:    "d",
	rls.RateLimitResponse_RateLimit_WEEK:   "w",
	rls.RateLimitResponse_RateLimit_MONTH:  "mo",
	rls.RateLimitResponse_RateLimit_YEAR:   "y",
}

// Window returns the limit for a rule with a unit: a window aligned with the clock. A count of 0
// denies every request. If multiplier is above 1, a week counts as 7 days, a month as 30 days and a
// year as 365 days.
func Window(count uint32, unit rls.RateLimitResponse_RateLimit_Unit, multiplier uint32) client.Limit {
	period := units[unit]
	days := map[string]uint64{"w": 7, "mo": 30, "y": 365}[period]
	switch {
	case count == 0:
		return "0/s"
	case multiplier > 1 && days > 0:
		period = fmt.Sprintf("%dd", days*uint64(multiplier))
	case multiplier > 1:
		period = fmt.Sprintf("%d%s", multiplier, period)
	}
	return client.Limit(fmt.Sprintf("fixed_window %d/%s align=clock", count, period))
}
