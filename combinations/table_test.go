package combinations

import (
	"slices"
	"time"

	"github.com/ratelimit-functions/ratelimit/lua_test/model/generate"
)

// A feature is a word of a call, a layer of the client, or an event. The harness draws every pair of
// features that is legal. To have a new feature drawn with all others, add it to the table.
type feature struct {
	name string
	kind kind
	put  func(d *draw, s *step) // puts the feature into a step; for a layer into the plan of d
	with []string               // verbs that the feature can be used with; nil: all
}

type kind int

const (
	verb kind = iota
	option
	limit
	layer
	event
)

// Verbs by what their keys hold.
var (
	decisions   = []string{"take", "peek", "refund", "wait", "hold", "charge"}
	onKeys      = []string{"block", "unblock", "override", "end override", "reset"}
	onLeases    = []string{"acquire", "renew", "release", "lease hold", "lease wait"}
	leaseLimits = []string{"leases", "lease policy", "lease classes"}
	counted     = slices.Concat(decisions, onKeys, []string{"usage"})
)

var table = slices.Concat(always, shares())

var always = []feature{
	{"take", verb, nil, nil},
	{"peek", verb, nil, nil},
	{"refund", verb, nil, nil},
	{"wait", verb, func(d *draw, s *step) { s.patience = pick(d, d.span(0, 20000), d.span(0, 20000), d.span(0, 200000)) }, nil}, // also longer than a pause,
	{"hold", verb, nil, nil},
	{"charge", verb, nil, nil},
	{"block", verb, func(d *draw, s *step) { s.span = d.span(1, 20000) }, nil},
	{"unblock", verb, nil, nil},
	{"override", verb, func(d *draw, s *step) { s.span = d.span(1, 60000) }, nil},
	{"end override", verb, nil, nil},
	{"reset", verb, nil, nil},
	{"usage", verb, nil, nil},
	{"acquire", verb, nil, nil},
	{"renew", verb, nil, nil},
	{"release", verb, nil, nil},
	{"lease hold", verb, func(d *draw, s *step) { s.span = d.span(1, 300000) }, nil},
	{"lease wait", verb, func(d *draw, s *step) { s.patience = d.span(0, 20000) }, nil},

	{"several keys", option, func(d *draw, s *step) { d.keys(s, 2) }, []string{"take", "peek", "refund", "wait", "hold", "block", "unblock", "override", "end override", "reset"}},
	{"cost", option, func(d *draw, s *step) { s.costs = []int64{d.cost(s)} }, decisions},
	{"cost of each key", option, func(d *draw, s *step) { s.costs = []int64{0} }, []string{"take", "peek", "refund", "wait", "hold"}},
	{"cost 0", option, func(d *draw, s *step) { s.costs = []int64{0} }, decisions},
	{"UPTO", option, func(d *draw, s *step) { s.upTo = true }, []string{"take", "peek"}},
	{"FORCE", option, func(d *draw, s *step) { s.force = true }, []string{"take"}},
	{"EACH", option, func(d *draw, s *step) { s.each = true }, []string{"take", "peek", "refund", "wait", "hold"}},
	{"ONCE", option, func(d *draw, s *step) { d.once(s) }, []string{"take", "refund", "wait"}},
	{"TRACK", option, func(d *draw, s *step) { s.track = true }, []string{"take", "wait", "hold", "charge"}},
	{"EXTEND", option, func(d *draw, s *step) { s.extend = true }, []string{"block"}},
	{"GROW", option, func(d *draw, s *step) { s.grow = true }, []string{"block", "peek"}},
	{"penalty", option, func(d *draw, s *step) { s.penalty, s.span = true, d.span(1, 20000) }, []string{"charge"}},
	{"warning", option, func(d *draw, s *step) { s.warning = true }, []string{"take"}},
	{"bad input", option, func(d *draw, s *step) { s.spoil(d) }, slices.Concat(decisions[:len(decisions)-1], onKeys, onLeases, []string{"usage"})},

	{"gcra", limit, nil, nil},
	{"large", limit, nil, decisions},
	{"token_bucket", limit, nil, nil},
	{"leaky_bucket", limit, nil, nil},
	{"fixed_window", limit, nil, nil},
	{"calendar", limit, nil, nil},
	{"sliding_window", limit, nil, nil},
	{"sliding_log", limit, nil, nil},
	{"several rates", limit, nil, nil},
	{"count of 0", limit, nil, decisions},
	{"range edge", limit, nil, nil},
	{"policy", limit, nil, decisions},
	{"shadow", limit, nil, decisions},
	{"canary", limit, nil, decisions},
	{"track policy", limit, nil, []string{"take", "peek", "refund", "wait", "hold", "charge"}},
	{"leases", limit, nil, slices.Concat(onLeases, []string{"override"})},
	{"lease policy", limit, nil, onLeases},

	{"batches", layer, func(d *draw, _ *step) { d.plan.Batches = true }, counted},
	{"denial memory", layer, func(d *draw, _ *step) { d.plan.Memory = true }, counted},
	{"FailOpen", layer, func(d *draw, _ *step) { d.plan.Fallback = "open" }, counted},
	{"FailClosed", layer, func(d *draw, _ *step) { d.plan.Fallback = "closed" }, counted},
	{"LocalFallback", layer, func(d *draw, _ *step) { d.plan.Fallback = "local" }, counted},
	{"prefix", layer, func(d *draw, _ *step) { d.plan.Prefix = "rl:" }, nil},
	{"user's layers", layer, func(d *draw, _ *step) {
		d.plan.Layers = pick(d, []string{"counts"}, []string{"counts", "copies"}, []string{"copies", "counts"}, []string{"counts", "copies", "counts"})
	}, []string{"take", "wait", "charge"}},

	{"lost reply", event, func(d *draw, s *step) { s.fault(d, loseReply) }, nil},
	{"lost request", event, func(d *draw, s *step) { s.fault(d, loseRequest) }, nil},
	{"no connection", event, func(d *draw, s *step) { s.fault(d, refuse) }, nil},
	{"hung server", event, func(d *draw, s *step) { s.fault(d, hang) }, nil},
	{"another's call", event, func(d *draw, s *step) { d.others(s) }, nil},
	{"slow replies", event, func(d *draw, s *step) { s.slow = time.Duration(pick(d, 1, 2, 5, 10, 50)) * time.Millisecond }, nil},
	{"outage", event, func(d *draw, s *step) { s.outage = true }, nil},
	{"canceled", event, func(d *draw, s *step) { s.canceled = true }, nil},
	{"clock forward", event, func(d *draw, s *step) { s.clock = d.far() }, nil},
	{"clock back", event, func(d *draw, s *step) { s.clock = -d.far() }, nil},
	{"redeploy", event, func(d *draw, s *step) { s.redeploy = true }, nil},
	{"close", event, func(d *draw, s *step) { s.close = true }, nil},
	{"another's lease", event, func(d *draw, s *step) { s.before = append(s.before, "acquire") }, onLeases},
	{"blocked key", event, func(d *draw, s *step) { s.before = append(s.before, "block") }, nil},
	{"overridden key", event, func(d *draw, s *step) { s.before = append(s.before, "override") }, nil},
	{"foreign value", event, func(d *draw, s *step) { d.foreign(s) }, nil},
	{"spent key", event, func(d *draw, s *step) { s.before = append(s.before, "spend") }, counted},
	{"key in debt", event, func(d *draw, s *step) { s.before = append(s.before, "force") }, counted},
	{"change during a wait", event, func(d *draw, s *step) { d.changes(s) }, []string{"wait"}},
	{"crowd", event, func(d *draw, s *step) { s.crowd = d.number(2, 12) }, []string{"take", "wait", "acquire", "lease wait", "peek"}},
}

