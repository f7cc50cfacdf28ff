package loader

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/luastring"
)

// recordName is the library, and its only function, that a deployment leaves beside ours on each primary: which build
// was put there, the number of that deployment, and the text that it replaced. So what there is to go back to is
// replicated and persisted as the library is, and found from any machine; reading it needs no key and no further right.
const recordName = functions.Name + "_previous"

// record is what that library says.
type record struct {
	deployment int64  // counts the deployments to these servers; 0: there is no record
	deployed   string // digest of the build that was put in place
	atMS       int64  // when, by the clock of the server with the lease; ms since the epoch
	policies   string // names of those of that build, separated by commas
	replaced   string // the text that was there before, "" if there was none
}

const textMark = "\nlocal TEXT = "

// text is the library that holds the record. Its description makes each deployment visible in a list without texts.
func (r record) text() string {
	return fmt.Sprintf(`#!lua name=%s
-- Written by a deployment of the library %s: which build it put here, and the text that it replaced, which
-- FCALL_RO %s 0 returns and "ratelimit rollback" puts back.
local DEPLOYMENT = %d
local DEPLOYED = '%s'
local POLICIES = %s
local AT_MS = %d%s%s
redis.register_function{
  function_name = '%s',
  description = 'Returns the library text that deployment %d, of %s, replaced.',
  flags = { 'no-writes', 'allow-stale' },
  callback = function() return TEXT end,
}
`, recordName, functions.Name, recordName, r.deployment, r.deployed, luastring.Append(nil, r.policies), r.atMS, textMark, luastring.Append(nil, r.replaced), recordName, r.deployment, r.deployed)
}

// readRecord reads the library that text wrote; a record of deployment 0 where it is another's.
func readRecord(code string) record {
	head, rest, ok := strings.Cut(code, textMark)
	if !ok {
		return record{}
	}
	replaced, _, ok := luastring.Cut(rest)
	if !ok {
		return record{}
	}
	r := record{replaced: replaced, deployed: value(head, "DEPLOYED"), policies: value(head, "POLICIES"), atMS: number(head, "AT_MS"), deployment: number(head, "DEPLOYMENT")}
	if len(r.deployed) != 64 || r.deployment < 1 {
		return record{}
	}
	return r
}

// last is the record of the last deployment that the nodes tell of; of deployment 0 if there is none. A record can be left
// over from a deployment that got no further, or that somebody undid by hand: only one counts that says what its node
// runs, or ran before it was lost, or that the wanted build was deployed. A watch remembers the last one that it has seen.
func (f *fleet) last() record {
	var last record
	for _, m := range f.members {
		r := m.record
		counts := r.deployed == m.node.Running.Digest || r.deployed == f.want.Digest || m.text == ""
		if counts && r.deployment > last.deployment {
			last = r
		}
	}
	if f.s.last.atMS > last.atMS {
		return f.s.last
	}
	return last
}

// records returns which record each node is to keep of a deployment at this time. One that only repairs, since the build
// is the one that was deployed last and some nodes lost it, or all have nothing, is no new deployment: what there is
// to go back to stays as it was. A node that has nothing to be replaced keeps what is replaced on the others.
func (f *fleet) records(atMS int64) func(*member) record {
	last := f.last()
	isThere := func(m *member) bool { return m.text == f.want.text }
	hasNone := func(m *member) bool { return m.text == "" }
	if last.deployed == f.want.Digest && (slices.ContainsFunc(f.members, isThere) || len(f.some(hasNone)) == len(f.members)) {
		return func(*member) record { return last }
	}
	next := record{deployment: f.deployments() + 1, deployed: f.want.Digest, atMS: atMS}
	next.policies = strings.Join(slices.Sorted(maps.Keys(policiesOf(f.want.text))), ",")
	common, _ := f.common(f.want.text)
	if len(f.some(hasNone)) == len(f.members) && last.replaced != f.want.text {
		common.text = last.replaced // nothing is left of what is replaced: what that had replaced is the best that there is
	}
	return func(m *member) record {
		mine := next
		if mine.replaced = m.text; m.text == "" {
			mine.replaced = common.text
		}
		return mine
	}
}

// lacksRecord tells whether a node has lost, or never got, the record of the wanted build's deployment.
func (f *fleet) lacksRecord(m *member) bool {
	return m.node.State == Same && m.node.Role == Primary && m.record.deployed != f.want.Digest && f.last().deployed == f.want.Digest
}

// lostPolicies names the policies that a node had before it lost the library alone, and that the wanted build does not have.
func (f *fleet) lostPolicies(m *member) []string {
	if m.text != "" || m.record.policies == "" || m.record.deployed != f.last().deployed {
		return nil
	}
	has := policiesOf(f.want.text)
	return slices.DeleteFunc(strings.Split(m.record.policies, ","), func(name string) bool {
		_, ok := has[name]
		return ok
	})
}

// common is what all nodes held when they were looked at, those left out that had no library or this text; false if they
// did not hold the same.
func (f *fleet) common(but string) (held, bool) {
	var found held
	for _, m := range f.members {
		switch m.text {
		case "", but, found.text:
		default:
			if found.text != "" {
				return held{}, false
			}
			found = m.held
		}
	}
	return found, true
}

// value is what a line "local NAME = '...'" or "local NAME = ..." of a Lua text gives; "" where there is none.
func value(head, name string) string {
	for line := range strings.Lines(head) {
		if v, ok := strings.CutPrefix(line, "local "+name+" = "); ok {
			if text, _, ok := luastring.Cut(v); ok {
				return text
			}
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func number(head, name string) int64 {
	n, _ := strconv.ParseInt(value(head, name), 10, 64)
	return n
}
