package integration_test

import (
	"testing"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/internal/examples"
)

// What the documents show prints what they say, on every real server.
func TestTheDocuments(t *testing.T) {
	all, err := examples.All("..")
	if err != nil {
		t.Fatal(err)
	}
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		loadLibrary(testContext(t), t, b)
		for _, example := range all {
			t.Run(example.Name, func(t *testing.T) {
				if err := example.Run(t.Context(), "..", "redis://"+b.Addrs()[0]); err != nil {
					t.Error(err)
				}
			})
		}
	}, standalone)
}
