package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// A contender makes one kind of decision in one way.
type contender struct {
	name string
	peer bool    // somebody else's limiter; false for this project's and for floors
	aim  float64 // largest ratio of the subject's time to this contender's; 0: no aim

	// library must be loaded during this contender's turns; nil if it needs none.
	library *library

	// prefix begins the keys, and has 4 bytes. It is "" for a contender without a case about absent
	// keys.
	prefix string

	// commands are the commands of one decision, in lower case. Their server times are added up.
	commands []string

	// call returns the commands of the decision about key number n, without sending them. It
	// returns an error if the contender's own client refuses to build them.
	call func(n int) ([]redis.Cmder, error)

	// read parses the replies. It returns an error if they do not have the contender's shape.
	read func(replies []redis.Cmder) (outcome, error)

	// most is the most microseconds that a decision should take; 0 means no limit.
	most float64

	// refuses reports whether the library may reject the call.
	refuses bool

	// prepare returns commands that are sent before each of the contender's turns, untimed; nil for
	// none.
	prepare func() []redis.Cmder

	// fill returns the commands that put key number n into the state that the case requires; nil if
	// none are needed.
	fill func(n int) ([]redis.Cmder, error)
}

// outcome is one decision as a contender replied it.
type outcome struct {
	allowed bool
	used    int64 // units of the key's limit in use after the call, or unknown
}

const unknown = -1

// library is the text of one version of this project's library.
type library struct {
	name string // for reports
	text string
}

// keyset selects the keys of a case.
type keyset int

const (
	inUse  keyset = iota // all keys in turn; each is filled and has not run out
	absent               // a key that does not exist, a new one for each call
	hot                  // 50 keys, again and again
	none                 // no key
)

const hotKeys = 50

// workload is what all contenders of a case do.
type workload struct {
	keys    keyset
	allow   bool // every call is allowed; otherwise every call is denied
	count   int64
	period  time.Duration // whole seconds, because some peers support nothing finer
	cost    int64
	prefill int64  // units taken from each key in advance
	second  string // a second rate on the same key
}

// rate formats the workload's limit for the library: 100/m, 60000/10h.
func (w workload) rate() string {
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

// check returns an error unless a decision is what the case claims to measure.
func (w workload) check(o outcome) error {
	if o.allowed != w.allow {
		return fmt.Errorf("allowed is %t, and the case is about calls where it is %t", o.allowed, w.allow)
	}
	if o.used == unknown || !w.allow {
		return nil
	}
	// A peer that computes in floating point can be off by one unit.
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

// A benchCase is a set of contenders that make the same decisions in turns.
type benchCase struct {
	name string
	note string // a remark for readers of the figures
	work workload
	few  bool // calls are long: one per turn, in at most five rounds

	// contenders: every other one is compared with the first, the subject.
	contenders []contender
}

// keyLength is the length of every measured key, for every contender.
const keyLength = 12

// key returns a key of keyLength bytes: prefix is 4 bytes, the number has up to 7 digits.
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
