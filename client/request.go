package client

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mostCost is the largest cost that the library accepts.
const mostCost = 1 << 53

// Request holds all arguments of a call: keys, a limit for each key, costs and options.
//
//	client.Request{
//		Keys:   []string{"{user:42}:minute", "{user:42}:day"},
//		Limits: []client.Limit{"100/m", "5000/d"},
//		Costs:  []int64{1, 250},
//	}
//
// A policy that is deployed with the library takes one key for each of its limits, in the same
// order. If the policy tracks usage, UsageKey is the key that stores the usage.
//
//	client.Request{
//		Keys:   []string{"calc:{a}", "consumer9:{a}"},
//		Limits: []client.Limit{"@calc"},
//	}
//
// [For] returns a Request for one key. Request is a plain value: it can be copied, reused, and shared
// between goroutines as long as none modifies it. A copy has the same slices: change their elements only
// while no call with them is in progress. Nothing that a call returns changes with them.
type Request struct {
	// Keys are the keys to limit: at least one, none empty, no duplicates. In a cluster they share
	// a hash tag, such as {user:42}.
	Keys []string

	// Limits holds one limit for each key, in the same order, or policies, each of which covers one
	// or more keys.
	Limits []Limit

	// Costs is how many units to take. If Costs is empty, each key is charged 1. A single number
	// applies to all keys; otherwise there is one number per limited key. Each number is from 0 to
	// 2^53. A key with cost 0 is not written, and denies only while it is blocked.
	Costs []int64

	// UpTo takes as many units as fit, from 1 to the single number in Costs. Every key is charged
	// the same number, which is Result.Taken. Use UpTo with Take or Peek. To give units back,
	// set Costs to the number of units taken, and UpTo to false.
	UpTo bool

	// Each also returns the separate result of each key's limit, in Result.Each. Use it with Take,
	// Peek or Refund. Batches and remembered denials never decide such a call. If the
	// library on the server is too old for this, the error is [ErrNotDeployed].
	Each bool

	// Grow also returns what the server remembers of blocks with Max, in Result.Grown. Use it with Peek. If
	// the library on the server is too old for this, the error is [ErrNotDeployed].
	Grow bool

	// Force charges the costs even if they do not fit, for units that have already been used. Use it
	// with Take. Units that do not fit are debt, and the key denies calls until the debt is paid off.
	// The debt lasts for at most two full refills: units beyond that are not charged. The result is
	// Allowed unless a key is blocked: then nothing is charged. RetryAfter is the wait until one unit
	// fits.
	Force bool

	// Class names the class of the caller, such as "batch", under policies with classes: each keeps the
	// part of its limit free that it has for this class. A policy may have a class "default" for calls
	// without Class, Floor and Force. Use Class with Take, Peek and Wait; [Lease] has its own. If the
	// library on the server is too old for Class, Floor or Borrow, the error is [ErrNotDeployed].
	Class string

	// Floor is the percentage of each limit's capacity, rounded up, that this call leaves to calls with
	// a lower Floor, from 1 to 100. 0 is no Floor: the call leaves nothing, or under a policy what its
	// class "default" leaves. To leave nothing there, name a class of 0 percent, such as "critical". A
	// Floor does not lower the rate of gcra, token_bucket and leaky_bucket; other algorithms keep the
	// part for the whole window. Use it in place of Class, with the same calls. With Force, there is no Floor and no Class. Refund ignores both.
	Floor int

	// Borrow says that the first of two limits is this caller's guarantee, and the second a pool that
	// all callers share, each with one rate. A call within the guarantee charges both. Any other call
	// charges the pool alone, if this leaves the percentage Floor of the pool. Result.Index is 1 if the
	// guarantee decided, and 2 if the pool did. One cost applies to both keys. UpTo, Force, Each and
	// Class cannot be used with Borrow.
	//
	// Set Borrow without Floor for a policy with a guarantee and a pool, too: otherwise
	// [Result.Charged] does not know who paid, and a Refund is refused. Under any other policy, the error
	// is [ErrMisconfigured].
	//
	// For a Refund with Borrow, Costs has the units of the guarantee and of the pool, as
	// Result.Charged returns them: the same number twice, or 0 and a number that was borrowed.
	Borrow bool

	// OnceKey, if not empty, is a key for one piece of work, such as "{user:42}:once:" followed by
	// an id. If the call is allowed and charged, the server stores its reply in this key for
	// OnceTTL. During that time, every other [Client.Take] with this OnceKey gets the same reply
	// and is not charged. So a call can be repeated whenever its outcome is unknown; Take itself
	// does so. The reply is not stored if the call was denied or has cost 0. If such a call is
	// repeated, it is decided again.
	//
	// OnceKey also works for [Client.Refund]. A take and its refund need different keys: with the
	// take's key, the refund gets the take's reply, and gives nothing back.
	OnceKey string

	// OnceTTL is how long OnceKey is valid, from 1 ms to 36500 days, rounded up to whole
	// milliseconds. With any other value, the error is [ErrMisconfigured]. OnceTTL must outlast all
	// retries. Take itself retries only in the first half of OnceTTL; a minute is long enough for
	// that. If your program also repeats the call, OnceTTL must be longer than the program may keep
	// repeating it.
	OnceTTL time.Duration

	// UsageKey, if not empty, is the key in which the decision is counted, even if it is a denial.
	// A decision that repeats a reply stored under an OnceKey is not counted. [Client.Usage]
	// returns the counts. Several limited keys may share a UsageKey. For a policy with track, name it
	// here and not among Keys: Each and [Result.Charged] are about the Keys, and with an OnceKey the error
	// is [ErrMisconfigured].
	UsageKey string

	// WaitUntil is for [Client.Wait]: the latest time until which it waits. If WaitUntil is zero, only
	// the context bounds the wait.
	WaitUntil time.Time

	// Fallback selects the result of a Take of this request if no server decides. It replaces the
	// client's Fallback.
	Fallback Fallback

	with *seat // the call's place in a TakeAll; nil: the call is made alone
}

