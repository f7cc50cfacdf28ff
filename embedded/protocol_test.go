package embedded

import (
	"testing"

	"github.com/ratelimit-functions/ratelimit/internal/conformance"
)

// What real servers reply to the same bytes; the integration tests hold them against the same file.
func TestProtocol(t *testing.T) {
	exchanges, err := conformance.LoadExchanges("testdata/protocol.json")
	if err != nil {
		t.Fatal(err)
	}
	s := Run(t)
	for _, e := range exchanges {
		if err := e.Check(s.Addr()); err != nil {
			t.Error(err)
		}
	}
}
