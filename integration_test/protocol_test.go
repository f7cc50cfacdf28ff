package integration_test

import (
	"testing"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/internal/conformance"
)

// TestProtocol checks that real servers send the recorded replies. Another test compares the
// embedded server with the same replies, byte for byte.
func TestProtocol(t *testing.T) {
	exchanges := must[[]conformance.Exchange](t)(conformance.LoadExchanges("../embedded/testdata/protocol.json"))
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		for _, e := range exchanges {
			if err := e.Compare(b.Nodes[0].Addr); err != nil {
				t.Error(err)
			}
		}
	}, standalone)
}
