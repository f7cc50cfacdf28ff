package integration_test

import (
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/tools/docs"
)

// TestTheDocuments runs the examples in the documents on every real server. It uses only one shell,
// because the tests of package docs use all shells.
func TestTheDocuments(t *testing.T) {
	documents := must[[]docs.Document](t)(docs.All(".."))
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		clone := must[*docs.Clone](t)(docs.NewClone(t.Context(), "..", t.TempDir()))
		for _, document := range documents {
			restore(t, b)
			require(t, b.SetTime(time.Now().UnixMicro()))
			for _, example := range document.Examples {
				if example.Server == "none" {
					continue // the tests of package docs run this example
				}
				if example.Needs == "docker" && inDocker(b) != "" {
					exclude(b, inDocker(b))
					continue
				}
				t.Run(example.Name, func(t *testing.T) {
					if err := example.Run(t.Context(), clone, "sh", "redis://"+b.Addrs()[0]); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}, standalone, withClock)
}
