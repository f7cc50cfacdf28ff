// Package remedy rewords errors of package client for operators, because their advice is for Go
// programs.
package remedy

import (
	"errors"

	"github.com/ratelimit-functions/ratelimit/client"
)

// For returns err with advice for the operator of the gateway.
func For(err error) error {
	call, ok := errors.AsType[*client.Error](err)
	if !ok || !errors.Is(err, client.ErrNotDeployed) {
		return err
	}
	copied := *call
	copied.Remedy = "deploy it with ratelimit deploy, or start the gateway with --deploy"
	return &copied
}