// For returns a request for one key, with at most one cost: For("user:42", "100/m", 3). Without a cost,
// the key is charged 1.
func For(key string, limit Limit, cost ...int64) Request {
	made := &struct {
		keys   [1]string
		limits [1]Limit
		costs  [1]int64
	}{keys: [1]string{key}, limits: [1]Limit{limit}} // one allocation for the slices
	req := Request{Keys: made.keys[:], Limits: made.limits[:]}
	switch len(cost) {
	case 0:
	case 1:
		made.costs[0] = cost[0]
		req.Costs = made.costs[:]
	default: // the call returns an error
		req.Costs = slices.Clone(cost)
	}
	return req
}

// keys returns all keys of the call: the limited keys, then the keys of options, in the order in
// which args adds the options.
func (r *Request) keys(verb string) []string {
	once, usage := verb != "peek" && r.OnceKey != "", verb == "take" && r.UsageKey != ""
	if !once && !usage {
		return r.Keys
	}
	keys := append(make([]string, 0, len(r.Keys)+2), r.Keys...)
	if once {
		keys = append(keys, r.OnceKey)
	}
	if usage {
		keys = append(keys, r.UsageKey)
	}
	return keys
}

// args returns the arguments after the keys. It rejects only what the server would misunderstand,
// such as a limit with the name of an option. The server checks everything else.
func (r *Request) args(verb string) ([]any, error) {
	args := make([]any, 0, len(r.Limits)+1+len(r.Costs)+5)
	for _, limit := range r.Limits {
		switch strings.ToUpper(string(limit)) {
		case "COST", "UPTO", "FORCE", "ONCE", "TRACK", "EACH", "FLOOR", "CLASS", "BORROW", "PAID", "GROW":
			return nil, fmt.Errorf("BADLIMIT %q is the name of an option, not a limit; give one such as 100/m", string(limit))
		}
		args = append(args, string(limit))
	}
	if r.OnceKey != "" || r.UsageKey != "" {
		if err := r.checkCounts(r.policies() > 0); err != nil {
			return nil, err
		}
	}
	shares, costs, err := r.shares(verb)
	if err != nil {
		return nil, err
	}
	args = append(args, shares...) // before all others, so older libraries reply with BADLIMIT "FLOOR"
	switch {
	case r.Grow && verb != "peek":
		return nil, fmt.Errorf("BADARGS %s has no Grow; take it out of the request", verb)
	case r.Grow: // the first option, so older libraries reply with BADLIMIT "GROW"
		args = append(args, "GROW")
	}
	if r.Each { // EACH is the first option, so older libraries reply with BADLIMIT "EACH"
		args = append(args, "EACH")
	}
	if len(costs) > 0 {
		args = append(args, "COST")
		for _, cost := range costs {
			args = append(args, strconv.FormatInt(cost, 10))
		}
	}
	switch {
	case !r.UpTo:
	case verb == "refund":
		return nil, errors.New("BADARGS refund has no UpTo; take it out of the request, and give as Costs how many units were taken")
	case len(r.Costs) != 1:
		return nil, fmt.Errorf("BADARGS UpTo is given with the costs %v; give one, the most to take from every key", r.Costs)
	default:
		args = append(args, "UPTO")
	}
	switch {
	case !r.Force:
	case verb != "take":
		return nil, fmt.Errorf("BADARGS %s has no Force; take it out of the request", verb)
	case r.UpTo:
		return nil, errors.New("BADARGS Force and UpTo are both set; Force takes all units, UpTo those that fit; set one")
	case len(r.Costs) == 0:
		args = append(args, "COST", "1", "FORCE") // with a cost before FORCE, an older library names FORCE in its error
	default:
		args = append(args, "FORCE")
	}
	switch {
	case r.OnceKey == "" && r.OnceTTL != 0:
		return nil, fmt.Errorf("BADARGS OnceTTL is %v and there is no OnceKey; give both, or neither", r.OnceTTL)
	case r.OnceKey == "":
	case verb == "peek":
		return nil, fmt.Errorf("BADARGS %s has no OnceKey, but got %q; take it out of the request", verb, r.OnceKey)
	case r.OnceTTL < time.Millisecond:
		return nil, fmt.Errorf("BADARGS OnceTTL is %v for OnceKey %q; give how long the key holds, 1ms or more, such as a minute", r.OnceTTL, r.OnceKey)
	default:
		args = append(args, "ONCE", wholeMilliseconds(r.OnceTTL))
	}
	if verb == "take" && r.UsageKey != "" {
		args = append(args, "TRACK")
	}
	return args, nil
}

