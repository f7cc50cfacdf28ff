package embedded

import (
	"container/heap"
	"time"
)

// expiry records when keys expire, soonest first. miniredis stores only TTLs, so the server stores
// a key's absolute expiry as the key's TTL in miniredis: one nanosecond of the TTL stands for one
// millisecond since 1970. This way, miniredis moves and deletes the expiry with the key (RENAME,
// COPY, DEL, SET), and a running clock costs nothing until a key expires.
type expiry struct {
	queue   dueQueue
	planned map[dbKey]int64
}

type dbKey struct {
	db  int
	key string
}

type due struct {
	at int64
	dbKey
}

// expiresAt returns when a key expires, in milliseconds since 1970, or 0 if it never does.
func (s *Server) expiresAt(db int, key string) int64 {
	return int64(s.keyspace.DB(db).TTL(key))
}

func (s *Server) setExpiry(db int, key string, at int64) {
	s.keyspace.DB(db).SetTTL(key, time.Duration(at))
	s.planExpiry(db, key)
}

// expireAt makes a key expire at the given time. If that time is not in the future, it deletes the
// key.
func (s *Server) expireAt(db int, key string, at int64) {
	if at <= s.clock.ms() {
		s.keyspace.DB(db).Del(key)
	} else {
		s.setExpiry(db, key, at)
	}
}

// planExpiry queues a key that may have a new expiry. If the key is already queued for that time or
// an earlier one, nothing changes. When the time comes, expire checks the key's actual expiry.
func (s *Server) planExpiry(db int, key string) {
	at := s.expiresAt(db, key)
	if at == 0 {
		return
	}
	k := dbKey{db, key}
	if planned, ok := s.expiry.planned[k]; ok && planned <= at {
		return
	}
	s.expiry.planned[k] = at
	heap.Push(&s.expiry.queue, due{at, k})
}

func (s *Server) expire() {
	now := s.clock.ms()
	q := &s.expiry.queue
	for len(*q) > 0 && (*q)[0].at < now {
		d := heap.Pop(q).(due)
		if s.expiry.planned[d.dbKey] != d.at {
			continue // stale: the key was queued again, for an earlier time
		}
		delete(s.expiry.planned, d.dbKey)
		switch at := s.expiresAt(d.db, d.key); {
		case at == 0:
		case at < now:
			s.keyspace.DB(d.db).Del(d.key)
		default:
			s.planExpiry(d.db, d.key)
		}
	}
}

// databases is the number of databases. It is Redis's default.
const databases = 16

type dueQueue []due

func (q dueQueue) Len() int           { return len(q) }
func (q dueQueue) Less(i, j int) bool { return q[i].at < q[j].at }
func (q dueQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *dueQueue) Push(x any)        { *q = append(*q, x.(due)) }
func (q *dueQueue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}
