package loader

import (
	"errors"
	"fmt"
	"time"
)

// What a call may be told beside its arguments. Each option fits the calls that its result names, and no other.
type (
	// DeployOption is an option of [Loader.Deploy]: [AllowDowngrade], [RemovePolicies], [ReplaceForeign] or [WaitForLease].
	DeployOption interface {
		set(*options) error
		ofDeploy()
	}

	// PlanOption is an option of [Loader.Plan]: [AllowDowngrade], [RemovePolicies] or [ReplaceForeign].
	PlanOption interface {
		set(*options) error
		ofPlan()
	}

	// RollbackOption is an option of [Loader.Rollback]: [To] or [WaitForLease].
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

// AllowDowngrade lets an older version, or a lower contract, take the place of a newer one.
func AllowDowngrade() interface {
	DeployOption
	PlanOption
} {
	return option(func(o *options) error { o.downgrade = true; return nil })
}

// RemovePolicies lets a build take the place of one that has policies which it has not. Calls that ask for one of them fail
// from then on.
func RemovePolicies() interface {
	DeployOption
	PlanOption
} {
	return option(func(o *options) error { o.removePolicies = true; return nil })
}

// ReplaceForeign lets the library take the place of one that has its name and is not a build of it, and lets Delete take
// such a one away.
func ReplaceForeign() interface {
	DeployOption
	PlanOption
	DeleteOption
} {
	return option(func(o *options) error { o.foreign = true; return nil })
}

// WaitForLease waits for another deployment that is under way, up to d, rather than fail with [ErrLeased] at once. d must
// not be below 0.
func WaitForLease(d time.Duration) interface {
	DeployOption
	RollbackOption
	DeleteOption
} {
	return option(func(o *options) error {
		if o.wait = d; d < 0 {
			return fmt.Errorf("the time %v to wait for another deployment is below 0; give one such as 1m", d)
		}
		return nil
	})
}

// To names which build a rollback goes back to, by its build id or the beginning of its digest, where the nodes do not
// agree on it. It must not be empty.
func To(build string) RollbackOption {
	return option(func(o *options) error {
		if o.to = build; build == "" {
			return errors.New("the build to go back to is empty; give its build id, or leave To out")
		}
		return nil
	})
}

// options are those of all calls.
type options struct {
	downgrade      bool
	removePolicies bool
	foreign        bool
	wait           time.Duration
	to             string
}

type option func(*options) error

func (f option) set(o *options) error { return f(o) }

func (option) ofDeploy()   {}
func (option) ofPlan()     {}
func (option) ofRollback() {}
func (option) ofDelete()   {}

// optionsOf applies the options of a call, and fails with the first that is wrong.
func optionsOf[O interface{ set(*options) error }](caller string, opts []O) (options, error) {
	var o options
	for _, opt := range opts {
		if err := opt.set(&o); err != nil {
			return o, fmt.Errorf("%s: %w", caller, err)
		}
	}
	return o, nil
}
