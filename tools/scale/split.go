package main

import (
	"fmt"
	"math/rand/v2"
	"sort"

	"github.com/ratelimit-functions/ratelimit/tools/tables"
)

// A split is a limit that is divided among several keys. Calls arrive at random, and each key gets
// its share of the calls.
type split struct {
	limits  []int64   // limit of each key, per second; its burst is a hundredth of the limit, but at least 5
	traffic []float64 // share of the calls for each key
	offered int64     // calls per second
}

// run counts the calls offered and admitted during two seconds, after a warm-up of one second.
func (s split) run() (t tally) {
	const second, begin, end = 1e6, 1e6, 3e6 // in microseconds
	random := rand.New(rand.NewPCG(uint64(len(s.limits)), uint64(s.offered)))
	keys := make([]*limiter, len(s.limits))
	upTo := make([]float64, len(s.limits)) // cumulative traffic shares
	sum := 0.0
	for i, rate := range s.limits {
		burst := max(5, rate/100)
		keys[i] = newLimiter(rate, burst)
		keys[i].take(0, burst)
		sum += s.traffic[i]
		upTo[i] = sum
	}
	for at := 0.0; at < end; at += random.ExpFloat64() * second / float64(s.offered) {
		key := min(sort.SearchFloat64s(upTo, random.Float64()*sum), len(keys)-1)
		taken, _ := keys[key].take(int64(at), 1)
		if at >= begin {
			t.offered++
			t.admitted += taken
		}
	}
	return t
}

const splitLimit = 200_000 // per second

var splitLoads = []int64{50, 90, 100, 150} // in percent of the limit

// subKeysTable returns a table of how many fewer calls are admitted if a limit is split evenly over
// k sub-keys. Either each call picks a random sub-key, or each of 10,000 processes always uses the
// same one. The number of calls of the process with rank r is proportional to 1/r.
func subKeysTable() string {
	columns := []string{"k"}
	for _, how := range []string{"drawn", "by process"} {
		for _, load := range splitLoads {
			columns = append(columns, fmt.Sprintf("%s, %d %%", how, load))
		}
	}
	counts := []int{1, 2, 4, 10, 40, 100}
	rows := make([][]string, len(counts))
	concurrently(len(counts), func(i int) {
		k := counts[i]
		rows[i] = []string{fmt.Sprint(k)}
		for _, uneven := range []bool{false, true} {
			s := split{limits: make([]int64, k), traffic: make([]float64, k)}
			for j := range s.limits {
				s.limits[j], s.traffic[j] = splitLimit/int64(k), 1
			}
			if uneven {
				s.traffic = make([]float64, k)
				random := rand.New(rand.NewPCG(7, 7))
				for rank := range hotProcesses {
					s.traffic[random.IntN(k)] += 1 / float64(rank+1)
				}
			}
			for _, load := range splitLoads {
				s.offered = splitLimit * load / 100
				t := s.run()
				could := min(t.offered, 2*splitLimit) // what the undivided limit would have admitted
				rows[i] = append(rows[i], percent(max(0, could-t.admitted), could))
			}
		}
	})
	return tables.Markdown(0, columns, rows)
}

// regionsTable returns a table of how much three regions with their own servers admit together, as
// a fraction of the limit, for several ways to divide the limit and to distribute the traffic.
func regionsTable() string {
	shares := []struct {
		name  string
		parts []int64 // in percent of the limit
	}{
		{"the whole limit each", []int64{100, 100, 100}},
		{"a third each", []int64{33, 33, 33}},
		{"50, 30, 20 %", []int64{50, 30, 20}},
		{"75, 45, 30 %: half as much again", []int64{75, 45, 30}},
	}
	traffics := []struct {
		name  string
		parts []float64
	}{
		{"50, 30, 20 %", []float64{50, 30, 20}},
		{"a third each", []float64{1, 1, 1}},
		{"the first is down: 0, 60, 40 %", []float64{0, 60, 40}},
	}
	rows := make([][]string, len(shares)*len(traffics))
	concurrently(len(rows), func(i int) {
		share, traffic := shares[i/len(traffics)], traffics[i%len(traffics)]
		rows[i] = []string{share.name, traffic.name}
		for _, load := range []int64{60, 90, 400} {
			s := split{traffic: traffic.parts, offered: splitLimit * load / 100}
			for _, part := range share.parts {
				s.limits = append(s.limits, splitLimit*part/100)
			}
			rows[i] = append(rows[i], fmt.Sprintf("%.0f %%", 100*float64(s.run().admitted)/(2*splitLimit)))
		}
	})
	return tables.Markdown(2, []string{"shares", "traffic", "asked for 60 %", "asked for 90 %", "asked for 400 %"}, rows)
}
