package client

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// rereadAfter is how long a LocalLimiter uses what it knows about a limit. A policy may be
// redeployed.
const rereadAfter = time.Minute

// question asks how the library on a node parses a limit. Without a node, any may answer.
type question struct {
	limit Limit
	node  string // address
}

// reading is the answer to a question.
type reading struct {
	keys   []keyReading // one per key of the limit; nil: not known
	told   time.Time    // before the question was sent that keys answer
	asked  time.Time    // before the last question was sent that got an answer, an error included
	used   time.Time    // when a call last needed the answer
	asking bool
	tooOld bool // the library cannot answer such questions
}

type keyReading struct {
	shadow    bool
	algorithm string // empty if the library is too old to report it
	rates     []rateReading
}

type rateReading struct {
	n, capacity int64
	period      time.Duration
}

// spendable reports whether units of the limit may be taken in advance and spent one by one. Each
// unit of a leaky_bucket has its own wait, and a shadow policy answers each call separately.
func (r *reading) spendable() bool {
	return len(r.keys) == 1 && !r.keys[0].shadow && r.keys[0].algorithm != "" && r.keys[0].algorithm != "leaky_bucket"
}

// learn asks a server how it parses the limits of a request that it has just decided, unless that
// is known.
func (c *Client) learn(limits []Limit) {
	for _, limit := range limits {
		q := question{limit: limit}
		if c.local.wants(q) && !c.life.run(func() { c.read(q, c.rdb) }) {
			return
		}
	}
}

// wants reports whether the caller must ask q now.
func (l *local) wants(q question) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.reading(q)
	if r.asking || l.now().Sub(r.asked) < rereadAfter {
		return false
	}
	r.asking = true
	return true
}

// reading returns what is known about q. l.mu is held.
func (l *local) reading(q question) *reading {
	r, ok := l.readings.Get(q)
	if !ok {
		r = &reading{}
		l.readings.Add(q, r)
	}
	return r
}

// batchable reports whether the call may take units from a batch. A policy may be redeployed, so
// what the key's node reported about it is valid only for the ttl of batches. If calls are more
// frequent than that, the node is asked again in time, in the background.
func (c *Client) batchable(ctx context.Context, a single) bool {
	if !c.batches.fits(a) {
		return false
	}
	if a.limit[0] != '@' {
		return true
	}
	if c.breakers.node != nil && !c.breakers.ready.Load() {
		return false // the nodes are not known yet
	}
	q, node := c.questionOf(ctx, a.key, a.limit)
	spendable, ask := c.local.spendable(q, c.batches.ttl)
	if ask && !c.life.run(func() { c.read(q, node) }) {
		return false
	}
	return spendable
}

// questionOf returns what to ask about the limit of a key, and the node to ask. A policy may be
// deployed on some nodes only. All nodes parse any other limit alike.
func (c *Client) questionOf(ctx context.Context, key string, limit Limit) (question, redis.UniversalClient) {
	if limit[0] != '@' || c.breakers.node == nil {
		return question{limit: limit}, c.rdb
	}
	node, address := c.nodeOf(ctx, c.keys([]string{key})[0])
	return question{limit, address}, node
}

// spendable reports whether a reading no older than ttl allows batches, and whether the caller must
// ask for a new one.
func (l *local) spendable(q question, ttl time.Duration) (spendable, ask bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, now := l.reading(q), l.now()
	often := now.Sub(r.used) < ttl
	r.used = now
	age, reread := now.Sub(r.asked), ttl/2
	if r.tooOld {
		reread = rereadAfter
	}
	if often && !r.asking && age >= reread {
		r.asking, ask = true, true
	}
	return now.Sub(r.told) < ttl && r.spendable(), ask
}

// read asks a node how it parses a limit. If the node does not answer, the previous answer stays,
// and a later call asks again.
func (c *Client) read(q question, node redis.UniversalClient) {
	began := c.local.now()
	keys, err := c.readingOf(c.life.ctx, q.limit, node)
	c.local.mu.Lock()
	defer c.local.mu.Unlock()
	r, known := c.local.readings.Get(q)
	if !known {
		return
	}
	r.asking = false
	var e *Error
	switch {
	case err == nil:
		r.keys, r.told, r.asked, r.tooOld = keys, began, began, keys == nil || keys[0].algorithm == ""
	case errors.As(err, &e) && e.Code != "":
		r.asked, r.tooOld = began, e.Code == "BADARGS"
	}
}

// readingOf returns how the library on a node parses a limit, key by key, or nil if the library is
// too old to report it.
func (c *Client) readingOf(ctx context.Context, limit Limit, node redis.UniversalClient) ([]keyReading, error) {
	info := call{verb: "info", args: []any{string(limit)}, way: readOnly}
	var reply any
	var err error
	if node == c.rdb {
		reply, err = c.ask(ctx, info)
	} else {
		limited := c.bounded(ctx)
		defer limited.release()
		if c.punctual {
			cmd := fcall(limited, "fcall_ro", info, nil)
			reply, err = process(limited, node, cmd, cmd)
		} else {
			reply, _, err = c.sendAside(limited, node, info)
		}
		if err != nil {
			err = newError(limited, "info", nil, err, false)
		}
	}
	keys, _ := parseReadings(reply)
	return keys, err
}

// parseReadings parses the fields limit and algorithms of info. It returns false if they are
// missing.
func parseReadings(reply any) ([]keyReading, bool) {
	fields, _ := parseFields(reply)
	list, ok := fields["limit"].([]any)
	if !ok || len(list) == 0 {
		return nil, false
	}
	algorithms, _ := fields["algorithms"].([]any)
	keys := make([]keyReading, len(list))
	for i, entry := range list {
		numbers, _ := entry.([]any)
		n := make([]int64, len(numbers))
		if len(n) < 4 || len(n)%3 != 1 || !parseIntegers(numbers, n) {
			return nil, false
		}
		if i < len(algorithms) {
			keys[i].algorithm, _ = algorithms[i].(string)
		}
		keys[i].shadow = n[0] == 1
		for ; len(n) > 3; n = n[3:] {
			if n[1] < 1 || n[2] < 1 || n[3] < 1 || max(n[1], n[3]) > mostCost {
				return nil, false
			}
			keys[i].rates = append(keys[i].rates, rateReading{n: n[1], period: milliseconds(n[2]), capacity: n[3]})
		}
	}
	return keys, true
}

// of returns the rates of limits, one entry per key in order, or the first limit that is not known.
func (l *local) of(limits []Limit) (keys []keyReading, unknown Limit) {
	for _, limit := range limits {
		r, ok := l.readings.Get(question{limit: limit})
		if !ok || r.keys == nil {
			return nil, limit
		}
		keys = append(keys, r.keys...)
	}
	return keys, ""
}
