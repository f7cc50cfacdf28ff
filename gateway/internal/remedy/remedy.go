// Package remedy rewords errors of package client for operators, because their advice is for Go
// programs.
package remedy

import (
	"errors"
	"strings"

	"github.com/ratelimit-functions/ratelimit/client"
)

// For returns err with what the operator of the gateway can do, and with the beginnings of long keys.
func For(err error) error {
	call, ok := errors.AsType[*client.Error](err)
	if !ok {
		return err
	}
	copied := *call
	copied.Keys = make([]string, len(call.Keys))
	for i, key := range call.Keys {
		copied.Keys[i] = Cut(key)
	}
	if errors.Is(err, client.ErrNotDeployed) {
		copied.Remedy = "deploy it with ratelimit deploy, or start the gateway with --deploy"
	}
	return &copied
}

// Cut returns at most 60 bytes of a text for an error.
func Cut(text string) string {
	const most = 60
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
