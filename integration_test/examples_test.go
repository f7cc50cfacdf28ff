package integration_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/tools/docs"
)

// TestTheDocuments runs the examples in the documents on every real server. It uses only one shell,
// because the tests of package docs use all shells. Examples that build images run on one server
// only. TestContainerOverTLS uses an image with every server.
func TestTheDocuments(t *testing.T) {
	documents := must[[]docs.Document](t)(docs.All(".."))
	dir := t.TempDir()
	first := sync.OnceValues(func() (*docs.Clone, error) { return docs.NewClone(context.Background(), "..", dir) })
	var docker *backend.Backend // the server of the examples that need Docker
	for _, b := range backends(t) {
		if docker == nil && inDocker(b)+standalone(b) == "" {
			docker = b
		}
	}
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		clone := must[*docs.Clone](t)(must[*docs.Clone](t)(first()).Copy(t.Context(), t.TempDir()))
		for _, document := range documents {
			restore(t, b)
			require(t, b.SetTime(time.Now().UnixMicro()))
			for _, example := range document.Examples {
				if example.Server == "none" {
					continue // the tests of package docs run this example
				}
				if example.Needs == "docker" && b != docker {
					if lack := inDocker(b); lack != "" {
						exclude(b, lack)
					}
					continue
				}
				t.Run(example.Name, func(t *testing.T) {
					if err := example.Run(t.Context(), clone, "sh", "redis://"+b.Addrs()[0]); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}, standalone, withClock, prepared(first))
}
