package model

type kind int

const (
	nothing kind = iota // a block alone
	limiter
	leases
	keptReply
	usageRecord
)

// An entry is what one key holds. Of the fields below kind only those of its kind are set.
type entry struct {
	blocked int64 // until then, in milliseconds; what it was stays there when it has ended, until something is written

	kind  kind
	until int64 // when what is kept expires, in milliseconds

	algorithm string
	rates     []any // what each rate keeps, by place

	leases map[string]int64 // when each lapses, in milliseconds
	reply  []any
	usage  *usage
}

// expires is when the key does: when neither the block nor what is underneath matters any more.
func (e *entry) expires() int64 {
	ends := e.blocked
	if e.kind != nothing {
		ends = max(ends, e.until)
	}
	return ends
}

// holds is the kind of what the key holds at a time; a block alone, or one that has outlived what is underneath, is nothing.
func (e *entry) holds(now instant) kind {
	if e == nil || e.kind == nothing || e.until < now.ms() {
		return nothing
	}
	return e.kind
}

// blockedFor is for how many milliseconds the key is still blocked, 0 if it is not.
func (e *entry) blockedFor(now instant) int64 {
	if e == nil {
		return 0
	}
	return max(0, e.blocked-now.ms())
}

// write puts something into a key. A block in force stays, one that has ended goes with that (but not with a release).
func (m *Model) write(key string, written *entry) {
	if old := m.keys[key]; old.blockedFor(m.now) > 0 {
		written.blocked = old.blocked
	}
	if written.expires() <= m.now.ms() {
		delete(m.keys, key)
		return
	}
	m.keys[key] = written
}