// shares returns the arguments for Class, Floor and Borrow, and the costs of the call.
func (r *Request) shares(verb string) (args []any, costs []int64, err error) {
	switch {
	case r.Floor < 0 || r.Floor > 100:
		return nil, nil, fmt.Errorf("BADARGS Floor is %d; give a percentage from 1 to 100, or 0 for none", r.Floor)
	case r.Borrow:
		return r.borrows(verb)
	case verb == "refund" || r.Class == "" && r.Floor == 0:
		return nil, r.Costs, nil
	case r.Class != "" && r.Floor != 0:
		return nil, nil, fmt.Errorf("BADARGS Class is %q and Floor is %d; a class stands for a percentage: set one", r.Class, r.Floor)
	case r.Force && r.Class != "":
		return nil, nil, fmt.Errorf("BADARGS Force is set and Class is %q; Force keeps nothing free: set one", r.Class)
	case r.Force:
		return nil, nil, fmt.Errorf("BADARGS Force is set and Floor is %d; Force keeps nothing free: set one", r.Floor)
	case r.Class != "":
		return []any{"CLASS", r.Class}, r.Costs, nil
	}
	return []any{"FLOOR", strconv.Itoa(r.Floor)}, r.Costs, nil
}

// borrows is shares for a request with Borrow. For a refund, the costs say who paid.
func (r *Request) borrows(verb string) (args []any, costs []int64, err error) {
	policy := len(r.Limits) == 1 && isPolicy(r.Limits[0])
	switch {
	case r.UpTo, r.Force, r.Each:
		word := map[bool]string{r.Each: "Each", r.Force: "Force", r.UpTo: "UpTo"}[true]
		return nil, nil, fmt.Errorf("BADARGS Borrow and %s are both set; a guarantee and a pool do not take it", word)
	case r.Class != "":
		return nil, nil, fmt.Errorf("BADARGS Borrow is set and Class is %q; a guarantee and a pool have no classes", r.Class)
	case policy && r.Floor != 0:
		return nil, nil, fmt.Errorf("BADARGS Borrow is set for the policy %q and Floor is %d; the policy has its own: leave Floor out", r.Limits[0], r.Floor)
	case len(r.Keys) != 2 || !policy && (len(r.Limits) != 2 || r.policies() > 0):
		return nil, nil, fmt.Errorf("BADARGS Borrow is set with %d keys and the limits %q; give a guarantee and a pool, or one policy that has both", len(r.Keys), r.Limits)
	case verb != "refund" && len(r.Costs) > 1:
		return nil, nil, fmt.Errorf("BADARGS Borrow is set with the costs %v; a guarantee and a pool are charged the same: give one", r.Costs)
	}
	args = []any{"BORROW", strconv.Itoa(r.Floor)} // beside a policy, too: then the server refuses one without a guarantee and a pool
	if verb != "refund" {
		return args, r.Costs, nil
	}
	if len(r.Costs) != 2 || r.Costs[0] != r.Costs[1] && r.Costs[0] != 0 {
		return nil, nil, fmt.Errorf("BADARGS a Refund with Borrow has the costs %v; give those that Result.Charged returns: a number twice, or 0 and what was borrowed", r.Costs)
	}
	paid := "1"
	if r.Costs[0] != r.Costs[1] {
		paid = "2"
	}
	return append(args, "PAID", paid), r.Costs[1:], nil
}

