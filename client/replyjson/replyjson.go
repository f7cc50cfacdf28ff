// Package replyjson makes the JSON of replies: what the gateway sends, and what the command ratelimit
// prints with --json. The fields are named as in the wire contract. Durations are in ms.
package replyjson

import "time"

// Decision is the reply to take, peek and refund.
type Decision struct {
	Allowed      bool   `json:"allowed"`
	Taken        *int64 `json:"taken,omitempty"` // units, for a call with UpTo
	Limit        int64  `json:"limit"`
	Remaining    int64  `json:"remaining"`
	RetryAfterMS int64  `json:"retry_after_ms"` // -1: never
	ResetAfterMS int64  `json:"reset_after_ms"`
	Index        int    `json:"index"` // number of the binding key, from 1; 0 if there is no decision
	Key          string `json:"key"`   // the binding key, or ""

	Shadow *Shadow `json:"shadow,omitempty"` // for a call with a shadow policy
	Each   []Key   `json:"each,omitempty"`   // for a call with Each
}

// Key is the separate result of one key's limit.
type Key struct {
	Key          string `json:"key"`
	Allowed      bool   `json:"allowed"`
	Limit        int64  `json:"limit"`
	Remaining    int64  `json:"remaining"`
	RetryAfterMS int64  `json:"retry_after_ms"` // -1: never
	ResetAfterMS int64  `json:"reset_after_ms"`
}

// Shadow is the decision that the call would get if its shadow policies were enforced.
type Shadow struct {
	Allowed      bool   `json:"allowed"`
	Taken        *int64 `json:"taken,omitempty"`
	RetryAfterMS int64  `json:"retry_after_ms"` // -1: never
	Index        int    `json:"index"`
}

// ms returns wait in milliseconds, or -1 if it is negative: never.
func ms(wait time.Duration) int64 {
	if wait < 0 {
		return -1
	}
	return wait.Milliseconds()
}

// Lease is the reply to acquire and renew.
type Lease struct {
	Decision
	LeaseID string `json:"lease_id"`
	LeaseMS int64  `json:"lease_ms"` // how long this lease is held; 0 if it is not held
}

// Released is the reply to release.
type Released struct {
	Released bool   `json:"released"`
	LeaseID  string `json:"lease_id"`
}

// Blocked is the reply to block.
type Blocked struct {
	Blocked int   `json:"blocked"` // number of keys
	ForMS   int64 `json:"for_ms"`
}

// Unblocked is the reply to unblock.
type Unblocked struct {
	Unblocked int64 `json:"unblocked"` // keys that were blocked
	Keys      int   `json:"keys"`
}

// Overridden is the reply to override.
type Overridden struct {
	Overridden int    `json:"overridden"` // number of keys
	Limit      string `json:"limit"`
	ForMS      int64  `json:"for_ms"`
}

// OverrideEnded is the reply to override_end.
type OverrideEnded struct {
	Ended int64 `json:"ended"` // keys that had an override
	Keys  int   `json:"keys"`
}

// Reset is the reply to reset.
type Reset struct {
	Reset int64 `json:"reset"` // number of keys that existed
	Keys  int   `json:"keys"`
}

// Info is the reply to ratelimit_info.
type Info struct {
	Version      string           `json:"version"`
	Contract     int64            `json:"contract"`
	BuildID      string           `json:"build_id"`
	Policies     []string         `json:"policies"`
	ShadowDenied map[string]int64 `json:"shadow_denied"`
}

// Usage is the reply to usage, with times in ms since the epoch.
type Usage struct {
	Allowed    int64    `json:"allowed"`
	Denied     int64    `json:"denied"`
	Cost       int64    `json:"cost"`
	FirstMS    int64    `json:"first_ms"` // 0: never
	LastMS     int64    `json:"last_ms"`
	IntervalMS int64    `json:"interval_ms"`
	Series     []Minute `json:"series"`
}

// Minute holds the counts of one interval of the series.
type Minute struct {
	StartMS int64 `json:"start_ms"`
	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied"`
}
