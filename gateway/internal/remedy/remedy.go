// Package remedy rewords errors of package client for operators, because the original advice is for
// Go programmers.
package remedy

import (
	"errors"
	"slices"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
)

// operators holds the operations of the admin port.
var operators = []string{"block", "unblock", "override", "override_end", "reset"}

// For returns err with advice for the operator of the gateway, and with long keys shortened.
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
	switch kind := "application"; {
	case errors.Is(err, client.ErrNotDeployed):
		copied.Remedy = "deploy it with ratelimit deploy, or start the gateway with --deploy"
	case call.Code == "NOAUTH":
		copied.Remedy = "write redis://:PASSWORD@host:port in REDIS_URL"
	case errors.Is(err, client.ErrNoPermission) && call.Code != "WRONGPASS":
		if slices.Contains(operators, call.Op) {
			kind = "operator"
		}
		copied.Remedy = "print the rights that it needs with: ratelimit acl " + kind + " --all-keys"
	case call.Code == "MOVED", call.Code == "ASK":
		copied.Remedy = "write redis+cluster:// in the URL of the servers"
	}
	return &copied
}

// Cut cuts off what is too long for an error message.
func Cut(text string) string { return printable.Cut(text, 60) }

// Code returns the Code of an error of package client, such as "NOPOLICY", if no retry helps against it.
// For any other error it returns "".
func Code(err error) string {
	if call, ok := errors.AsType[*client.Error](err); ok && errors.Is(err, client.ErrMisconfigured) {
		return call.Code
	}
	return ""
}
