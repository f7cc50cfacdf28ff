package combinations

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// pair is the names of two features, in the order of the table.
type pair [2]string

// pairs returns the legal pairs of the table, and the others with the reason. A verb forms a pair
// with itself.
func pairs() (legal []pair, refused map[pair]string) {
	refused = map[pair]string{}
	for i, a := range table {
		for j, b := range table[i:] {
			if j == 0 && a.kind != verb {
				continue
			}
			if why := illegal(a, b); why != "" {
				refused[pair{a.name, b.name}] = why
			} else {
				legal = append(legal, pair{a.name, b.name})
			}
		}
	}
	return legal, refused
}

// covered counts how often two features took effect in one step, or in two consecutive ones.
type covered struct {
	counts    map[pair]int
	last      map[string]bool // the features of the step before
	scenarios int
	steps     int
}

// begin begins a scenario.
func (c *covered) begin() {
	if c.counts == nil {
		c.counts = map[pair]int{}
	}
	c.last = nil
	c.scenarios++
}

// add counts each pair of features that took effect in this step (fired), or in this step and the
// previous one. It reports whether set is one of these pairs; a set of another size never is.
func (c *covered) add(fired map[string]bool, set []feature) bool {
	c.steps++
	hit := false
	var recent []string // the features of both steps
	for _, f := range table {
		if fired[f.name] || c.last[f.name] {
			recent = append(recent, f.name)
		}
	}
	for i, a := range recent {
		for j, b := range recent[i:] {
			if j > 0 && fired[a] && fired[b] || fired[a] && c.last[b] || c.last[a] && fired[b] {
				c.counts[pair{a, b}]++
				hit = hit || len(set) == 2 && a == set[0].name && b == set[1].name
			}
		}
	}
	c.last = fired
	return hit
}

// report describes which pairs took effect, and which cannot.
func (c *covered) report(legal []pair, refused map[pair]string) string {
	var counts []int
	met := 0
	for _, p := range legal {
		if counts = append(counts, c.counts[p]); c.counts[p] > 0 {
			met++
		}
	}
	slices.Sort(counts)
	var b strings.Builder
	fmt.Fprintf(&b, "%d features, %d scenarios, %d steps\n", len(table), c.scenarios, c.steps)
	fmt.Fprintf(&b, "%d of %d legal pairs met; a pair met %d times at least, %d in the median, %d at most\n",
		met, len(legal), counts[0], counts[len(counts)/2], counts[len(counts)-1])
	fmt.Fprintf(&b, "%d pairs cannot meet:\n", len(refused))
	reasons := map[string][]string{}
	for p, why := range refused {
		reasons[why] = append(reasons[why], p[0]+" + "+p[1])
	}
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		examples := slices.Sorted(slices.Values(reasons[why]))
		fmt.Fprintf(&b, "  %4d %s: %s", len(examples), why, strings.Join(examples[:min(3, len(examples))], ", "))
		if len(examples) > 3 {
			b.WriteString(", ...")
		}
		b.WriteString("\n")
	}
	return b.String()
}
