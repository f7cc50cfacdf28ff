package client

import (
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

func newTable[K comparable, V any](size int) table[K, V] { return newTableOf[K, V](size, nil) }

// newTableOf returns a table that calls removed with each entry that leaves it.
func newTableOf[K comparable, V any](size int, removed func(K, V)) table[K, V] {
	entries, err := lru.NewLRU(size, removed)
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

// sharedTable is a table with an entry for each key and share.
type sharedTable[V any] struct {
	table[sharedKey, V]
	shares map[share]int // of the entries, except share{}: how many have it
}

func newSharedTable[V any](size int) sharedTable[V] {
	shares := map[share]int{}
	return sharedTable[V]{shares: shares, table: newTableOf(size, func(at sharedKey, _ V) {
		if shares[at.share]--; shares[at.share] <= 0 {
			delete(shares, at.share)
		}
	})}
}

// add adds an entry, or replaces that for the same key and share. t.mu must be held.
func (t *sharedTable[V]) add(at sharedKey, v V) {
	if at.share != (share{}) && !t.entries.Contains(at) {
		t.shares[at.share]++
	}
	t.entries.Add(at, v)
}

// drop removes the entries of keys, for all shares.
func (t *sharedTable[V]) drop(keys []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range keys {
		t.entries.Remove(sharedKey{key: key})
		for share := range t.shares { // Remove may delete share from it, which is allowed
			t.entries.Remove(sharedKey{key, share})
		}
	}
}
