package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ParseLimit parses a limit in the usual form, such as Limit.String returns.
func ParseLimit(text string) (Limit, error) {
	l := Limit{Algorithm: "gcra"}
	if first, rest, _ := strings.Cut(text, " "); Algorithms[first] != nil {
		l.Algorithm, text = first, rest
	}
	for part := range strings.SplitSeq(text, ", ") {
		words := strings.Fields(part)
		if len(words) == 0 {
			return Limit{}, fmt.Errorf("an empty rate in %q", text)
		}
		r := Rate{Options: words[1:]}
		count, period, _ := strings.Cut(words[0], "/")
		if Algorithms[l.Algorithm].Leases && len(words) > 1 {
			period, r.Options = strings.TrimPrefix(words[1], "lease="), nil
		}
		n, err := strconv.ParseInt(count, 10, 64)
		if err != nil || period == "" {
			return Limit{}, fmt.Errorf("%q is not a rate", part)
		}
		r.N, r.Period = n, period
		l.Rates = append(l.Rates, r)
	}
	return l, nil
}

// words of a take, a peek, a refund and an acquire.
var words = []string{"COST", "UPTO", "FORCE", "FLOOR", "CLASS", "BORROW", "PAID", "ONCE", "TRACK", "EACH", "GROW"}

// ParseCall parses a command, as Call.Words returns it. policy returns the policy or the limit that a
// text names.
func ParseCall(command []string, policy func(text string) (Policy, error)) (c Call, err error) {
	p := parser{policy: policy}
	c.Verb = strings.TrimPrefix(command[1], "ratelimit_")
	n := int(p.number(command[2]))
	if n < 1 || 3+n > len(command) {
		return c, fmt.Errorf("%d keys in %q", n, command)
	}
	c.Keys, p.args = command[3:3+n], command[3+n:]
	switch c.Verb {
	case Block:
		c.SpanMS = p.number(p.next())
		switch {
		case len(p.args) == 1 && strings.ToUpper(p.args[0]) == "EXTEND":
			c.Extend, p.args = true, nil
		case len(p.args) == 3 && strings.ToUpper(p.args[0]) == "GROW":
			c.Grow = &Grow{Max: p.number(p.args[1]), Forget: p.number(p.args[2])}
			p.args = nil
		}
	case Override:
		c.Limits, c.SpanMS = []Policy{p.limit()}, p.number(p.next())
	case Acquire, Renew, Release:
		c.Limits, c.Lease = []Policy{p.limit()}, p.next()
		p.options(&c)
	case Take, Peek, Refund:
		p.decision(&c)
	}
	if p.err == nil && len(p.args) > 0 {
		p.err = fmt.Errorf("%q is left of %q", p.args, command)
	}
	return c, p.err
}

// parser parses the arguments of a call. err is the first error.
type parser struct {
	args   []string
	policy func(text string) (Policy, error)
	err    error
}

func (p *parser) next() string {
	if len(p.args) == 0 {
		p.fail(fmt.Errorf("an argument is missing"))
		return ""
	}
	word := p.args[0]
	p.args = p.args[1:]
	return word
}

func (p *parser) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

func (p *parser) number(word string) int64 {
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil || word[0] == '+' {
		p.fail(fmt.Errorf("%q is no number", word))
	}
	return n
}

func (p *parser) limit() Policy {
	named, err := p.policy(p.next())
	if err != nil {
		p.fail(err)
	}
	return named
}

// more reports whether another argument follows that is not a word.
func (p *parser) more() bool { return len(p.args) > 0 && !isWord(p.args[0]) }

func isWord(text string) bool {
	upper := strings.ToUpper(text)
	return slices.Contains(words, upper) && (text == upper || text == strings.ToLower(text))
}

// decision parses the arguments of a take, a peek or a refund.
func (p *parser) decision(c *Call) {
	limited, track := 0, false
	for p.more() && p.err == nil {
		named := p.limit()
		c.Limits = append(c.Limits, named)
		limited, track = limited+len(named.Limits), track || named.Track
	}
	p.options(c)
	track = c.Verb == Take && (c.Track || track)
	wanted := limited
	for _, one := range []bool{c.OnceMS > 0, track} {
		if one {
			wanted++
		}
	}
	if p.err != nil || len(c.Keys) != wanted {
		p.fail(fmt.Errorf("%d keys, and %d are wanted", len(c.Keys), wanted))
		return
	}
	all := c.Keys
	c.Keys, all = all[:limited], all[limited:]
	if c.OnceMS > 0 {
		c.OnceKey, all = all[0], all[1:]
	}
	if track {
		c.Usage = all[0]
	}
}

func (p *parser) options(c *Call) {
	given := map[string]bool{}
	for len(p.args) > 0 && p.err == nil {
		if p.more() {
			p.fail(fmt.Errorf("%q is no word", p.next()))
			return
		}
		word := strings.ToUpper(p.next())
		if given[word] || c.Lease != "" && word != "FLOOR" && word != "CLASS" {
			p.fail(fmt.Errorf("%s is given twice, or is no word of %s", word, c.Verb))
		}
		given[word] = true
		if given["FLOOR"] && given["BORROW"] {
			p.fail(fmt.Errorf("FLOOR and BORROW both have a percentage"))
		}
		switch word {
		case "COST":
			for p.more() {
				c.Costs = append(c.Costs, p.number(p.next()))
			}
		case "UPTO":
			c.Upto = true
		case "FORCE":
			c.Force = true
		case "EACH":
			c.Each = true
		case "FLOOR":
			c.Floor = new(p.number(p.next()))
		case "CLASS":
			if c.Class = p.next(); c.Class == "" {
				p.fail(fmt.Errorf("an empty class"))
			}
		case "BORROW":
			if c.Borrow = true; p.more() {
				c.Floor = new(p.number(p.next()))
			}
		case "PAID":
			c.Paid = p.number(p.next())
		case "ONCE":
			c.OnceMS = p.number(p.next())
		case "TRACK":
			c.Track = true
		case "GROW":
			c.Grow = &Grow{}
		}
	}
}
