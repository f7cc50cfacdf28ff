package policies

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"math/bits"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// Findings lists the problems that File.Findings found.
type Findings struct {
	// Wrong lists the problems of policies whose limits the library rejects. Such policies must not
	// be deployed.
	Wrong Mistakes

	// Doubtful lists the problems of policies that work, but probably not as intended: for example,
	// a rate never denies first, a burst is below the stated cost, or guarantees add up to more than
	// their pool.
	Doubtful Mistakes

	// Notes lists limits that never allow a call, such as 0/m, limits of two policies that differ so much
	// in their burst that keys must not have both, and pools that bursts of guarantees can exceed. They
	// are valid, but readers may overlook them.
	Notes Mistakes
}

// Findings makes the library parse every limit, in the offline engine, and looks for policies that
// probably do not work as intended. It returns an error only if the engine fails; problems with the
// policies are in the result.
func (f *File) Findings() (Findings, error) {
	// The library is loaded without the policies, because the engine takes long to load thousands
	// of policies, and their limits are checked one by one.
	server, err := embedded.Start(embedded.WithLibrary(functions.Source()+parser), embedded.WithTime(startOfTests))
	if err != nil {
		return Findings{}, fmt.Errorf("the library does not load: %w", err)
	}
	defer func() { _ = server.Close() }()
	var found Findings
	bursts := map[string][]burst{}
	for rest := f.Policies; len(rest) > 0; { // one file at a time, because the positions of problems belong to a file
		name := cmp.Or(rest[0].file, f.Name)
		c := checker{server: server, wrong: *newSource(name), doubtful: *newSource(name), notes: *newSource(name), bursts: bursts}
		for len(rest) > 0 && cmp.Or(rest[0].file, f.Name) == name {
			c.policy(rest[0])
			rest = rest[1:]
		}
		found.Wrong = append(found.Wrong, c.wrong.Sorted()...)
		found.Doubtful = append(found.Doubtful, c.doubtful.Sorted()...)
		found.Notes = append(found.Notes, c.notes.Sorted()...)
		if c.failed != nil {
			return found, c.failed
		}
	}
	return found, nil
}

// LimitErrors makes the library parse limits that are not in a policies file, in the offline engine.
// It returns an error for each limit that ratelimit_take rejects on one key. A limit may name a
// policy, such as @api: LimitErrors does not know whether a server has it, but returns an error if
// no policy can have the name. The last result is not nil only if the engine fails.
func LimitErrors(limits []string) (map[string]error, error) {
	server, err := embedded.Start(embedded.WithLibrary(functions.Source()))
	if err != nil {
		return nil, fmt.Errorf("the library does not load: %w", err)
	}
	defer func() { _ = server.Close() }()
	c, wrong := checker{server: server}, map[string]error{}
	for _, limit := range limits {
		if name, policy := strings.CutPrefix(limit, "@"); policy {
			if faults := (functions.Policy{Name: name, Limits: []functions.PolicyLimit{{Limit: "1/s"}}}).Faults(); len(faults) > 0 {
				wrong[limit] = errors.New(faults[0].Text)
			}
		} else if _, err := c.call("FCALL_RO", "ratelimit_peek", 1, "k", limit); err != nil {
			wrong[limit] = err
		}
	}
	return wrong, c.failed
}

// startOfTests is the default time of the engine's clock: a Thursday, in UTC.
var startOfTests = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

type checker struct {
	server                 *embedded.Server
	wrong, doubtful, notes source
	failed                 error
	bursts                 map[string][]burst // limits of an algorithm with the same rates, the first of each burst
}

// burst is a limit with one rate.
type burst struct {
	policy, limit string
	capacity      int64
}

// sharesNot notes a limit that forgets what another policy's limit has taken from the same key, because
// the two differ only in their burst, and one of them is about twice the other.
func (c *checker) sharesNot(at *yaml.Node, policy, what, text string, l limit) {
	if c.bursts == nil || len(l.rates) != 1 || !strings.Contains("gcra leaky_bucket token_bucket", l.algorithm) {
		return
	}
	rates, of := l.rates[0], burst{policy, text, l.capacity()}
	rates.text, rates.capacity = "", 0
	kind := fmt.Sprint(l.algorithm, rates)
	known := false
	for _, other := range c.bursts[kind] {
		known = known || other.capacity == of.capacity
		if other.policy != policy && other.capacity != of.capacity && max(other.capacity, of.capacity) >= 2*min(other.capacity, of.capacity)-1 {
			c.notes.Wrong(at, "%s: %s differs from %s of policy %s only in its burst; on one key, the smaller burst forgets what the other has taken. For priorities, use one limit with classes",
				what, text, other.limit, other.policy)
			break
		}
	}
	if !known && len(c.bursts[kind]) < mostBursts {
		c.bursts[kind] = append(c.bursts[kind], of)
	}
}

