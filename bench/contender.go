package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// A contender is a limiter that makes one kind of decision.
type contender struct {
	name string
	peer bool    // another project's limiter
	aim  float64 // maximum ratio of the subject's time to this contender's time; 0 for no aim

	// library must be loaded during this contender's turns. It is nil if the contender needs no
	// library.
	library *library

	// prefix is the first 4 bytes of every key. Only cases with absent keys need it.
	prefix string

	// commands are the names, in lower case, of the commands that make a decision. The time of a
	// decision is the sum of their server times.
	commands []string

	// call returns the commands that make a decision about key number n. If a command cannot be
	// built, it contains an error.
	call func(n int) []redis.Cmder

	// read parses the replies. It returns an error if they do not have the expected form.
	read func(replies []redis.Cmder) (outcome, error)

	// most is the maximum time of a decision, in microseconds; 0 for no maximum.
	most float64

	// refuses means that the library may reject the call.
	refuses bool

	// prepare returns commands to send before each of the contender's turns. They are not measured.
	// prepare may be nil.
	prepare func() []redis.Cmder

	// fill returns the commands that put key number n into the state that the case requires. fill
	// may be nil.
	fill func(n int) []redis.Cmder
}

// aimed returns a copy of the contender with the given aim.
func (c contender) aimed(aim float64) contender {
	c.aim = aim
	return c
}

// named returns a copy of the contender with another name.
func (c contender) named(name string) contender {
	c.name = name
	return c
}

// taking returns a copy of c whose call takes w.cost units from a key, and whose fill takes
// w.prefill units. take returns the commands that take units from key number n.
func (c contender) taking(w workload, take func(n int, units int64) []redis.Cmder) contender {
	c.call = func(n int) []redis.Cmder { return take(n, w.cost) }
	if w.prefill > 0 {
		c.fill = func(n int) []redis.Cmder { return take(n, w.prefill) }
	}
	return c
}

type outcome struct {
	allowed bool
	used    int64 // units of the limit that are in use after the call, or unknown
}

const unknown = -1

// library is the source code of one version of this project's library.
type library struct {
	name string // for reports
	text string
}

// keyset describes which keys the calls in a case use.
type keyset int

const (
	inUse  keyset = iota // all keys; they are filled beforehand and never run out of units
	absent               // a new key for each call
	hot                  // 50 keys
	none                 // no keys
)

const hotKeys = 50

// workload describes the calls in a case. All contenders of the case use the same workload.
type workload struct {
	keys    keyset
	allow   bool // whether every call is allowed; otherwise every call is denied
	count   int64
	period  time.Duration // whole seconds, because some peers support nothing finer
	cost    int64
	prefill int64  // units taken from each key beforehand
	second  string // second rate of the limit, or ""
	limit   string // the limit, if count and period cannot express it
}

// rate formats the workload's limit for the library: 100/m, 60000/10h.
func (w workload) rate() string {
	if w.limit != "" {
		return w.limit
	}
	unit, name := time.Second, "s"
	switch {
	case w.period%day == 0:
		unit, name = day, "d"
	case w.period%time.Hour == 0:
		unit, name = time.Hour, "h"
	case w.period%time.Minute == 0:
		unit, name = time.Minute, "m"
	}
	text := fmt.Sprintf("%d/%d%s", w.count, w.period/unit, name)
	if w.period == unit {
		text = fmt.Sprintf("%d/%s", w.count, name)
	}
	if w.second != "" {
		text += ", " + w.second
	}
	return text
}

// check returns an error unless the decision is of the kind that the case measures.
func (w workload) check(o outcome) error {
	if o.allowed != w.allow {
		return fmt.Errorf("allowed is %t, and the case is about calls where it is %t", o.allowed, w.allow)
	}
	if o.used == unknown || !w.allow {
		return nil
	}
	// Allow a difference of one unit, because some peers compute in floating point.
	switch w.keys {
	case inUse:
		if o.used <= w.cost+1 {
			return fmt.Errorf("%d units are used after a call of cost %d, and the case is about keys already in use; "+
				"they ran out: measure with fewer --calls or --rounds", o.used, w.cost)
		}
	case absent:
		if o.used > w.cost+1 {
			return fmt.Errorf("%d units are used after a call of cost %d, and the case is about absent keys", o.used, w.cost)
		}
	}
	return nil
}

// A benchCase is a set of contenders that take turns making the same kind of decision.
type benchCase struct {
	name string
	note string // a remark printed with the figures
	work workload
	few  bool // whether calls are slow: one call per turn, at most five rounds

	// contenders[0] is the subject, with which all others are compared.
	contenders []contender
}

// keyLength is the length of every measured key.
const keyLength = 12

// key returns a key of keyLength bytes: a prefix of 4 bytes, a colon, and n in 7 digits.
func key(prefix string, n int) string {
	var buffer [keyLength]byte
	copy(buffer[:], prefix)
	buffer[4] = ':'
	digits := strconv.AppendInt(nil, int64(n), 10)
	for i := 5; i < keyLength-len(digits); i++ {
		buffer[i] = '0'
	}
	copy(buffer[keyLength-len(digits):], digits)
	return string(buffer[:])
}