// check checks the keys, the limits except their syntax, and the costs.
func (r *Request) check() error {
	switch {
	case len(r.Keys) == 0:
		return errors.New("BADKEYS there is no key; give what is to be limited one, such as user:42")
	case len(r.Limits) == 0:
		return errors.New("BADLIMIT there is no limit; give one such as 100/m")
	}
	for i, key := range r.Keys {
		if slices.Contains(r.Keys[:i], key) {
			return fmt.Errorf("BADKEYS the key %q is given twice; give each once", key)
		}
	}
	policies := false
	for i, limit := range r.Limits {
		if limit == "" {
			return fmt.Errorf("BADLIMIT limit %d is empty; give one such as 100/m", i+1)
		}
		policies = policies || limit[0] == '@'
	}
	if err := r.checkCounts(policies); err != nil {
		return err
	}
	if n := len(r.Costs); n > 1 && n != len(r.Keys) {
		return fmt.Errorf("BADARGS %d costs for %d keys; give one for all, or one for each", n, len(r.Keys))
	}
	for _, cost := range r.Costs {
		if cost < 0 || cost > mostCost {
			return fmt.Errorf("BADCOST %d: a cost is a whole number from 0 to %d", cost, int64(mostCost))
		}
	}
	return nil
}

// checkCounts compares the number of keys with that of the limits. A server does, too, but it counts the
// OnceKey and the UsageKey among the keys, and knows how many keys a policy takes.
func (r *Request) checkCounts(policies bool) error {
	if len(r.Limits) > len(r.Keys) || len(r.Limits) < len(r.Keys) && !policies {
		return fmt.Errorf("BADKEYS %d keys and %d limits; give one limit for each key", len(r.Keys), len(r.Limits))
	}
	return nil
}

func (r *Request) cost(key int) int64 {
	switch len(r.Costs) {
	case 0:
		return 1
	case 1:
		return r.Costs[0]
	}
	return r.Costs[key]
}

func (r *Request) largest() int64 {
	if len(r.Costs) == 0 {
		return 1
	}
	return slices.Max(r.Costs)
}

// wanted describes the request in an error, such as 2 of "3/m".
func (r *Request) wanted() string {
	costs := r.Costs
	if len(costs) == 0 {
		costs = []int64{1}
	}
	return strings.Trim(fmt.Sprint(costs), "[]") + " of " + strings.Trim(fmt.Sprintf("%q", r.Limits), "[]")
}

// most returns the largest valid first field of a reply to r. With an OnceKey, the reply may come
// from an earlier, different call.
func (r *Request) most() int64 {
	switch {
	case r.OnceKey != "":
		return math.MaxInt64
	case r.UpTo:
		return r.Costs[0]
	}
	return 1
}

// units converts the first field of a reply to r into Result.Taken.
func (r *Request) units(first int64) int64 {
	if !r.UpTo {
		return 0
	}
	return first
}

// wholeMilliseconds formats d for the wire, rounded up to whole milliseconds.
func wholeMilliseconds(d time.Duration) string {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return strconv.FormatInt(ms, 10)
}
