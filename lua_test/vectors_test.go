// Package lua_test runs the library's text in the offline engine: every vector, and what does not fit into one.
package lua_test

import (
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

func start(t testing.TB) *embedded.Server {
	t.Helper()
	return embedded.Run(t, embedded.WithLibrary(mutated(t, functions.Source())), embedded.WithTime(time.UnixMicro(1700000000000000)))
}

func TestVectors(t *testing.T) {
	files, err := functions.LoadVectors()
	if err != nil {
		t.Fatal(err)
	}
	server := start(t)
	for _, file := range files {
		t.Run(file.Name, func(t *testing.T) {
			for _, vector := range file.Vectors {
				t.Run(vector.Name, func(t *testing.T) {
					run(t, server, file.StartUS, vector)
				})
			}
		})
	}
}

func run(t *testing.T, server *embedded.Server, startUS int64, vector functions.Vector) {
	server.SetTime(time.UnixMicro(startUS))
	if _, err := server.Do("FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	for i, step := range vector.Steps {
		if step.AtUS != nil {
			server.SetTime(time.UnixMicro(startUS + *step.AtUS))
		}
		args := make([]any, len(step.Call))
		for j, arg := range step.Call {
			args[j] = arg
		}
		reply, err := server.Do(args...)
		if err := step.Check(reply, err); err != nil {
			t.Errorf("step %d: %v", i+1, err)
		}
	}
}
