// Package lua_test tests the library's text in the offline engine: all vectors, and properties that
// do not fit into a vector.
package lua_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

func start(t testing.TB) *embedded.Server {
	t.Helper()
	return embedded.Run(t, embedded.WithLibrary(mutated(t, functions.Source())), embedded.WithTime(time.UnixMicro(1700000000000000)))
}

// TestVectors runs the vectors in both ways in which the library reads the time. The offline engine
// reports that it is Redis 7.2.
func TestVectors(t *testing.T) {
	files, err := functions.LoadVectors()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("on Redis 7.2 and later", func(t *testing.T) { runAll(t, start(t), files) })
	t.Run("before Redis 7.2", func(t *testing.T) {
		text := mutated(t, functions.Source())
		for _, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(line, "local CLOCK_STANDS = ") {
				text = strings.Replace(text, line, "local CLOCK_STANDS = false", 1)
			}
		}
		if !strings.Contains(text, "\nlocal CLOCK_STANDS = false\n") {
			t.Fatal("the library has no line `local CLOCK_STANDS = ...`, by which it tells older servers")
		}
		runAll(t, embedded.Run(t, embedded.WithLibrary(text)), files)
	})
}

func runAll(t *testing.T, server *embedded.Server, files []functions.VectorFile) {
	for _, file := range files {
		t.Run(file.Name, func(t *testing.T) {
			for _, vector := range file.Vectors {
				t.Run(vector.Name, func(t *testing.T) {
					run(t, server, file.StartUS, vector)
					run(t, server, file.StartUS, vector) // now its limits are cached, which takes other code paths
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
