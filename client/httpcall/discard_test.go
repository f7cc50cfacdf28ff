package httpcall

import (
	"io"
	"testing"
	"testing/synctest"
)

// A response that never ends does not delay the retry.
func TestDiscardEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, _ := io.Pipe()
		discard(body)
		if _, err := body.Read(make([]byte, 1)); err != io.ErrClosedPipe {
			t.Errorf("%v; the body is not closed", err)
		}
	})
}
