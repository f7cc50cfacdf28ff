package main

import (
	"math/rand/v2"
	"testing"
)

// TestQuickDecidesAsTheReferenceModel makes the same takes at the same times, alternately idle and
// overloaded.
func TestQuickDecidesAsTheReferenceModel(t *testing.T) {
	for _, rate := range []int64{1_000_000, 200_000, 33_333} {
		random := rand.New(rand.NewPCG(1, uint64(rate)))
		quick, exact := newQuick(rate, 50+rate/10_000), newReference(rate, 50+rate/10_000)
		us, denied, partly := int64(0), 0, 0
		for call := range 1500 {
			us += random.Int64N(16_000_000 / rate * int64(1+call/100%4))
			n := 1 + random.Int64N(40)
			got, left := quick.take(us, n)
			if taken, remaining := exact.take(us, n); got != taken || left != remaining {
				t.Fatalf("%d/s, call %d at %d µs: of %d units quick took %d and left %d, the reference model %d and %d",
					rate, call, us, n, got, left, taken, remaining)
			}
			if got == 0 {
				denied++
			} else if got < n {
				partly++
			}
		}
		if denied == 0 || partly == 0 {
			t.Errorf("%d/s: %d calls denied, %d given a part: these takes compare too little", rate, denied, partly)
		}
	}
}
