package protocol

import (
	"fmt"
	"maps"
	"slices"
)

// Check checks the steps of one or more calls. The steps of each call are in order; those of
// different calls may be in any order. The end of a call may be missing, because its program died.
// It returns an error that names the broken rule of PROTOCOL.md.
func Check(steps []Step) error {
	var order []string
	calls, shown := map[string][]Step{}, map[Part]string{}
	for _, s := range steps {
		if s.Op == Read || s.Op == Undo || s.Op == Number && s.Number > 0 {
			for _, part := range s.Text {
				if by := shown[part]; by != "" && by != s.Call {
					shown[part] = several
				} else {
					shown[part] = s.Call
				}
			}
		}
		if calls[s.Call] == nil {
			order = append(order, s.Call)
		}
		calls[s.Call] = append(calls[s.Call], s)
	}
	for _, token := range order {
		c := call{token: token, nodes: map[string]*node{}, shown: shown}
		for i, s := range calls[token] {
			if err := c.step(s); err != nil {
				return fmt.Errorf("step %d of the call %s, %s %s: %w", i, token, s.Op, s.Addr, err)
			}
		}
	}
	return nil
}

const several = "several"

// call is the state of a call after some of its steps.
type call struct {
	token      string
	nodes      map[string]*node
	number     *Step // the step Number, when it has come
	undo       *Step
	joined     map[string][]Part // the highest parts that the call read before the step Number
	highest    int64
	hasWritten bool
	shown      map[Part]string // the call that deployed or read a part, or several
}

// node is what a call knows of a node.
type node struct {
	leased  bool
	checked bool            // the lease was checked, or taken, since the last write
	fits    bool            // the lease was not lost since the last read that fits
	read    map[string]Part // nil if it was not read since the last write
	open    map[string]bool // names of writes whose outcome is not known
	written map[string]bool // names of writes
	fenced  map[string]bool // names
}

func broken(r rule, format string, args ...any) error {
	return fmt.Errorf("rule %d, %s, is broken: %s", r, rules[r].name, fmt.Sprintf(format, args...))
}

// step applies a step, and checks the rules that concern it.
func (c *call) step(s Step) error {
	n := c.nodes[s.Addr]
	if n == nil {
		n = &node{open: map[string]bool{}, written: map[string]bool{}, fenced: map[string]bool{}}
		if s.Addr != "" {
			c.nodes[s.Addr] = n
		}
	}
	switch s.Op {
	case Lease:
		n.leased, n.checked, n.fits, n.read = true, c.number != nil, c.number == nil, nil
	case Checked:
		if !n.leased {
			return broken(ruleWrite, "the lease was not taken")
		}
		n.checked = true
	case TakeOver:
		if !n.fenced[s.Name] || !n.fenced[s.Name+UndoSuffix] {
			return broken(ruleFence, "the lease of %s was taken over without fences", s.Name)
		}
	case Fence:
		n.fenced[s.Name] = true
		delete(n.open, s.Name)
	case Read:
		n.read = map[string]Part{} // not nil: JSON omits a text without parts
		maps.Copy(n.read, s.Text)
		if c.number == nil {
			c.highest = max(c.highest, s.Highest)
		} else if !n.fits {
			n.fits = c.isKnown(s.Text)
		}
	case Number:
		return c.chose(s)
	case Write:
		return c.write(n, s)
	case Wrote, Refused:
		if !n.written[s.Name] {
			return broken(ruleWrite, "%s was not written", s.Name)
		}
		delete(n.open, s.Name)
	case Undo:
		return c.begunUndo(s)
	case Release:
		if len(n.open) > 0 {
			return broken(ruleFence, "the lease is released without a fence, and the outcome of a write is not known")
		}
		n.leased, n.checked = false, false
	case End:
		return c.end(s)
	default:
		return fmt.Errorf("the step %q is not known", s.Op)
	}
	return nil
}

// chose checks the text that a call has made, by the rules 2 to 6, 11 and 12.
func (c *call) chose(s Step) error {
	if c.hasWritten {
		return broken(ruleRead, "something was written before")
	}
	c.number, c.joined = &s, map[string][]Part{}
	for _, addr := range s.Nodes {
		n := c.nodes[addr]
		switch {
		case n == nil || !n.leased:
			return broken(ruleLease, "%s was not leased", addr)
		case n.read == nil:
			return broken(ruleRead, "%s was not read under the lease", addr)
		}
		for namespace, part := range n.read {
			c.joined[namespace] = higher(c.joined[namespace], part)
		}
	}
	if s.Number > 0 && s.Number != max(c.highest+1, s.ClockMS) {
		return broken(ruleNumber, "the number is %d, and the highest is %d and the clock %d", s.Number, c.highest, s.ClockMS)
	}
	r := ruleJoin
	if s.Number == 0 {
		r = ruleWatch
	}
	for namespace, parts := range c.joined {
		if slices.Contains(s.Mine, namespace) {
			continue
		}
		if part := s.Text[namespace]; !slices.Contains(parts, part) && (s.Number > 0 || parts[0].Number > 0) {
			return broken(r, "the part of %q is not the highest", namespace)
		}
	}
	for namespace, part := range s.Text {
		old := c.joined[namespace]
		switch {
		case slices.Contains(s.Mine, namespace):
			if err := c.changes(s, namespace, part, old); err != nil {
				return err
			}
		case slices.Contains(old, part):
		case s.Number > 0:
			return broken(ruleJoin, "no node has the part of %q", namespace)
		case part.Number > 0 && (c.shown[part] == "" || c.shown[part] == c.token):
			return broken(ruleWatch, "nobody has deployed the part of %q", namespace)
		}
	}
	return nil
}

