package model

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// folder has the vectors that TestVectors runs: those of the words of a call for which the model has an
// arithmetic of its own.
const folder = "../../functions/vectors/"

var names = []string{"floor.json", "borrow.json", "policies/class.json", "policies/borrow.json"}

// TestVectors runs vectors, which were calculated by hand, on the model. It skips steps that the model
// does not have: other commands than those of the library, and arguments that no call can express.
func TestVectors(t *testing.T) {
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		var file functions.VectorFile
		if err := json.Unmarshal(content, &file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var policies struct{ Policies []map[string]any }
		if err := json.Unmarshal(content, &policies); err != nil {
			t.Fatal(err)
		}
		named := map[string]Policy{}
		for _, p := range policies.Policies {
			named[p["Name"].(string)] = policyOf(t, p)
		}
		for _, vector := range file.Vectors {
			t.Run(strings.TrimSuffix(name, ".json")+": "+vector.Name, func(t *testing.T) { runVector(t, file.StartUS, vector, named) })
		}
	}
}

func runVector(t *testing.T, start int64, vector functions.Vector, named map[string]Policy) {
	m, after := New(start), int64(0)
	for i, step := range vector.Steps {
		if step.AtUS != nil {
			after = *step.AtUS
			m.SetTime(start + after)
		}
		var got any
		switch step.Call[0] {
		case "EXISTS":
			held := int64(0)
			for _, key := range step.Call[1:] {
				if _, ok := m.Expiry(key); ok {
					held++
				}
			}
			got = held
		case "PTTL":
			expires, ok := m.Expiry(step.Call[1])
			if got = expires - m.ms(); !ok {
				got = int64(-2)
			}
		case "FCALL", "FCALL_RO":
			c, err := ParseCall(step.Call, func(text string) (Policy, error) {
				if name, ok := strings.CutPrefix(text, "@"); ok {
					return named[name], nil
				}
				l, err := ParseLimit(text)
				return Policy{Limits: []Limit{l}}, err
			})
			if err != nil {
				if step.Reply != nil {
					t.Errorf("step %d: %v: %v", i+1, step, err)
				}
				continue
			}
			reply, reason := m.Do(c)
			if got = reply; reason != "" {
				got = "RATELIMIT " + reason
			}
		default:
			continue
		}
		if want := step.Error + step.ErrorPrefix; want != "" {
			if text := fmt.Sprint(got); !strings.HasPrefix(want, text) {
				t.Errorf("step %d, at %d: %v: got %v, want %v", i+1, after, step, got, want)
			}
			continue
		}
		if err := step.Compare(got, nil); err != nil {
			t.Errorf("step %d, at %d: %v", i+1, after, err)
		}
	}
}

// policyOf returns a policy of a file of vectors.
func policyOf(t *testing.T, p map[string]any) Policy {
	limit := func(text string) Limit {
		l, err := ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	made := Policy{Name: p["Name"].(string)}
	set := func(name string, field any) {
		if value, ok := p[name]; ok {
			reflect.ValueOf(field).Elem().Set(reflect.ValueOf(value).Convert(reflect.TypeOf(field).Elem()))
		}
	}
	set("Shadow", &made.Shadow)
	set("Track", &made.Track)
	set("AnyClass", &made.AnyClass)
	set("Borrow", &made.Borrow)
	set("Floor", &made.Floor)
	if classes, ok := p["Classes"].(map[string]any); ok {
		made.Classes = map[string]int64{}
		for class, percent := range classes {
			made.Classes[class] = int64(percent.(float64))
		}
	}
	for _, l := range p["Limits"].([]any) {
		made.Limits = append(made.Limits, limit(l.(map[string]any)["Limit"].(string)))
	}
	if canary, ok := p["Canary"].(map[string]any); ok {
		made.Share, made.Canary = uint64(canary["Share"].(float64)), &Policy{}
		if floor, ok := canary["Floor"].(float64); ok {
			made.Canary.Floor = int64(floor)
		}
		for _, l := range canary["Limits"].([]any) {
			made.Canary.Limits = append(made.Canary.Limits, limit(l.(string)))
		}
	}
	return made
}
