package client

import (
	"context"
	"time"
)

// Info describes the library on a server.
type Info struct {
	Version  string   // version of the library, such as "0.1.0"
	Contract int64    // version of the wire contract; this package supports 1
	BuildID  string   // changes whenever the library's source changes, policies included
	Policies []string // sorted names, without @

	// ShadowDenied maps each shadow policy to the number of calls that it would have denied if it
	// were enforced. The node that replied has counted them since the library was loaded there.
	// ShadowDenied is nil if the library does not report these numbers.
	ShadowDenied map[string]int64

	// PolicyCalls maps each policy to its calls, counted on the node that replied, since the library
	// was loaded there. It is nil if the library does not count them.
	PolicyCalls map[string]PolicyCalls
}

// PolicyCalls counts the takes, and the calls to acquire a lease, that named a policy. A reply that
// an OnceKey repeats is not counted again.
type PolicyCalls struct {
	Allowed int64 // allowed calls
	Denied  int64 // calls that this policy denied; for a shadow policy, allowed calls that it would have denied

	// The policy's canary has CanaryShare of all keys, in thousandths, and its own counts, which are not
	// in Allowed and Denied. CanaryShare is 0 if the policy has no canary.
	CanaryShare, CanaryAllowed, CanaryDenied int64

	// Classes counts the calls of each class of the policy. Pool counts the allowed calls of a policy with a
	// guarantee and a pool: those within the guarantee, and those that only the pool paid. It is nil for other
	// policies. Both include the calls that the canary decided.
	Classes map[string]struct{ Allowed, Denied int64 }
	Pool    *struct{ Guaranteed, Borrowed int64 }
}

const infoFields = "version, contract, build_id and policies"

// Info returns a description of the library on the server, or [ErrNotDeployed] if there is none. In
// a cluster, Info describes the library on one node, which go-redis chooses. [Client.Check] checks
// all primaries.
func (c *Client) Info(ctx context.Context) (info Info, err error) {
	defer c.observers.report(ctx, "info", time.Now(), nil, nil, &err)
	return ask(ctx, c.server, &call{verb: "info", mode: readOnly}, infoFields, parseInfo)
}
