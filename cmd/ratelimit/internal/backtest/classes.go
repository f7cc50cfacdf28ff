package backtest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
)

// mostClasses is the maximum number of classes in a log. A policy has at most 16.
const mostClasses = 100

// classes are the classes of the lines, in the order in which they first occur. The workers read the
// names while the logs are being read.
type classes struct {
	field string
	names atomic.Pointer[[]string]
	err   error
}

// number returns the number of a class, from 1; 0 for a line without a class. If there are too many
// classes, number sets err.
func (c *classes) number(name []byte) uint32 {
	if len(name) == 0 {
		return 0
	}
	var names []string
	if given := c.names.Load(); given != nil {
		names = *given
	}
	at := slices.Index(names, string(name))
	if at < 0 {
		if len(names) == mostClasses {
			c.err = fmt.Errorf("the field %s has more than %d values, so it is not a class; give --class-by another", c.field, mostClasses)
			return 0
		}
		at = len(names)
		names = append(slices.Clone(names), string(name))
		c.names.Store(&names)
	}
	return uint32(at + 1)
}

// Class reports what the calls of one class would have got.
type Class struct {
	Class    string `json:"class"` // "" for lines without a class
	Requests int64  `json:"requests"`
	Allowed  int64  `json:"allowed"`
	Denied   int64  `json:"denied"`
	Units
}

// count counts a decision.
func (c *Class) count(allowed bool, cost int64) {
	c.Requests++
	if allowed {
		c.Allowed++
		c.Units.Allowed = plus(c.Units.Allowed, cost)
		return
	}
	c.Denied++
	c.Units.Denied = plus(c.Units.Denied, cost)
}

// named returns the classes sorted by name.
func (c *classes) named(sums map[uint32]*Class) []Class {
	list := []Class{}
	for _, number := range slices.Sorted(maps.Keys(sums)) {
		sum := *sums[number]
		if number > 0 {
			sum.Class = (*c.names.Load())[number-1]
		}
		list = append(list, sum)
	}
	slices.SortFunc(list, func(a, b Class) int { return cmp.Compare(a.Class, b.Class) })
	return list
}

// Name returns the class for display.
func (c Class) Name() string {
	if c.Class == "" {
		return "(none)"
	}
	return Shown(c.Class)
}
