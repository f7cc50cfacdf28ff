package model

// percent returns the part of each capacity, in percent, that the call leaves to others in the limits
// of p. A policy with a guarantee and a pool has its own.
func (c Call) percent(p Policy) int64 {
	switch {
	case c.Verb == Refund || c.Verb == Renew || c.Verb == Release || c.Force || c.borrows():
		return 0
	case c.Floor != nil:
		return *c.Floor
	case c.Class != "":
		return p.Classes[c.Class]
	}
	return p.Classes["default"]
}

// class returns the class of p for which the call counts. ok is false if it counts for none.
func (c Call) class(p Policy) (class string, ok bool) {
	if class = c.Class; class == "" {
		class = "default"
	}
	_, known := p.Classes[class]
	return class, known && c.Floor == nil && !c.Force
}

// kept returns a percentage of a capacity, rounded up.
func kept(capacity, percent int64) int64 {
	return ceil(over(times(percent, whole(capacity)), whole(100)))
}

// misfloored reports whether the library rejects the call's FLOOR or CLASS.
func (c Call) misfloored() bool {
	floor := c.Floor != nil && !c.Borrow
	switch {
	case c.Floor != nil && (*c.Floor < 0 || *c.Floor > 100):
		return true
	case (floor || c.Class != "") && (c.Force || c.Verb != Take && c.Verb != Peek && c.Verb != Acquire):
		return true
	case floor && c.Class != "":
		return true
	case c.Class == "":
		return false
	}
	for _, p := range c.Limits {
		if _, known := p.Classes[c.Class]; !known && !p.AnyClass {
			return true
		}
	}
	return false
}