// shares returns the features of FLOOR, CLASS and BORROW, if the library knows them.
func shares() []feature {
	if !generate.Shares {
		return nil
	}
	leaving := []string{"take", "peek", "wait", "hold", "acquire", "lease hold", "lease wait"}
	return []feature{
		{"FLOOR", option, func(d *draw, s *step) { s.floor = new(pick(d, int64(0), 20, 50, 50, 80, 100)) }, leaving},
		{"CLASS", option, func(d *draw, s *step) { d.class(s) }, leaving},
		{"BORROW", option, func(d *draw, s *step) { d.borrow(s) }, []string{"take", "peek", "refund"}},
		{"classes", limit, nil, decisions},
		{"lease classes", limit, nil, onLeases},
		{"guarantee", limit, nil, []string{"take", "peek", "refund"}},
	}
}

// exclusions lists the pairs that cannot occur, with the reason. Feature.with excludes others.
var exclusions = []struct {
	a, b []string
	why  string
}{
	{[]string{"UPTO"}, []string{"FORCE"}, "BADARGS: FORCE takes all units, UPTO those that fit"},
	{[]string{"EXTEND"}, []string{"GROW"}, "BADARGS: GROW extends no block"},
	{[]string{"UPTO"}, []string{"cost of each key"}, "BADARGS: UPTO has one cost"},
	{[]string{"FLOOR", "CLASS", "BORROW"}, []string{"FORCE"}, "BADARGS: FORCE takes all units"},
	{[]string{"FLOOR"}, []string{"CLASS", "BORROW", "guarantee"}, "BADARGS: each says what a call leaves"},
	{[]string{"CLASS"}, []string{"BORROW", "guarantee"}, "BADARGS: each says what a call leaves"},
	{[]string{"CLASS"}, names(limit, "classes", "lease classes"), "BADARGS: CLASS takes policies with classes"},
	{[]string{"CLASS"}, []string{"several keys", "cost of each key"}, "the policies with classes have one key"},
	{[]string{"BORROW", "guarantee"}, []string{"UPTO", "FORCE", "EACH", "cost of each key"}, "BADARGS: a loan has one cost, and one decision"},
	{[]string{"BORROW"}, []string{"several rates", "policy", "shadow", "canary", "track policy", "classes"}, "BADARGS: BORROW takes two limits of one rate"},
	{[]string{"BORROW"}, []string{"guarantee"}, "package client always gives BORROW beside a guarantee"},
	{[]string{"guarantee"}, []string{"several keys", "spent key", "key in debt"}, "a guarantee and its pool are two keys, and the whole call"},
	{[]string{"crowd"}, []string{"FLOOR", "CLASS", "BORROW", "guarantee"}, "a crowd makes plain calls of one key"},
	{[]string{"cost"}, []string{"cost of each key", "cost 0"}, "a call has one list of costs"},
	{[]string{"cost 0"}, []string{"cost of each key"}, "a call has one list of costs"},
	{onLeases, counted[:len(decisions)], "BADSTATE: a key holds leases or a state, never both"},
	{leaseLimits, counted[:len(decisions)], "BADSTATE: a key holds leases or a state, never both"},
	{onLeases, []string{"usage"}, "acquire has no TRACK"},
	{[]string{"usage"}, leaseLimits, "acquire has no TRACK"},
	{leaseLimits, names(limit, leaseLimits...), "BADSTATE: a key holds leases or a state, never both"},
	{leaseLimits, names(option, "several keys", "EXTEND", "bad input", "FLOOR", "CLASS"), "acquire, renew and release have no options"},
	{leaseLimits, names(layer, "prefix"), "leases do not pass through the layers"},
	{leaseLimits, []string{"key in debt", "spent key"}, "leases have no units"},
	{[]string{"another's lease"}, names(limit, leaseLimits...), "BADSTATE: a key holds leases or a state, never both"},
	{[]string{"another's lease"}, []string{"foreign value"}, "BADSTATE: a foreign key holds no lease"},
	{[]string{"FailOpen"}, []string{"FailClosed", "LocalFallback"}, "a client has one fallback"},
	{[]string{"FailClosed"}, []string{"LocalFallback"}, "a client has one fallback"},
	{[]string{"outage"}, []string{"lost reply", "lost request", "no connection", "hung server", "another's call", "slow replies", "canceled"}, "nothing is sent during an outage"},
	{[]string{"no connection"}, []string{"canceled"}, "nothing is sent"},
	{[]string{"clock back"}, []string{"clock forward"}, "a step moves the clock once; other steps follow"},
	{[]string{"crowd"}, names(option, "cost", "EACH", "TRACK", "UPTO", "cost 0"), "a crowd makes plain calls of one key"},
	{[]string{"warning"}, []string{"crowd"}, "a crowd makes plain calls of one key"},
	{[]string{"warning"}, []string{"bad input"}, "a call with bad input has no result"},
	{[]string{"crowd"}, []string{"bad input"}, "a call with bad input is not sent"},
	{[]string{"bad input"}, []string{"lost reply", "lost request", "no connection", "hung server", "another's call", "slow replies", "outage", "canceled", "another's lease", "blocked key", "overridden key", "spent key", "key in debt", "foreign value"}, "a call with bad input is not executed"},
	{[]string{"change during a wait"}, []string{"close", "bad input"}, "the client is closed, or the wait ends at once"},
	{[]string{"crowd"}, []string{"another's call"}, "the other call follows a lost reply of one caller"},
}

