package protocol

// rule is the number of a rule of PROTOCOL.md.
type rule int

const (
	ruleHeader rule = 1 + iota
	ruleJoin
	ruleLease
	ruleRead
	ruleNumber
	ruleText
	ruleWrite
	ruleVerify
	ruleUndo
	ruleFence
	ruleWatch
	ruleRollback
)

// rules describes the rules. variants are the searches of tools/deployments in which the rule is
// broken, and which must find that a deployment gets lost, or an undone one comes back.
var rules = map[rule]struct {
	name     string
	variants []string
}{
	ruleHeader: {"Header", []string{"two libraries, for header and body"}},
	ruleJoin:   {"Join", []string{"one number for the whole text"}},
	ruleLease: {"Lease", []string{"no leases", "a lease on the leader only, and two views of the leader",
		"a lease on the leader only, and its failure", "a lease on the leader only that expires"}},
	ruleRead:   {"Read", []string{"the nodes are read before the leases are taken"}},
	ruleNumber: {"Number", []string{"a number without the leader's clock"}},
	ruleText:   {"Text", []string{"a part does not keep what it replaced"}},
	ruleWrite:  {"Write", []string{"a lost lease is taken again unseen"}},
	ruleVerify: {"Verify", []string{"success is reported without reading again"}},
	ruleUndo: {"Undo", []string{"an undo writes the old number", "an undo only where something was written",
		"an undo records the failed value"}},
	ruleFence: {"Fence", []string{"no fences", "no fence before an undo", "no fence when a lease is taken over"}},
	ruleWatch: {"Watch", []string{"a watch writes to empty primaries only", "a watch without leases",
		"a watch gives its file a new number", "a watch writes its file wherever the text differs"}},
	ruleRollback: {"Rollback", []string{"a delete leaves no tombstone"}},
}
