package embedded

import (
	"container/heap"
	"fmt"
	"time"
)

// clock is the server's time. A command reads it once, so that time stands
// still during a command, an EXEC or a function call.
type clock struct {
	frozen bool
	at     time.Time // while frozen
	now    time.Time // of the running command
}

func (c *clock) read() {
	if c.frozen {
		c.now = c.at
	} else {
		c.now = time.Now()
	}
}

// ms is the running command's time in whole milliseconds: Redis expires keys
// by the millisecond, rounding the clock down.
func (c *clock) ms() int64 { return c.now.UnixMilli() }

// SetTime stops the server's clock at t: TIME answers it, and keys expire by
// it. Moving it forward expires keys as if the time had passed. A key whose
// expiry is the clock's millisecond is still there, with a PTTL of 0, and is
// gone one millisecond later, as on Redis. Times before 1970 are refused, by a
// panic, as a mistake in a test.
func (s *Server) SetTime(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.setTime(t); err != nil {
		panic(err)
	}
}

// Advance moves a clock that stands still by d; a clock that runs is first
// stopped at the present time.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.read()
	if err := s.setTime(s.clock.now.Add(d)); err != nil {
		panic(err)
	}
}

// Time is the server's time.
func (s *Server) Time() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.read()
	return s.clock.now
}

func (s *Server) setTime(t time.Time) error {
	if t.UnixMicro() <= 0 {
		return fmt.Errorf("embedded: the clock cannot be set to %s: give a time after 1970-01-01 UTC", t.Format(time.RFC3339Nano))
	}
	s.clock.frozen = true
	s.clock.at = t
	s.keyspace.SetTime(t) // for what miniredis dates itself, such as stream IDs
	return nil
}

// expiry knows when keys expire, soonest first. miniredis only counts TTLs
// down; here its TTL of a key holds the moment itself, in milliseconds since
// 1970, one nanosecond standing for one millisecond. So a key's expiry still
// moves with it in miniredis (RENAME, COPY, DEL, SET), and a running clock
// costs nothing until something expires.
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

// expiresAt is when a key expires, in milliseconds since 1970; 0 means never.
func (s *Server) expiresAt(db int, key string) int64 {
	return int64(s.keyspace.DB(db).TTL(key))
}

func (s *Server) setExpiry(db int, key string, at int64) {
	s.keyspace.DB(db).SetTTL(key, time.Duration(at))
	s.planExpiry(db, key)
}

// planExpiry puts a key that may have got an expiry on the list. A key is on
// it at most once for its soonest moment: when that comes, the key itself is
// asked again.
func (s *Server) planExpiry(db int, key string) {
	at := s.expiresAt(db, key)
	if at == 0 {
		return
	}
	if s.expiry.planned == nil {
		s.expiry.planned = map[dbKey]int64{}
	}
	k := dbKey{db, key}
	if planned, ok := s.expiry.planned[k]; ok && planned <= at {
		return
	}
	s.expiry.planned[k] = at
	heap.Push(&s.expiry.queue, due{at, k})
}

// expire deletes the keys whose time is over.
func (s *Server) expire() {
	now := s.clock.ms()
	q := &s.expiry.queue
	for len(*q) > 0 && (*q)[0].at < now {
		d := heap.Pop(q).(due)
		if s.expiry.planned[d.dbKey] != d.at {
			continue // planned again, for sooner
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

// planAll plans every key anew, for the rare command that renames databases.
func (s *Server) planAll() {
	s.expiry = expiry{}
	for db := range databases {
		for _, key := range s.keyspace.DB(db).Keys() {
			s.planExpiry(db, key)
		}
	}
}

// databases is how many databases there are, as Redis has by default.
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
