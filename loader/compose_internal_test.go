package loader

import (
	"slices"
	"testing"
)

// The results of newest and last do not depend on the order of the nodes, even if deployments have
// the same number.
func TestNewestInAnyOrder(t *testing.T) {
	node := func(text string, deployment int64) *member {
		digest := describe(text).Digest
		return &member{node: &Node{Running: Library{Digest: digest}}, held: held{text: text, record: record{deployment: deployment, deployed: digest}}}
	}
	a, b, c, d := node("a", 3), node("b", 3), node("c", 5), node("d", 5)
	for _, tt := range []struct {
		members []*member
		want    *member
	}{
		{[]*member{a, b, c}, c}, {[]*member{c, a, b}, c}, {[]*member{a, c, b}, c}, {[]*member{a, b}, nil}, {[]*member{b, a}, nil}, {[]*member{c, a, d}, nil},
	} {
		f := &fleet{s: &session{}, members: tt.members}
		if got := f.newest(tt.members); got != tt.want {
			t.Errorf("%v, want %v", got, tt.want)
		}
		slices.Reverse(tt.members)
		if first, last := f.last().deployed, (&fleet{s: &session{}, members: tt.members}).last().deployed; first != last {
			t.Errorf("the last deployment is %s or %s", first, last)
		}
	}
}
