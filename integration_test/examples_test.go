package integration_test

import (
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/tools/docs"
)

// The examples in the documents work on every real server. The shells make no difference to a
// server; the tests of package docs paste the documents into each of them.
func TestTheDocuments(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		documents, clone := cloned(t)
		for _, document := range documents {
			restore(t, b)
			if err := b.SetTime(time.Now().UnixMicro()); err != nil {
				t.Fatal(err)
			}
			for _, example := range document.Examples {
				if example.Needs != "" || example.Server == "none" {
					continue // see TestContainer and the tests of package docs
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

// cloned returns the documents, and a clone to run them in.
func cloned(t *testing.T) ([]docs.Document, *docs.Clone) {
	t.Helper()
	documents, err := docs.All("..")
	if err != nil {
		t.Fatal(err)
	}
	clone, err := docs.NewClone(t.Context(), "..", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return documents, clone
}
