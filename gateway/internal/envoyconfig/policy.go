package envoyconfig

import (
	"errors"
	"fmt"
	"slices"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// Entries with a meaning of their own. The last two have it only beside policyEntry.
const (
	policyEntry = "policy" // the policy
	classEntry  = "class"  // the class of the request under the policy
	poolEntry   = "pool"   // the pool of a policy with a guarantee and a pool
)

// Named is what the entries of a descriptor name: a policy, without @, or "" if there is none. The key on the server is formed
// by the other entries.
type Named struct{ Policy, Key, Class, Pool string }

// Policy returns what a descriptor names.
func Policy(descriptor []*entries.RateLimitDescriptor_Entry) (Named, error) {
	at := slices.IndexFunc(descriptor, func(e *entries.RateLimitDescriptor_Entry) bool { return e.Key == policyEntry })
	if at < 0 || descriptor[at].Value == "" {
		return Named{}, nil
	}
	named, rest := Named{Policy: descriptor[at].Value}, slices.Delete(slices.Clone(descriptor), at, at+1)
	for at, e := range slices.Backward(rest) {
		into := &named.Class
		switch e.Key {
		case poolEntry:
			into = &named.Pool
		case classEntry:
		default:
			continue
		}
		if *into != "" || e.Value == "" {
			return Named{}, fmt.Errorf("the entry %s is repeated or empty; give it once, or leave it out", e.Key)
		}
		*into, rest = e.Value, slices.Delete(rest, at, at+1)
	}
	if named.Pool != "" && len(rest) == 0 {
		return Named{}, errors.New("no entry says whose guarantee it is; add one beside policy and pool, such as tenant")
	}
	named.Key = Key(named.Policy, rest, nil)
	return named, nil
}
