package envoyconfig

import (
	"slices"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// policyEntry is the key of the entry that names a policy.
const policyEntry = "policy"

// Policy returns the policy that a descriptor names with an entry, without @, and the key on the server,
// which the other entries form. It returns "" if the descriptor names none.
func Policy(descriptor []*entries.RateLimitDescriptor_Entry) (name, key string) {
	at := slices.IndexFunc(descriptor, func(e *entries.RateLimitDescriptor_Entry) bool { return e.Key == policyEntry })
	if at < 0 || descriptor[at].Value == "" {
		return "", ""
	}
	name = descriptor[at].Value
	return name, Key(name, slices.Delete(slices.Clone(descriptor), at, at+1), nil)
}
