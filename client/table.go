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