// mostBursts is how many bursts of the same rates are compared.
const mostBursts = 100

func (c *checker) policy(p Policy) {
	leases, accepted := c.limits(p, "policy "+p.Name)
	if p.Canary == nil {
		return
	}
	of := Policy{Policy: functions.Policy{Name: p.Name}, at: &yaml.Node{}}
	if p.canary != nil { // set only if the policy is from a file
		of.at, of.limits = p.canary.at, p.canary.limits
	}
	of.Borrow, of.Floor, of.Tenants, of.tenantsAt = p.Borrow, p.Canary.Floor, p.Tenants, p.tenantsAt
	if !leases {
		of.Costs, of.Classes = p.Costs, p.Classes
	}
	for i, limit := range p.Canary.Limits {
		of.Limits = append(of.Limits, functions.PolicyLimit{Limit: limit})
		if i < len(p.Limits) {
			of.Limits[i].Key = p.Limits[i].Key
		}
	}
	what := "the canary of policy " + p.Name
	ofLeases, ofAccepted := c.limits(of, what)
	if accepted && ofAccepted && leases != ofLeases {
		kinds := map[bool]string{true: "leases (concurrency)", false: "take"}
		c.wrong.Wrong(of.at, "%s is for %s, and the policy for %s; give both limits of one kind", what, kinds[ofLeases], kinds[leases])
	}
}

// limits checks the limits of a policy or of a canary. It reports whether one of them is for leases,
// and whether the library accepts all of them.
func (c *checker) limits(p Policy, name string) (leases, accepted bool) {
	words, accepted := []any{"FCALL_RO", "ratelimit_peek", len(p.Limits)}, true
	var shared []limit // the guarantee and the pool
	for i := range p.Limits {
		words = append(words, i)
	}
	if p.at == nil { // the policy is not from a file
		p.at = &yaml.Node{}
	}
	costs := p.Costs
	if len(costs) == 1 {
		costs = slices.Repeat(costs, len(p.Limits))
	}
	for i, limit := range p.Limits {
		at := p.at
		if i < len(p.limits) {
			at = p.limits[i]
		}
		words = append(words, limit.Limit)
		parsed, err := c.parse(limit.Limit)
		accepted, leases = accepted && err == nil, leases || err == nil && parsed.rates == nil
		if p.Borrow && err == nil && len(parsed.rates) == 1 {
			shared = append(shared, parsed)
		}
		what := name
		if limit.Key != "" {
			what += ", " + limit.Key
		}
		switch {
		case err != nil:
			c.wrong.Wrong(at, "%s: %v", what, err)
		case parsed.rates == nil:
			c.lease(p, what, at)
		case p.Borrow && len(parsed.rates) > 1:
			c.wrong.Wrong(at, "%s: %d rates; a guarantee and a pool have one each", what, len(parsed.rates))
		case parsed.capacity() == 0 && p.Borrow && i == 0:
			c.notes.Wrong(at, "%s: %s guarantees nothing, so calls can only borrow", what, limit.Limit)
		case parsed.capacity() == 0:
			c.notes.Wrong(at, "%s: %s never allows a call", what, limit.Limit)
		default:
			if p.Borrow { // the guarantee and the pool are compared with the cost together, below
			} else if i < len(costs) && costs[i] > parsed.capacity() {
				c.doubtful.Wrong(at, "%s: a call of cost %d never passes, because %s allows at most %d at once; raise its burst",
					what, costs[i], limit.Limit, parsed.capacity())
			} else if kept := p.Classes["default"]; i < len(costs) && costs[i] > parsed.capacity()*int64(100-kept)/100 {
				c.doubtful.Wrong(at, "%s: a call of cost %d without a class never passes, because the class default keeps %d %% of %s free; raise its burst",
					what, costs[i], kept, limit.Limit)
			}
			c.sharesNot(at, p.Name, what, limit.Limit, parsed)
			for _, redundant := range redundantRates(parsed) {
				c.doubtful.Wrong(at, "%s: %s", what, redundant)
			}
		}
	}
	if len(shared) == 2 {
		c.guarantees(p, name, shared[0].rates[0], shared[1].rates[0])
		c.borrowed(p, name, shared[0], shared[1])
	}
	if accepted && !leases && len(p.Limits) > 1 { // each limit alone is valid, but together they can exceed the bounds of a call
		if _, err := c.call(append(words, "COST", 0)...); err != nil {
			c.wrong.Wrong(p.at, "%s: %v", name, err)
		}
	}
	return leases, accepted
}

