package lua_test

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/internal/model/agree"
	"github.com/ratelimit-functions/ratelimit/internal/model/generate"
)

// offline is the embedded server as package agree sees it.
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
	var refused embedded.Error
	if errors.As(err, &refused) {
		return nil, agree.Refusal(refused)
	}
	return reply, err
}

// TestAgreement holds the library in the offline engine against the model of the contract: every field of every reply,
// and when every key expires. RATELIMIT_SOAK is how many generated steps to run.
func TestAgreement(t *testing.T) {
	wanted, done := generate.Wanted(t, 3000), 0
	build, err := generate.Library()
	if err != nil {
		t.Fatal(err)
	}
	server := offline{embedded.Run(t, embedded.WithLibrary(mutated(t, build.Text())))}
	steps, differs := generate.Steps(), false
	rapid.Check(t, func(t *rapid.T) {
		s := steps.Draw(t, "run")
		if done >= wanted && !differs {
			return
		}
		done += len(s)
		if err := agree.Run(server, s); err != nil {
			differs = true // from here on rapid looks for the shortest sequence that does
			t.Fatal(err)
		}
	})
	t.Logf("%d steps", done)
}
