package policycalls

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/usage"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// Fleet holds the policies of all primaries, and the counts of their calls.
type Fleet struct {
	Replied   int      // number of primaries that replied
	Uncounted []string // addresses of the primaries whose library is too old to count calls
	Libraries []Library
	Policies  []Policy // sorted by name
}

// Library describes a library that primaries run.
type Library struct {
	Version  string `json:"version"`
	BuildID  string `json:"build_id"`
	Contract int64  `json:"contract"`
	Servers  int    `json:"servers"` // number of primaries that run it
}

// Policy describes a deployed policy. If the user may not read the library's source code, Limits is
// nil and Track is false. Shadow is then true for both the policy and its canary if either is a
// shadow, because ratelimit_info does not distinguish them.
type Policy struct {
	Name   string   `json:"name"`
	Limits []string `json:"limits"` // such as "10/s" or, with the name of the key, "user: 10/s"
	Shadow bool     `json:"shadow"`
	Track  bool     `json:"track"`
	Calls
	Canary   *Canary `json:"canary,omitempty"`    // nil if the policy has none
	Classes  []Class `json:"classes,omitempty"`   // sorted by name
	AnyClass bool    `json:"any_class,omitempty"` // calls may name any class; false if the source code cannot be read
	Pool     *Pool   `json:"pool,omitempty"`      // nil if the policy has no guarantee, or if that is not known
	Penalty  string  `json:"penalty,omitempty"`   // such as "1m..1h, forget 1d"; "" if there is none, or if that is not known
}

// Class holds the calls of a class of a policy, with those that the canary decided.
type Class struct {
	Name    string `json:"name"`
	Percent *int   `json:"percent,omitempty"` // how much of the capacities its calls keep free; nil if the source code cannot be read
	usage.Count
	PerSec *usage.Rate `json:"per_second,omitempty"` // as in Calls
}

// Pool holds the allowed calls of a policy with a guarantee and a pool, with those that the canary
// decided.
type Pool struct {
	Floor      *int  `json:"floor,omitempty"`      // the percentage that borrowers leave; nil if the source code cannot be read
	Guaranteed int64 `json:"guaranteed"`           // calls within the guarantee
	Borrowed   int64 `json:"borrowed"`             // calls that only the pool paid
	PerSec     *Paid `json:"per_second,omitempty"` // as in Calls
}

// Paid holds the rates of calls by who paid.
type Paid struct {
	Guaranteed float64 `json:"guaranteed"`
	Borrowed   float64 `json:"borrowed"`
}

// Canary describes the canary of a policy. For a share of the keys, it decides instead of the
// policy.
type Canary struct {
	Share  int64    `json:"share_per_mille"` // share of the keys, in thousandths
	Limits []string `json:"limits"`
	Shadow bool     `json:"shadow"`
	Calls
}

// Calls holds the sums of the primaries' counts for a policy (without its canary) or for a canary.
type Calls struct {
	Counted bool `json:"counted"` // whether the library of any primary counts calls
	usage.Count
	PerSec *usage.Rate `json:"per_second,omitempty"` // rates since the previous reading; nil if no primary has counted calls in both readings
}

// Reader reads Fleets, and remembers each node's last reply to calculate rates. It is not safe for
// concurrent use.
type Reader struct {
	Timeout time.Duration // timeout of a call

	texts  map[string][]functions.Policy // policies by build ID
	before map[string]Node               // the last reply from each node, by address
}

// Read reads all of rdb's primaries. The Fleet contains the primaries that replied. The error
// is the one from [Nodes].
func (r *Reader) Read(ctx context.Context, rdb redis.UniversalClient) (Fleet, error) {
	nodes, err := Nodes(ctx, rdb, r.Timeout)
	fleet, known := r.sum(nodes), map[string]functions.Policy{}
	for _, policy := range r.readTexts(ctx, nodes) {
		known[policy.Name] = policy
	}
	for i := range fleet.Policies {
		if text, ok := known[fleet.Policies[i].Name]; ok {
			fleet.Policies[i].describe(text)
		}
	}
	return fleet, err
}

// describe adds the fields that come from a library's source code.
func (p *Policy) describe(text functions.Policy) {
	p.Limits, p.Shadow, p.Track, p.AnyClass = nil, text.Shadow, text.Track, text.AnyClass
	for name, percent := range text.Classes {
		p.class(name).Percent = &percent
	}
	if p.Penalty = ""; text.Penalty != nil {
		p.Penalty = text.Penalty.String()
	}
	if text.Borrow {
		p.Pool = cmp.Or(p.Pool, &Pool{})
		p.Pool.Floor = &text.Floor
	}
	for _, limit := range text.Limits {
		p.Limits = append(p.Limits, limit.String())
	}
	if p.Canary == nil || text.Canary == nil {
		return
	}
	p.Canary.Limits, p.Canary.Shadow = nil, text.Canary.Shadow
	for i, limit := range text.Canary.Limits {
		p.Canary.Limits = append(p.Canary.Limits, functions.PolicyLimit{Key: text.Limits[i].Key, Limit: limit}.String())
	}
}

// class returns the class with the name. It adds one if there is none.
func (p *Policy) class(name string) *Class {
	at, found := slices.BinarySearchFunc(p.Classes, name, func(c Class, name string) int { return cmp.Compare(c.Name, name) })
	if !found {
		p.Classes = slices.Insert(p.Classes, at, Class{Name: name})
	}
	return &p.Classes[at]
}

