package embedded

import (
	"testing"

	"github.com/ratelimit-functions/ratelimit/internal/conformance"
)

// TestProtocol compares the bytes that this server sends with bytes recorded from real servers. The
// integration tests compare real servers with the same file.
func TestProtocol(t *testing.T) {
	exchanges := must[[]conformance.Exchange](t)(conformance.LoadExchanges("testdata/protocol.json"))
	s := Run(t)
	for _, e := range exchanges {
		if err := e.Compare(s.Addr()); err != nil {
			t.Error(err)
		}
	}
}
