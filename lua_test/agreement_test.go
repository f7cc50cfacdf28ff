package lua_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/lua_test/model/agree"
	"github.com/ratelimit-functions/ratelimit/lua_test/model/generate"
)

// offline adapts the embedded server to agree.Server.
type offline struct{ *embedded.Server }

func (o offline) SetTime(us int64) error {
	o.Server.SetTime(time.UnixMicro(us))
	return nil
}

func (o offline) Do(words ...string) (any, error) {
	args := make([]any, len(words))
	for i, word := range words {
		args[i] = word
	}
	reply, err := o.Server.Do(args...)
	if refused, ok := errors.AsType[embedded.Error](err); ok {
		return nil, agree.Refusal(refused)
	}
	return reply, err
}

// TestAgreement compares the library in the offline engine with the model of the contract: every
// field of every reply, and the expiry of every key. It uses two databases, because a library
// serves all databases of a server. If RATELIMIT_SOAK is set, it is the number of generated steps.
func TestAgreement(t *testing.T) {
	wanted := generate.Wanted(t, 3000)
	build, err := generate.Library()
	if err != nil {
		t.Fatal(err)
	}
	server := offline{embedded.Run(t, embedded.WithLibrary(mutated(t, build.Text())))}
	agree.Repeat(t, wanted, server, secondDatabase(t, server))
}

// TestCorners is like TestAgreement, for sequences in which features meet more often.
func TestCorners(t *testing.T) {
	wanted, seed, done := generate.Wanted(t, 6000), uint64(1), 0
	if os.Getenv("RATELIMIT_SOAK") != "" {
		seed = rand.Uint64()
	}
	build, err := generate.Library()
	require(t, err)
	server := offline{embedded.Run(t, embedded.WithLibrary(mutated(t, build.Text())))}
	for corners := generate.NewCorners(seed); done < wanted; {
		run := corners.Steps()
		done += len(run)
		if err := agree.Run(run, server); err != nil {
			t.Fatalf("seed %d, after %d steps: %v", seed, done, err)
		}
	}
	t.Logf("%d steps", done)
}

// TestExactSums is like TestAgreement, for limits with the largest numbers that the contract permits.
func TestExactSums(t *testing.T) {
	wanted, done, differs := generate.Wanted(t, 6000), 0, false
	build, err := generate.Library()
	require(t, err)
	server := offline{embedded.Run(t, embedded.WithLibrary(mutated(t, build.Text())))}
	rapid.Check(t, func(t *rapid.T) {
		if done >= wanted && !differs {
			return
		}
		run := generate.Edges().Draw(t, "run")
		done += len(run)
		if err := agree.Run(run, server); err != nil {
			differs = true // from now on, rapid shrinks the failing sequence
			t.Fatal(err)
		}
	})
	t.Logf("%d steps", done)
}