func (r *Reader) sum(nodes []Node) Fleet {
	var fleet Fleet
	policies := map[string]*Policy{}
	replies := map[string]Node{}
	for _, node := range nodes {
		before, any := r.before[node.Addr]
		if node.Err != nil {
			if any {
				replies[node.Addr] = before // to compare with its next reply
			}
			continue
		}
		replies[node.Addr] = node
		fleet.Replied++
		fleet.add(node.Info)
		if node.Info.PolicyCalls == nil {
			fleet.Uncounted = append(fleet.Uncounted, node.Addr)
		}
		for _, name := range node.Info.Policies {
			p := policies[name]
			if p == nil {
				p = &Policy{Name: name}
				policies[name] = p
			}
			_, shadow := node.Info.ShadowDenied[name]
			p.Shadow = p.Shadow || shadow
			if calls, counted := node.Info.PolicyCalls[name]; counted {
				last, both := before.Info.PolicyCalls[name]
				took := time.Duration(0)
				if both {
					took = node.At.Sub(before.At)
				}
				p.add(calls, last, took)
			}
		}
	}
	r.before = replies // for the rates of the next reading
	for _, policy := range policies {
		fleet.Policies = append(fleet.Policies, *policy)
	}
	slices.SortFunc(fleet.Policies, func(a, b Policy) int { return cmp.Compare(a.Name, b.Name) })
	return fleet
}

// add counts the library of one node.
func (f *Fleet) add(info client.Info) {
	runs := Library{Version: info.Version, BuildID: info.BuildID, Contract: info.Contract}
	at := slices.IndexFunc(f.Libraries, func(l Library) bool {
		return l.BuildID == runs.BuildID && l.Version == runs.Version && l.Contract == runs.Contract
	})
	if at < 0 {
		at = len(f.Libraries)
		f.Libraries = append(f.Libraries, runs)
	}
	f.Libraries[at].Servers++
}

// add adds the counts of one node. before holds the counts in the node's previous reply, and took
// is the time between the two replies. If took is 0, add ignores before.
func (p *Policy) add(counts, before client.PolicyCalls, took time.Duration) {
	p.Calls.add(usage.Count{Allowed: counts.Allowed, Denied: counts.Denied}, usage.Count{Allowed: before.Allowed, Denied: before.Denied}, took)
	for name, calls := range counts.Classes {
		class := p.class(name)
		class.Allowed += calls.Allowed
		class.Denied += calls.Denied
		class.PerSec = addRate(class.PerSec, usage.Count(calls), usage.Count(before.Classes[name]), took)
	}
	if paid := counts.Pool; paid != nil {
		last := cmp.Or(before.Pool, &struct{ Guaranteed, Borrowed int64 }{})
		p.Pool = cmp.Or(p.Pool, &Pool{})
		p.Pool.Guaranteed += paid.Guaranteed
		p.Pool.Borrowed += paid.Borrowed
		var sum *usage.Rate
		if p.Pool.PerSec != nil {
			sum = &usage.Rate{Allowed: p.Pool.PerSec.Guaranteed, Denied: p.Pool.PerSec.Borrowed}
		}
		if sum = addRate(sum, usage.Count{Allowed: paid.Guaranteed, Denied: paid.Borrowed}, usage.Count{Allowed: last.Guaranteed, Denied: last.Borrowed}, took); sum != nil {
			p.Pool.PerSec = &Paid{Guaranteed: sum.Allowed, Borrowed: sum.Denied}
		}
	}
	if counts.CanaryShare == 0 {
		return
	}
	if before.CanaryShare == 0 {
		took = 0
	}
	if p.Canary == nil {
		p.Canary = &Canary{Share: counts.CanaryShare, Shadow: p.Shadow}
	}
	p.Canary.add(usage.Count{Allowed: counts.CanaryAllowed, Denied: counts.CanaryDenied}, usage.Count{Allowed: before.CanaryAllowed, Denied: before.CanaryDenied}, took)
}

func (c *Calls) add(counts, before usage.Count, took time.Duration) {
	c.Counted = true
	c.Allowed += counts.Allowed
	c.Denied += counts.Denied
	c.PerSec = addRate(c.PerSec, counts, before, took)
}

// addRate returns sum with the rates of a node added: counts are its counts, and before those at the time
// took ago. sum is nil if no node had a rate, and addRate returns sum if took is 0.
func addRate(sum *usage.Rate, counts, before usage.Count, took time.Duration) *usage.Rate {
	if took <= 0 {
		return sum
	}
	if counts.Allowed < before.Allowed || counts.Denied < before.Denied { // the library was loaded again, and counts from 0
		before = usage.Count{}
	}
	sum = cmp.Or(sum, &usage.Rate{})
	sum.Allowed += float64(counts.Allowed-before.Allowed) / took.Seconds()
	sum.Denied += float64(counts.Denied-before.Denied) / took.Seconds()
	return sum
}

// readTexts returns the policies in the libraries' source code. It reads the source code of each
// build once. It ignores errors, because the user may lack the permission.
func (r *Reader) readTexts(ctx context.Context, nodes []Node) (all []functions.Policy) {
	read := map[string][]functions.Policy{}
	for _, node := range nodes {
		id := node.Info.BuildID
		if _, done := read[id]; done || node.Err != nil {
			continue
		}
		policies, known := r.texts[id]
		if !known {
			libraries, err := node.rdb.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: functions.Name, WithCode: true}).Result()
			if err == nil && len(libraries) == 1 {
				policies, _ = functions.ReadPolicies(libraries[0].Code)
			}
		}
		read[id] = policies
		all = append(all, policies...)
	}
	r.texts = read
	return all
}