// names returns the features of a kind, except some.
func names(k kind, except ...string) (all []string) {
	for _, f := range kinds[k] {
		if !slices.Contains(except, f) {
			all = append(all, f)
		}
	}
	return all
}

// kinds lists the names of the table by kind. It is separate from table, because the exclusions use
// it before table is initialized.
var kinds = func() map[kind][]string {
	all := map[kind][]string{}
	for _, f := range table {
		all[f.kind] = append(all[f.kind], f.name)
	}
	return all
}()

func find(name string) feature {
	i := slices.IndexFunc(table, func(f feature) bool { return f.name == name })
	if i < 0 {
		panic("no feature " + name)
	}
	return table[i]
}

// illegal returns why two features cannot occur together, or "".
func illegal(a, b feature) string {
	for _, x := range exclusions {
		if slices.Contains(x.a, a.name) && slices.Contains(x.b, b.name) || slices.Contains(x.a, b.name) && slices.Contains(x.b, a.name) {
			return x.why
		}
	}
	for _, pair := range [][2]feature{{a, b}, {b, a}} {
		if pair[1].kind == verb && pair[0].with != nil && !slices.Contains(pair[0].with, pair[1].name) {
			return "the verb has no such word, or ignores it"
		}
	}
	if a.kind != verb && b.kind != verb && !slices.ContainsFunc(kinds[verb], func(v string) bool { return allows(a, v) && allows(b, v) }) {
		return "no verb has both"
	}
	return ""
}

