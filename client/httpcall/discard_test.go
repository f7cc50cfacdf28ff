package httpcall

import (
	"io"
	"testing"
	"testing/synctest"
)

// If the body of a response never ends, discard closes it, so the retry is not blocked.
func TestDiscardEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, _ := io.Pipe()
		discard(body)
		if _, err := body.Read(make([]byte, 1)); err != io.ErrClosedPipe {
			t.Errorf("%v; the body is not closed", err)
		}
	})
}
