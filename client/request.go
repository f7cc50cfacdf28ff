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

// Request is one call in full, laid out as it goes over the wire: keys, a limit for each, costs.
//
//	client.Request{
//		Keys:   []string{"{user:42}:minute", "{user:42}:day"},
//		Limits: []client.Limit{"100/m", "5000/d"},
//		Costs:  []int64{1, 250},
//	}
//
// A policy that is deployed with the library takes as many keys as it has limits, in their order. Where it says track,
// give the key for that as UsageKey.
//
//	client.Request{
//		Keys:   []string{"calc:{a}", "consumer9:{a}"},
//		Limits: []client.Limit{"@calc"},
//	}
//
// It is a plain value: copy it, reuse it, and share it between goroutines as long as nobody changes it.
type Request struct {
	// Keys names what is limited: at least one, none empty, none twice. In a cluster they share a hash tag, such as {user:42}.
	Keys []string

	// Limits holds one limit for each key, in the same order; or policies, each of which stands for one or several.
	Limits []Limit

	// Costs is how much to take. Empty means 1 for every key, a single number counts for all, else one for each limited
	// key. Each is from 0 to 2^53. A key with cost 0 is not written, and denies only while it is blocked.
	Costs []int64

	// UpTo takes as many units as fit, from 1 to the one number of Costs, the same number from every key: Result.Taken says
	// how many. For Take and PeekRequest; to give back, set Costs to what was taken, and UpTo to false.
	UpTo bool

	// OnceKey, if it is not empty, is a key for this one piece of work, such as "{user:42}:once:" and an id. A call that is
	// allowed and charged keeps its reply there for OnceTTL, and any other [Client.Take] with that key in that time gets
	// the same reply and is not charged. So a call may be repeated whenever its outcome is in doubt, as Take then does by
	// itself. A denied call, or one of cost 0, keeps nothing: its repetition is decided anew.
	OnceKey string

	// OnceTTL is how long OnceKey holds, from 1 ms to 36500 days, a part of a ms rounded up ([ErrBadArgs]). It must outlast
	// all repetitions: a minute is long enough for those of Take, more than the longest retry for those of your own callers.
	// Take asks again only in the first half of it.
	OnceTTL time.Duration

	// UsageKey, if it is not empty, is a key under which the decision is counted, denied ones too, but not a reply that
	// OnceKey repeats. [Client.Usage] reads it. Several limited keys may share one.
	UsageKey string

	// Fallback is what a Take of this request is told when no server decides, in place of what the client was made with.
	Fallback Fallback
}

// one is a request of one key. Its slices lie in one piece of memory.
func one(key string, limit Limit, costs ...int64) Request {
	arrays := &struct {
		keys   [1]string
		limits [1]Limit
	}{[1]string{key}, [1]Limit{limit}}
	return Request{Keys: arrays.keys[:], Limits: arrays.limits[:], Costs: costs}
}

// keys are all keys of the call, those of the options last, in the order in which args writes the options.
func (r Request) keys(verb string) []string {
	if verb != "take" || r.OnceKey == "" && r.UsageKey == "" {
		return r.Keys
	}
	keys := append(make([]string, 0, len(r.Keys)+2), r.Keys...)
	if r.OnceKey != "" {
		keys = append(keys, r.OnceKey)
	}
	if r.UsageKey != "" {
		keys = append(keys, r.UsageKey)
	}
	return keys
}

// args are the arguments after the keys. Only what would change the meaning of other arguments, or of the call, is
// checked here: a limit that spells an option would turn what follows into that option's value. Everything else the
// server refuses itself.
func (r Request) args(verb string) ([]any, error) {
	args := make([]any, 0, len(r.Limits)+1+len(r.Costs)+4)
	for _, limit := range r.Limits {
		switch strings.ToUpper(string(limit)) {
		case "COST", "UPTO", "ONCE", "TRACK":
			return nil, fmt.Errorf("BADLIMIT %q is the name of an option, not a limit; give one such as 100/m", string(limit))
		}
		args = append(args, string(limit))
	}
	if len(r.Costs) > 0 {
		args = append(args, "COST")
		for _, cost := range r.Costs {
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
	case r.OnceKey == "" && r.OnceTTL != 0:
		return nil, fmt.Errorf("BADARGS OnceTTL is %v and there is no OnceKey; give both, or neither", r.OnceTTL)
	case r.OnceKey == "":
	case verb != "take":
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

// largest is the largest of the costs.
func (r Request) largest() int64 {
	if len(r.Costs) == 0 {
		return 1
	}
	return slices.Max(r.Costs)
}

// wanted says in an error what a request is for: 2 of "3/m".
func (r Request) wanted() string {
	costs := r.Costs
	if len(costs) == 0 {
		costs = []int64{1}
	}
	return strings.Trim(fmt.Sprint(costs), "[]") + " of " + strings.Trim(fmt.Sprintf("%q", r.Limits), "[]")
}

// most is the largest first field of a reply to r. With an OnceKey the reply may be that of an earlier, other call.
func (r Request) most() int64 {
	switch {
	case r.OnceKey != "":
		return math.MaxInt64
	case r.UpTo:
		return r.Costs[0]
	}
	return 1
}

// taken is Result.Taken for the first field of a reply to r.
func (r Request) taken(first int64) int64 {
	if !r.UpTo {
		return 0
	}
	return first
}

// wholeMilliseconds is d on the wire, a part of a millisecond rounded up.
func wholeMilliseconds(d time.Duration) string {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return strconv.FormatInt(ms, 10)
}