func allows(f feature, v string) bool { return f.with == nil || slices.Contains(f.with, v) }

// sets lists larger sets of features that are drawn like the pairs, because a defect was found where
// they meet, or because pairs seldom lead there.
var sets = [][]string{
	{"refund", "several keys", "ONCE", "blocked key", "shadow"},
	{"wait", "ONCE", "leaky_bucket", "spent key"},
	{"wait", "lost reply", "FailClosed"},
	{"wait", "change during a wait", "blocked key"},
	{"wait", "change during a wait", "spent key"},
	{"wait", "change during a wait", "spent key", "batches", "denial memory"},
	{"wait", "change during a wait", "spent key", "LocalFallback", "no connection"},
	{"wait", "ONCE", "hung server", "FailClosed", "canceled"},
	{"wait", "cost", "no connection", "LocalFallback"},
	{"hold", "FailOpen", "lost reply"},
	{"take", "cost", "token_bucket", "spent key", "clock back"},
	{"take", "cost", "sliding_log", "spent key", "clock back"},
	{"take", "cost", "gcra", "spent key", "clock back"},
	{"take", "FORCE", "range edge"},
	{"take", "cost", "range edge", "key in debt"},
	{"take", "TRACK", "large", "blocked key", "foreign value"},
	{"take", "several keys", "UPTO", "shadow"},
	{"take", "UPTO", "ONCE", "count of 0", "overridden key"},
	{"lease hold", "leases", "another's lease", "overridden key"},
	{"lease hold", "lease policy", "another's lease", "redeploy"},
	{"acquire", "leases", "another's call"},
	{"take", "batches", "crowd", "gcra"},
	{"take", "batches", "crowd", "large", "close", "slow replies"},
	{"take", "batches", "crowd", "large", "block"},
	{"take", "LocalFallback", "crowd", "outage"},
	{"take", "denial memory", "spent key", "reset"},
	{"charge", "FailOpen", "lost reply"},
	{"charge", "LocalFallback", "no connection"},
}
