package model

import (
	"fmt"
	"maps"
	"reflect"
	"testing"
)

// TestKept checks percentages of capacities, rounded up. 0.07 * 100 is above 7 in floating point.
func TestKept(t *testing.T) {
	for _, c := range []struct{ capacity, percent, want int64 }{
		{10, 0, 0}, {10, 20, 2}, {7, 20, 2}, {7, 1, 1}, {1, 1, 1}, {100, 7, 7}, {100, 29, 29}, {10, 100, 10}, {0, 50, 0},
		{MaxCount, 100, MaxCount}, {MaxCount - 1, 99, 8917127262193582}, {MaxCount - 1, 1, 90071992547410},
	} {
		if got := kept(c.capacity, c.percent); got != c.want {
			t.Errorf("%d %% of %d: got %d, want %d", c.percent, c.capacity, got, c.want)
		}
	}
}

func limited(text string) Policy {
	l, err := ParseLimit(text)
	if err != nil {
		panic(err)
	}
	return Policy{Limits: []Limit{l}}
}

// TestClassCalls checks which calls count for a class: takes and acquires, whose class decides.
func TestClassCalls(t *testing.T) {
	api := limited("10/s")
	api.Name, api.Classes = "api", map[string]int64{"default": 20, "batch": 50}
	strict := limited("10/s")
	strict.Name, strict.Classes = "strict", map[string]int64{"batch": 50}
	split := api
	split.Name, split.Share, split.Canary = "split", 1000, &Policy{Limits: limited("2/s").Limits}
	m := New(1700000000000000)
	for _, c := range []Call{
		{Limits: []Policy{api}},
		{Limits: []Policy{api}, Class: "default"},
		{Limits: []Policy{api}, Class: "batch"},
		{Limits: []Policy{api}, Costs: []int64{5}, Class: "batch"},
		{Limits: []Policy{api}, Costs: []int64{9}},
		{Limits: []Policy{api}, Costs: []int64{0}},
		{Limits: []Policy{api}, Floor: new(int64(0))}, // counts for no class
		{Limits: []Policy{api}, Force: true},          // counts for no class
		{Verb: Peek, Limits: []Policy{api}},
		{Verb: Refund, Limits: []Policy{api}},
		{Limits: []Policy{strict}}, // has no class default
		{Limits: []Policy{strict}, Class: "batch"},
		{Limits: []Policy{split}}, // its canary: 2/s, of which 1 is kept
		{Limits: []Policy{split}},
	} {
		if c.Verb == "" {
			c.Verb = Take
		}
		c.Keys = []string{c.Limits[0].Name}
		if _, reason := m.Do(c); reason != "" {
			t.Errorf("%v: %s", c.Words(), reason)
		}
	}
	want := map[Class]Counts{
		{"api", "default"}: {3, 1}, {"api", "batch"}: {1, 1}, {"strict", "batch"}: {1, 0}, {"split", "default"}: {1, 1},
	}
	if !maps.Equal(m.ClassCalls, want) {
		t.Errorf("got %v, want %v", m.ClassCalls, want)
	}
}

// TestBorrowCalls checks the counts of a policy with a guarantee and a pool.
func TestBorrowCalls(t *testing.T) {
	tenant := Policy{Name: "tenant", Borrow: true, Floor: 80, Limits: []Limit{limited("2/s").Limits[0], limited("10/s").Limits[0]}}
	m := New(1700000000000000)
	var got []string
	for _, cost := range []int64{0, 1, 2, 1, 1, 1} { // 0; guaranteed; denied, because 2 + 8 > 9; guaranteed; denied twice
		for _, verb := range []string{Peek, Take} {
			reply, reason := m.Do(Call{Verb: verb, Keys: []string{"t", "p"}, Limits: []Policy{tenant}, Costs: []int64{cost}})
			got = append(got, fmt.Sprint(reply, reason))
		}
	}
	want := []string{"[1 2 2 0 0 1]", "[1 2 1 0 500 1]", "[0 2 1 100 500 1]", "[1 2 0 0 1000 1]", "[0 2 0 100 1000 1]", "[0 2 0 100 1000 1]"}
	for i, reply := range want {
		if got[2*i] != reply || got[2*i+1] != reply {
			t.Errorf("call %d: peek %s, take %s, want %s", i+1, got[2*i], got[2*i+1], reply)
		}
	}
	m.SetTime(1700000000100000)
	if reply, _ := m.Do(Call{Verb: Take, Keys: []string{"t", "p"}, Limits: []Policy{tenant}}); fmt.Sprint(reply) != "[1 10 0 0 900 2]" {
		t.Errorf("a loan: %v", reply)
	}
	if got, want := m.BorrowCalls["tenant"], (Borrows{3, 1, 3}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := m.Calls[Side{Policy: "tenant"}], (Counts{4, 3}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestParseCall checks that ParseCall reads what Words writes.
func TestParseCall(t *testing.T) {
	one, lease := []Policy{limited("10/s")}, []Policy{limited("concurrency 2 lease=10s")}
	two, a, ab := append(one[:1:1], one...), []string{"a"}, []string{"a", "b"}
	for _, c := range []Call{
		{Verb: Take, Keys: a, Limits: one, Costs: []int64{3}, Upto: true, Each: true, Floor: new(int64(20)), OnceMS: 5, OnceKey: "o", Track: true, Usage: "u"},
		{Verb: Take, Keys: ab, Limits: two, Costs: []int64{1, 0}, Class: "batch"},
		{Verb: Take, Keys: ab, Limits: two, Borrow: true},
		{Verb: Peek, Keys: ab, Limits: two, Costs: []int64{2}, Borrow: true, Floor: new(int64(0))},
		{Verb: Refund, Keys: ab, Limits: two, Borrow: true, Floor: new(int64(80)), Paid: 2},
		{Verb: Acquire, Keys: a, Limits: lease, Lease: "FLOOR", Floor: new(int64(50))},
		{Verb: Acquire, Keys: a, Limits: lease, Lease: "x", Class: "batch"},
		{Verb: Renew, Keys: a, Limits: lease, Lease: "x"},
		{Verb: Block, Keys: ab, SpanMS: 7, Extend: true},
		{Verb: Override, Keys: ab, Limits: one, SpanMS: 7},
		{Verb: Reset, Keys: ab},
	} {
		got, err := ParseCall(c.Words(), func(text string) (Policy, error) {
			l, err := ParseLimit(text)
			return Policy{Limits: []Limit{l}}, err
		})
		if err != nil || !reflect.DeepEqual(fmt.Sprint(got.Words()), fmt.Sprint(c.Words())) || got.Usage != c.Usage || got.Lease != c.Lease {
			t.Errorf("%v: got %v, %v", c.Words(), got.Words(), err)
		}
	}
}
