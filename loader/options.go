package loader

import (
	"errors"
	"fmt"
	"time"
)

// Options of single calls. The type of each option determines which calls accept it.
type (
	// DeployOption is an option of [Loader.Deploy]: [AllowDowngrade], [RemovePolicies], [DenyKeysInUse],
	// [ReplaceForeign] or [WaitForLease].
	DeployOption interface {
		set(*options) error
		ofDeploy()
	}

	// PlanOption is an option of [Loader.Plan]: [AllowDowngrade], [RemovePolicies], [DenyKeysInUse] or
	// [ReplaceForeign].
	PlanOption interface {
		set(*options) error
		ofPlan()
	}

	// RollbackOption is an option of [Loader.Rollback] and [Loader.PlanRollback]: [AllowDowngrade],
	// [RemovePolicies], [DenyKeysInUse], [ReplaceForeign], [To] or [WaitForLease].
	RollbackOption interface {
		set(*options) error
		ofRollback()
	}

	// DeleteOption is an option of [Loader.Delete]: [ReplaceForeign] or [WaitForLease].
	DeleteOption interface {
		set(*options) error
		ofDelete()
	}
)

// AllowDowngrade lets an older version replace a newer one, and a lower contract a higher one.
func AllowDowngrade() interface {
	DeployOption
	PlanOption
	RollbackOption
} {
	return option(func(o *options) error { o.downgrade = true; return nil })
}

// RemovePolicies lets a build without some of the current policies replace the current build. Calls
// that name a removed policy then fail.
func RemovePolicies() interface {
	DeployOption
	PlanOption
	RollbackOption
} {
	return option(func(o *options) error { o.removePolicies = true; return nil })
}

// DenyKeysInUse lets a build replace the current one even if a changed policy would deny keys in
// use until their state expires, or would require a different number of keys. It has no effect
// without [WithEffects].
func DenyKeysInUse() interface {
	DeployOption
	PlanOption
	RollbackOption
} {
	return option(func(o *options) error { o.denyKeys = true; return nil })
}

// ReplaceForeign lets a deployment replace, and Delete delete, an unrelated library of the same
// name.
func ReplaceForeign() interface {
	DeployOption
	PlanOption
	RollbackOption
	DeleteOption
} {
	return option(func(o *options) error { o.replaceForeign = true; return nil })
}

// WaitForLease makes a call wait for up to d for another deployment to finish, before it fails with
// [ErrLeased]. Without the option, the call fails at once or, in a namespace ([WithNamespace]),
// waits for four times as long as a lease lasts. d must not be below 0.
func WaitForLease(d time.Duration) interface {
	DeployOption
	RollbackOption
	DeleteOption
} {
	return option(func(o *options) error {
		o.waits = true
		if o.wait = d; d < 0 {
			return fmt.Errorf("loader.WaitForLease: the time %v is below 0; give one such as 1m", d)
		}
		return nil
	})
}

// To selects the build that a rollback restores, by its build ID or the beginning of its digest.
// build must not be empty. Use To if the nodes keep different builds.
func To(build string) RollbackOption {
	return option(func(o *options) error {
		if o.to = build; build == "" {
			return errors.New("loader.To: the build is empty; give its build ID, or leave To out")
		}
		return nil
	})
}

type options struct {
	downgrade      bool
	removePolicies bool
	denyKeys       bool
	replaceForeign bool
	wait           time.Duration
	waits          bool // whether the option WaitForLease was given
	to             string
	back           bool // whether the call is a rollback, which may restore an older version
}

type option func(*options) error

func (f option) set(o *options) error { return f(o) }

func (option) ofDeploy()   {}
func (option) ofPlan()     {}
func (option) ofRollback() {}
func (option) ofDelete()   {}

// optionsOf applies the options of a call, and fails with the first invalid one.
func optionsOf[O interface{ set(*options) error }](opts []O) (options, error) {
	var o options
	for _, opt := range opts {
		if err := opt.set(&o); err != nil {
			return o, err
		}
	}
	return o, nil
}
