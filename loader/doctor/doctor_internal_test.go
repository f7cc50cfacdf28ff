package doctor

import (
	"maps"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/loader/nodes"
)

// A difference between clocks that a slow reply could explain is not reported.
func TestClocksOfSlowReplies(t *testing.T) {
	const ms = time.Millisecond
	for _, row := range []struct {
		times []clockReading
		found bool
	}{
		{[]clockReading{{"a", 0, 1 * ms}}, false},
		{[]clockReading{{"a", 0, 1 * ms}, {"b", 503 * ms, 1 * ms}}, true},
		{[]clockReading{{"a", 0, 1 * ms}, {"b", 502 * ms, 1 * ms}}, false},
		{[]clockReading{{"a", 0, 600 * ms}, {"b", 1000 * ms, 1 * ms}}, false},
		{[]clockReading{{"a", 0, 1 * ms}, {"b", 1000 * ms, 600 * ms}}, false},
		{[]clockReading{{"a", 0, 300 * ms}, {"b", 1000 * ms, 300 * ms}}, false},
		{[]clockReading{{"a", 0, 300 * ms}, {"b", -2000 * ms, 300 * ms}, {"c", -1000 * ms, 1 * ms}}, true},
	} {
		x := &examination{times: row.times}
		if x.clocks(); (len(x.Findings) > 0) != row.found {
			t.Errorf("%v: %+v", row.times, x.Findings)
		}
	}
}

// Each node whose clock is wrong is reported.
func TestClocksThatDiffer(t *testing.T) {
	const ms = time.Millisecond
	x := &examination{times: []clockReading{{"a", 5000 * ms, ms}, {"b", 10 * ms, ms}, {"c", -3000 * ms, ms}, {"d", 0, ms}, {"e", 4000 * ms, ms}, {"f", -2 * ms, ms}, {"g", -1 * ms, ms}}}
	x.clocks()
	found := map[string]string{}
	for _, f := range x.Findings {
		found[f.Addrs[0]] = f.Found
	}
	want := map[string]string{"c": "its clock is 3s behind that of d", "a": "its clock is 5s ahead of that of d", "e": "its clock is 4s ahead of that of d"}
	if !maps.Equal(found, want) {
		t.Errorf("%v", found)
	}
	x = &examination{times: []clockReading{{"a", -400 * ms, ms}, {"b", 0, ms}, {"c", 400 * ms, ms}}} // each is close to the one in the middle
	if x.clocks(); len(x.Findings) != 1 || x.Findings[0].Addrs[0] != "c" {
		t.Errorf("%+v", x.Findings)
	}
}

func TestCoverage(t *testing.T) {
	for _, row := range []struct {
		shards [][]int
		found  string
	}{
		{[][]int{{0, 16383}}, ""},
		{[][]int{{8192, 16383}, {}, {0, 100, 101, 8191}}, ""},
		{[][]int{{0, 9000}, {8000, 8500, 8400, 16383}}, ""}, // two primaries claim the same slots
		{[][]int{{}}, "no primary serves 16384 of 16384 slots (0-16383)"},
		{[][]int{{1, 5, 7, 7}, {10, 16382}}, "no primary serves 5 of 16384 slots (0-0, 6-6, 8-9, 16383-16383)"},
		{[][]int{{-5, 20000}}, ""},
		{[][]int{{0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 16383}}, "no primary serves 6 of 16384 slots (1-1, 3-3, 5-5, 7-7, 9-9, ...)"},
	} {
		var shards []nodes.Shard
		for _, slots := range row.shards {
			shards = append(shards, nodes.Shard{Slots: slots})
		}
		x, found := &examination{}, ""
		if x.coverage(nodes.Cluster, shards); len(x.Findings) == 1 {
			found = x.Findings[0].Found
		}
		if found != row.found {
			t.Errorf("%v: %q, want %q", row.shards, found, row.found)
		}
	}
}
