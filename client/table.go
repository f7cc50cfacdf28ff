package client

import (
	"slices"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2/simplelru"
)

// mostKeys is the maximum number of entries in a table of keys.
const mostKeys = 65536

// table is a map that drops the least recently used entry when it is full.
type table[K comparable, V any] struct {
	mu      sync.Mutex // guards entries and the values in them
	entries *lru.LRU[K, V]
}

func newTable[K comparable, V any](size int) table[K, V] {
	entries, err := lru.NewLRU[K, V](size, nil)
	if err != nil { // happens only if the size is not positive
		panic(err)
	}
	return table[K, V]{entries: entries}
}

// shrink removes up to two entries: the least recently used ones, if they are not needed. It is
// called before an entry is added, so the table gets smaller when fewer keys are in use. t.mu must
// be held.
func (t *table[K, V]) shrink(needed func(V) bool) {
	for range 2 {
		if _, oldest, ok := t.entries.GetOldest(); ok && !needed(oldest) {
			t.entries.RemoveOldest()
		}
	}
}

func (t *table[K, V]) drop(keys []K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range keys {
		t.entries.Remove(key)
	}
}

// share says which part of a limit a call leaves to others. Calls with different shares get different
// decisions on the same key.
type share struct {
	class string
	floor int
}

type sharedKey struct {
	key string
	share
}

// mostShares is the maximum number of shares in a sharedTable, besides that of a call that has none.
// Programs use a few. With a bound, the entries of a key can be found.
const mostShares = 64

// sharedTable is a table with an entry for each key and share.
type sharedTable[V any] struct {
	table[sharedKey, V]
	shares []share // those that entries can have, besides share{}
}

func newSharedTable[V any](size int) sharedTable[V] {
	return sharedTable[V]{table: newTable[sharedKey, V](size)}
}

// add adds an entry, unless its share is one too many. It reports whether the entry was added. t.mu must
// be held.
func (t *sharedTable[V]) add(at sharedKey, v V) bool {
	if at.share != (share{}) && !slices.Contains(t.shares, at.share) {
		if len(t.shares) == mostShares {
			return false
		}
		t.shares = append(t.shares, at.share)
	}
	t.entries.Add(at, v)
	return true
}

// drop removes the entries of keys, for all shares.
func (t *sharedTable[V]) drop(keys []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range keys {
		t.entries.Remove(sharedKey{key: key})
		for _, share := range t.shares {
			t.entries.Remove(sharedKey{key, share})
		}
	}
}
