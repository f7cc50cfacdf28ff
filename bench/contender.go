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
	aim  float64 // what subject ÷ this contender should be at most; 0: no aim is set

	// library is what must be loaded during this contender's turns; nil: nothing.
	library *library

	// prefix is what the keys begin with, 4 bytes; "" for a contender that takes part in no case about absent keys.
	prefix string

	// commands are the commands of one decision, in lower case; the server time of all of them is added up.
	commands []string

	// call returns the commands of the decision about key number n, not yet sent. An error means that the contender's
	// own client refuses to build them.
	call func(n int) ([]redis.Cmder, error)

	// read tells what the replies say. It errs on replies that are not of the contender's shape.
	read func(replies []redis.Cmder) (outcome, error)

	// most is how many microseconds a decision should take at most; 0: no bound is set.
	most float64

	// prepare returns commands that are sent before each of the contender's turns, not timed; nil: none.
	prepare func() []redis.Cmder

	// fill returns the commands that bring key number n into the state which the case is about; nil: none needed.
	fill func(n int) ([]redis.Cmder, error)
}

// outcome is one decision as a contender has replied it.
type outcome struct {
	allowed bool
	used    int64 // units taken of the key's allowance after the call; unknown if the contender does not tell
}

const unknown = -1

// library is one text that registers the functions of this project.
type library struct {
	name string // for reports
	text string
}

// keyset says about which keys a case asks.
type keyset int

const (
	inUse  keyset = iota // all keys in turn; each has been filled and has not run out
	absent               // a key that does not exist, another one at each call
	hot                  // 50 keys, over and over
	none                 // no key
)

const hotKeys = 50

// workload is what all contenders of a case are asked to do.
type workload struct {
	keys    keyset
	allow   bool // every call is allowed; otherwise every call is denied
	count   int64
	period  time.Duration // whole seconds: some peers know nothing finer
	cost    int64
	prefill int64  // units taken from each key beforehand
	second  string // a second rate on the same key
}

// rate writes the workload's limit as the library takes it: 100/m, 60000/10h.
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

// check tells whether a decision is what the case claims to be about.
func (w workload) check(o outcome) error {
	if o.allowed != w.allow {
		return fmt.Errorf("allowed is %t, and the case is about calls where it is %t", o.allowed, w.allow)
	}
	if o.used == unknown || !w.allow {
		return nil
	}
	// A peer that computes in floating point can be one unit off.
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

// A benchCase lets contenders make the same decisions in turns.
type benchCase struct {
	name string
	note string // what a reader of the figures must know
	work workload
	few  bool // each call is long: one a turn, in five rounds at most

	// contenders: the first is the subject, with which every other is compared.
	contenders []contender
}

// keyLength is that of every key that is measured, for every contender.
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