// guarantees compares the guarantees of a policy with its pool. If the file does not say how many callers
// have one, it knows of one.
func (c *checker) guarantees(p Policy, name string, guarantee, pool rate) {
	at := p.at
	if p.tenantsAt != nil {
		at = p.tenantsAt
	}
	n, limits := max(1, p.Tenants), [2]string{p.Limits[0].Limit, p.Limits[1].Limit}
	of := "a guarantee of " + limits[0]
	if n > 1 {
		of = fmt.Sprintf("%d guarantees of %s", n, limits[0])
	}
	kept := keptBy(p.Floor, pool)
	switch bursts, over := bits.Mul64(uint64(n), uint64(guarantee.capacity)); {
	case compareRates(n, guarantee, pool) > 0:
		c.doubtful.Wrong(at, "%s: the pool of %s has less than %s; if it is used up, calls within them are denied. Lower the guarantee, or raise the pool", name, limits[1], of)
	case p.Tenants == 0:
	case bursts > 0 || over > uint64(pool.capacity):
		c.notes.Wrong(at, "%s: the bursts of %s are more than the pool holds, so together they can exceed its limit, by at most its capacity. Lower the burst of the guarantee",
			name, of)
	case over > uint64(kept):
		need := (over*100 + uint64(pool.capacity) - 1) / uint64(pool.capacity)
		c.notes.Wrong(at, "%s: the bursts of %s are %d units, and floor %d keeps %d of the pool; if borrowers have taken the rest, the bursts exceed the limit of the pool. floor: %d keeps enough",
			name, of, over, p.Floor, kept, need)
	}
}

// keptBy returns the units of a pool that borrowers leave.
func keptBy(percent int, pool rate) int64 {
	floor := int64(percent)
	return pool.capacity/100*floor + (pool.capacity%100*floor+99)/100
}

// borrowed reports a cost for which neither the guarantee nor what borrowers can have of the pool is enough.
func (c *checker) borrowed(p Policy, name string, guarantee, pool limit) {
	units, borrow, debt := guarantee.capacity(), pool.capacity()-keptBy(p.Floor, pool.rates[0]), 2*pool.capacity()
	if pool.algorithm == "gcra" || pool.algorithm == "leaky_bucket" {
		debt--
	}
	units = max(0, min(units, debt)) // a guaranteed call is charged to the pool, which has a largest debt
	if pool.capacity() > 0 && len(p.Costs) > 0 && slices.Max(p.Costs) > max(units, borrow) {
		c.doubtful.Wrong(p.at, "%s: a call of cost %d never passes, because the guarantee of %s allows at most %d at once, and borrowers at most %d of the pool of %s; raise a burst",
			name, slices.Max(p.Costs), p.Limits[0].Limit, units, borrow, p.Limits[1].Limit)
	}
}

// compareRates compares n times the rate of a guarantee with that of a pool.
func compareRates(n int64, guarantee, pool rate) int {
	a := new(big.Int).Mul(big.NewInt(n), new(big.Int).Mul(big.NewInt(guarantee.n), big.NewInt(pool.period)))
	return a.Cmp(new(big.Int).Mul(big.NewInt(pool.n), big.NewInt(guarantee.period)))
}

func (c *checker) lease(p Policy, what string, at *yaml.Node) {
	switch {
	case len(p.Limits) > 1:
		c.wrong.Wrong(at, "%s: concurrency with other limits; a lease takes one limit, so move it to its own policy", what)
	case p.Track:
		c.wrong.Wrong(at, "%s: track is for ratelimit_take, and concurrency for ratelimit_acquire; remove track", what)
	case len(p.Costs) > 0:
		c.wrong.Wrong(at, "%s: a lease has no cost; remove cost", what)
	case p.Penalty != nil:
		c.wrong.Wrong(at, "%s: a lease has no penalty; remove penalty and forget", what)
	case p.Warn != 0:
		c.wrong.Wrong(at, "%s: a lease has no warning; remove warn", what)
	}
}

// call calls the library. The error is the library's, without the error code.
func (c *checker) call(words ...any) ([]any, error) {
	reply, err := c.server.Do(words...)
	var refused embedded.Error
	switch {
	case errors.As(err, &refused):
		_, text, _ := strings.Cut(strings.TrimPrefix(refused.Error(), "RATELIMIT "), " ")
		return nil, errors.New(text)
	case err != nil:
		c.failed = err
		return nil, err
	}
	list, ok := reply.([]any)
	if !ok {
		c.failed = fmt.Errorf("the library returns %v to %v", reply, words)
	}
	return list, c.failed
}
