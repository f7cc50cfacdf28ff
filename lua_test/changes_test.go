package lua_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// TestEveryChangeIsAVector checks that functions/vectors/changes.json has each change from one
// algorithm to another. After k of 100 units were taken under one algorithm, the other must have
// about 100 - k left. Half an hour later, one more take from the key with 2 used units must leave
// 97 to 99.
func TestEveryChangeIsAVector(t *testing.T) {
	files := must[[]functions.VectorFile](t)(functions.LoadVectors())
	at := slices.IndexFunc(files, func(f functions.VectorFile) bool { return f.Name == "changes" })
	if at < 0 {
		t.Fatal("there is no changes.json")
	}
	vectors := map[string]functions.Vector{}
	for _, vector := range files[at].Vectors {
		vectors[vector.Name] = vector
	}
	names := slices.Sorted(maps.Keys(model.Algorithms))
	names = slices.DeleteFunc(names, func(name string) bool { return model.Algorithms[name].Leases })
	for _, from := range names {
		for _, to := range names {
			if from != to {
				checkChange(t, from, to, vectors[from+", then "+to].Steps)
			}
		}
	}
	if want := len(names) * (len(names) - 1); len(vectors) != want {
		t.Errorf("%d vectors, want %d", len(vectors), want)
	}
}

// checkChange checks the steps of one vector: takes of 2, 60 and 100 from three keys, each followed by
// a peek, and a take half an hour later.
func checkChange(t *testing.T, from, to string, steps []functions.Step) {
	t.Helper()
	if len(steps) != 7 {
		t.Errorf("from %s to %s: %d steps, want 7", from, to, len(steps))
		return
	}
	for i, step := range steps {
		limit, used := to+" 100/h", int64(3)
		if i < 6 {
			if i%2 == 0 {
				limit = from + " 100/h"
			}
			used, _ = strconv.ParseInt(steps[i-i%2].Call[6], 10, 64)
		}
		var reply []int64
		if err := json.Unmarshal(step.Reply, &reply); err != nil {
			t.Errorf("from %s to %s, step %d: %v", from, to, i+1, err)
			continue
		}
		// Allow one unit more. If all units are spent, but the old state expires later than a full
		// refill takes, the library leaves one.
		least, most := 100-used, 100-used+1
		if i == 6 {
			most = 99 // gcra has refilled
		}
		if step.Call[4] != limit || reply[0] != 1 || reply[2] < least || reply[2] > most {
			t.Errorf("from %s to %s, step %d: %v is %v; want %q with %d to %d left", from, to, i+1, step.Call, reply, limit, least, most)
		}
	}
	if steps[6].AtUS == nil || *steps[6].AtUS != 1800e6 {
		t.Errorf("from %s to %s: the last step is not half an hour later", from, to)
	}
}
