package integration_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/tools/docs"
)

// TestTheDocuments runs the examples in the documents on a real server, in containers if there are some: the README
// and then the documents in the order of docs/README.md, without a reset, like a reader who pastes everything in one
// session. A document with examples that need Docker also runs on the empty server. The tests of package docs run each document on an empty server of this program, and compare the shells.
func TestTheDocuments(t *testing.T) {
	dir := t.TempDir()
	first := sync.OnceValues(func() (*docs.Clone, error) { return docs.NewClone(context.Background(), "..", dir) })
	var server *backend.Backend
	for _, b := range backends(t) {
		if standalone(b) == "" && (server == nil || inDocker(server) != "" && inDocker(b) == "") {
			server = b
		}
	}
	isServer := func(b *backend.Backend) string {
		if b != server {
			return "the examples in the documents, which run on one server"
		}
		return ""
	}
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		clone := must[*docs.Clone](t)(first())
		run := func(document docs.Document, session bool) {
			for _, example := range document.Examples {
				if example.Server == "none" || session && example.Needs != "" {
					continue // the tests of package docs run this example, or this test does later
				}
				if lack := inDocker(b); lack != "" && example.Needs == "docker" {
					exclude(b, lack)
					continue
				}
				t.Run(example.Name, func(t *testing.T) {
					if err := example.Run(t.Context(), clone, "sh", "redis://"+b.Addrs()[0]); err != nil {
						t.Error(err)
					}
				})
			}
		}
		ordered, rest, err := docs.InOrder("..")
		require(t, err)
		require(t, b.SetTime(time.Now().UnixMicro()))
		for _, document := range ordered {
			run(document, true)
			if slices.ContainsFunc(document.Examples, func(e docs.Example) bool { return e.Needs != "" }) {
				rest = append(rest, document)
			}
		}
		for _, document := range rest {
			restore(t, b)
			require(t, b.SetTime(time.Now().UnixMicro()))
			run(document, false)
		}
	}, isServer, withClock, prepared(first))
}