// changes checks a part that a call changes.
func (c *call) changes(s Step, namespace string, part Part, old []Part) error {
	replaces := func(p Part) bool { return p.Value == part.Replaced }
	restores := func(p Part) bool { return p.Replaced == part.Value }
	switch {
	case part.Number != s.Number:
		return broken(ruleNumber, "the part of %q has number %d", namespace, part.Number)
	case s.What == Rollback && !slices.ContainsFunc(old, restores):
		return broken(ruleRollback, "the part of %q is not what the last deployment replaced", namespace)
	case s.What == Delete && part.Value != "":
		return broken(ruleRollback, "the part of %q is no tombstone", namespace)
	case (len(old) > 0 || part.Replaced != "") && !slices.ContainsFunc(old, replaces) && (s.What != Delete || part.Replaced != ""):
		return broken(ruleText, "the part of %q does not keep what it replaced", namespace)
	}
	return nil
}

// higher returns the highest parts of list and part. There are several only if their numbers are equal.
func higher(list []Part, part Part) []Part {
	switch {
	case len(list) == 0 || part.Number > list[0].Number:
		return []Part{part}
	case part.Number == list[0].Number:
		return append(list, part)
	}
	return list
}

// isKnown reports whether the call has read or written each part of a text, or a newer version of it.
func (c *call) isKnown(t map[string]Part) bool {
	if maps.Equal(t, c.number.Text) || c.undo != nil && maps.Equal(t, c.undo.Text) {
		return true
	}
	for namespace, part := range t {
		of := c.joined[namespace]
		if len(of) == 0 && part != (Part{}) || len(of) > 0 && part.Number >= of[0].Number && part.Number > 0 && !slices.Contains(of, part) {
			return false
		}
	}
	return true
}

// write checks a write, by the rules 7, 9 and 10.
func (c *call) write(n *node, s Step) error {
	switch {
	case c.number == nil:
		return broken(ruleRead, "no number was chosen")
	case !n.leased || !n.checked:
		return broken(ruleWrite, "the lease was not checked")
	case !n.fits:
		return broken(ruleWrite, "a lost lease was taken again, and the node has something that was not read before")
	case n.written[s.Name]:
		return broken(ruleFence, "a name is written twice")
	case n.fenced[s.Name]:
		return broken(ruleFence, "a name is written after its fence")
	case s.Name == c.token && !maps.Equal(s.Text, c.number.Text):
		return broken(ruleText, "another text is written")
	case s.Name == c.token+UndoSuffix && (c.undo == nil || !maps.Equal(s.Text, c.undo.Text)):
		return broken(ruleUndo, "another text is written by the undo")
	case s.Name == c.token+UndoSuffix && !n.fenced[c.token]:
		return broken(ruleUndo, "the undo writes without a fence")
	case s.Name != c.token && s.Name != c.token+UndoSuffix:
		return broken(ruleHeader, "the name is not the call's own")
	}
	c.hasWritten = true
	n.checked, n.read = false, nil
	n.open[s.Name], n.written[s.Name] = true, true
	return nil
}

// begunUndo checks the text of an undo, by rule 9.
func (c *call) begunUndo(s Step) error {
	if c.number == nil {
		return broken(ruleUndo, "nothing was written")
	}
	for namespace, part := range s.Text {
		if !slices.Contains(c.number.Mine, namespace) {
			continue
		}
		if part.Number != c.number.Number+1 {
			return broken(ruleUndo, "the part of %q has number %d, and the deployment had %d", namespace, part.Number, c.number.Number)
		}
		old := c.joined[namespace]
		isOld := func(p Part) bool { return p.Value == part.Value && p.Replaced == part.Replaced }
		if len(old) > 0 && !slices.ContainsFunc(old, isOld) || len(old) == 0 && part.Value != "" {
			return broken(ruleUndo, "the part of %q is not what the nodes had", namespace)
		}
	}
	c.undo = &s
	return nil
}

// end checks the outcome, by the rules 8 and 9.
func (c *call) end(s Step) error {
	want, r := c.number, ruleVerify
	switch s.Outcome {
	case Undone:
		want, r = c.undo, ruleUndo
	case Succeeded:
	case Nothing:
		for addr, n := range c.nodes {
			if len(n.open) > 0 {
				return broken(ruleVerify, "the outcome of a write to %s is not known", addr)
			}
		}
		return nil
	default:
		return nil
	}
	if want == nil {
		return broken(r, "%s without a write", s.Outcome)
	}
	for _, addr := range s.Nodes {
		n := c.nodes[addr]
		if n == nil || n.read == nil {
			return broken(r, "%s was not read again", addr)
		}
		for _, namespace := range c.number.Mine {
			if n.read[namespace] != want.Text[namespace] {
				return broken(r, "%s has another part of %q", addr, namespace)
			}
		}
	}
	return nil
}
