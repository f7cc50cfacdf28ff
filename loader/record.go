package loader

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/luastring"
)

// recordName is the name of a library and of its only function. A deployment loads this library
// beside the ratelimit library on each primary. The library records the deployed build, the number
// of the deployment, and the library that was replaced. The replaced library is therefore
// replicated and persisted like the current one, and a rollback from any machine can find it.
// Reading the record needs no key and no additional permission.
const recordName = functions.Name + "_previous"

// record is the content of the library that recordName names.
type record struct {
	deployment int64  // sequence number of the deployment; 0 if there is no record
	deployed   string // digest of the deployed build
	atMS       int64  // time of the deployment by the clock of the server with the lease, in ms since the epoch
	policies   string // names of the build's policies, separated by commas
	namespaces string // JSON of namespaceRecords
	replaced   string // source code of the library replaced by the last deployment without a namespace, or ""
}

const textMark = "\nlocal TEXT = "

// text returns the library that holds the record. The description of its function differs for each
// deployment, so FUNCTION LIST shows a change even without WITHCODE.
func (r record) text() string {
	return fmt.Sprintf(`#!lua name=%s
-- Written by a deployment of the library %s: which build it loaded, and the text that it replaced.
-- FCALL_RO %s 0 returns that text, and "ratelimit rollback" restores it.
local DEPLOYMENT = %d
local DEPLOYED = '%s'
local POLICIES = %s
local NAMESPACES = %s
local AT_MS = %d%s%s
redis.register_function{
  function_name = '%s',
  description = 'Returns the library text that deployment %d, of %s, replaced.',
  flags = { 'no-writes', 'allow-stale' },
  callback = function() return TEXT end,
}
`, recordName, functions.Name, recordName, r.deployment, r.deployed, luastring.Append(nil, r.policies), luastring.Append(nil, r.namespaces), r.atMS, textMark, luastring.Append(nil, r.replaced), recordName, r.deployment, r.deployed)
}

// readRecord parses a library that record.text wrote. For any other library it returns the zero
// record.
func readRecord(code string) record {
	head, rest, ok := strings.Cut(code, textMark)
	if !ok {
		return record{}
	}
	replaced, _, ok := luastring.Cut(rest)
	if !ok {
		return record{}
	}
	r := record{replaced: replaced, deployed: value(head, "DEPLOYED"), policies: value(head, "POLICIES"), namespaces: value(head, "NAMESPACES"), atMS: number(head, "AT_MS"), deployment: number(head, "DEPLOYMENT")}
	if len(r.deployed) != 64 || r.deployment < 1 {
		return record{}
	}
	return r
}

// last returns the record of the last deployment found on the nodes, or the zero record if there is
// none. A node may still have the record of a deployment that failed or was undone by hand. So a
// record counts only if it names the wanted build or the build that its node runs, or if its node
// has no library. If a watch remembers a later deployment, last returns the record of that
// deployment.
func (f *fleet) last() record {
	var last record
	for _, m := range f.members {
		r := m.record
		counts := r.deployed == m.node.Running.Digest || r.deployed == f.want.Digest || m.text == ""
		later := cmp.Or(cmp.Compare(r.deployment, last.deployment), cmp.Compare(r.atMS, last.atMS), cmp.Compare(r.deployed, last.deployed)) > 0
		if counts && later {
			last = r
		}
	}
	if f.s.last.atMS > last.atMS {
		return f.s.last
	}
	return last
}

// records returns a function that makes the record of each node for a deployment at atMS. The
// deployment is only a repair if the build is the last one deployed, and some node still runs it or
// no node has a library. A repair keeps the last record. Any other deployment without a namespace
// records the library that it replaces on the node or, if the node has none, on the other nodes.
//
// back reports whether the deployment is a rollback.
func (f *fleet) records(atMS int64, back bool) func(*member) record {
	last := f.last()
	isThere := func(m *member) bool { return m.text == f.want.text }
	hasNone := func(m *member) bool { return m.text == "" }
	if last.deployed == f.want.Digest && (slices.ContainsFunc(f.members, isThere) || len(f.filter(hasNone)) == len(f.members)) {
		return func(*member) record { return last }
	}
	next := record{deployment: f.deployments() + 1, deployed: f.want.Digest, atMS: atMS, namespaces: last.namespaces}
	next.policies = strings.Join(slices.Sorted(maps.Keys(policiesOf(f.want.text))), ",")
	if namespace := f.s.l.namespace; namespace != "" {
		next = next.with(namespace, namespaceRecord{next.deployment, policiesIn(f.base, namespace), back})
		return func(m *member) record {
			mine := next
			if mine.replaced = last.replaced; m.record.deployed == last.deployed {
				mine.replaced = m.record.replaced // a deployment without a namespace may have replaced a different library on each node
			}
			return mine
		}
	}
	next = next.with("", namespaceRecord{Deployment: next.deployment, Back: back})
	common, _ := f.common(f.want.text)
	if len(f.filter(hasNone)) == len(f.members) && last.replaced != f.want.text {
		// No node has a library to replace. Record the library that the last deployment replaced.
		common.text = last.replaced
	}
	return func(m *member) record {
		mine := next
		if mine.replaced = m.text; m.text == "" {
			mine.replaced = common.text
		}
		return mine
	}
}

// lacksRecord reports whether a node that runs the wanted build has lost, or never got, the record
// of its deployment.
func (f *fleet) lacksRecord(m *member) bool {
	return m.node.State == Same && m.node.Role == Primary && m.record.deployed != f.want.Digest && f.last().deployed == f.want.Digest
}

// lostPolicies returns the names of policies that the node's lost library had and the wanted build
// does not have. It finds them only if the node lost the library but kept its record.
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

// common returns the library that the nodes had in common when they were inspected, with its
// record. It ignores nodes without a library, and nodes whose library is equal to except. It
// returns false if the other nodes had different libraries.
func (f *fleet) common(except string) (held, bool) {
	var found held
	for _, m := range f.members {
		switch m.text {
		case "", except, found.text:
		default:
			if found.text != "" {
				return held{}, false
			}
			found = m.held
		}
	}
	return found, true
}

// value returns the value in a line "local NAME = '...'" or "local NAME = ..." of Lua code, or ""
// if there is none.
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
