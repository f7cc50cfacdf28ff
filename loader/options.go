package loader

import "time"

// Options allows what a call refuses otherwise. A call ignores the fields that do not concern it.
type Options struct {
	// AllowDowngrade lets an older version replace a newer one, and a lower contract a higher one.
	AllowDowngrade bool

	// RemovePolicies lets a build without some of the current policies replace the current build.
	// Calls that name a removed policy then fail.
	RemovePolicies bool

	// DenyKeysInUse lets a build replace the current one even if a changed policy would deny keys in
	// use until their state expires, or would require a different number of keys. It has no effect
	// without [WithEffects].
	DenyKeysInUse bool

	// ReplaceForeign lets a deployment replace, and Delete delete, an unrelated library of the same
	// name.
	ReplaceForeign bool

	// Wait is how long a call waits for another deployment to finish, before it fails with
	// [ErrLeased]. If it is 0, the call fails at once or, in a namespace ([WithNamespace]), waits for
	// four times as long as a lease lasts. If it is below 0, the call fails at once.
	Wait time.Duration
}
