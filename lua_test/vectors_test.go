// Package lua_test tests the library in the offline engine: all vectors, and properties that a
// vector cannot express.
package lua_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func must[T any](t testing.TB) func(T, error) T { return redistest.Must[T](t) }

var require = redistest.Require

func start(t testing.TB) *embedded.Server {
	t.Helper()
	return embedded.Run(t, embedded.WithLibrary(mutated(t, functions.Source())), embedded.WithTime(time.UnixMicro(1700000000000000)))
}

// TestVectors runs all vectors twice, because the library reads the time differently before Redis
// 7.2. The offline engine reports that it is Redis 7.2, so for the second run the test sets
// CLOCK_STANDS in the library to false.
func TestVectors(t *testing.T) {
	files := must[[]functions.VectorFile](t)(functions.LoadVectors())
	t.Run("with policies", func(t *testing.T) {
		file, _ := policyVectors(t)
		server, _ := withPolicies(t)
		runAll(t, server, []functions.VectorFile{file})
	})
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
	s := offline{server}
	for _, file := range files {
		t.Run(file.Name, func(t *testing.T) {
			for _, vector := range file.Vectors {
				t.Run(vector.Name, func(t *testing.T) {
					for range 2 { // the second round uses cached limits, and so other code paths
						empty(t, s)
						if err := vector.Run(file.StartUS, s.SetTime, s.Do); err != nil {
							t.Error(err)
						}
					}
				})
			}
		})
	}
}
