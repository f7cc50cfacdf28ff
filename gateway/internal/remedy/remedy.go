// Package remedy rewords errors for operators, because the original advice is for Go programmers.
package remedy

import (
	"cmp"
	"crypto/tls"
	"errors"
	"os"
	"slices"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/dialing"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
)

// operators holds the operations of the admin port. A penalty also blocks keys.
var operators = []string{"block", "unblock", "override", "override_end", "reset"}

// What to do about a login. REDIS_AUTH is a variable of envoyproxy/ratelimit; see docs/swap.md.
const (
	password = "write redis://:PASSWORD@host:port in REDIS_URL, or set REDIS_AUTH beside the variables of envoyproxy/ratelimit"
	login    = "check the user name and the password, which are in REDIS_URL or --redis, or in REDIS_AUTH beside the variables of envoyproxy/ratelimit"
	socket   = "check the path; for host:port beside the variables of envoyproxy/ratelimit, set REDIS_SOCKET_TYPE=tcp"
	deployIt = "deploy it with ratelimit deploy, or start the gateway with --deploy"
)

// What to do about a connection with TLS. The variables are those of envoyproxy/ratelimit.
const (
	authority   = "name the file with the certificate of the authority in --redis-tls-ca, or in REDIS_TLS_CACERT beside the variables of envoyproxy/ratelimit"
	host        = "connect to a host that it is for"
	certificate = "name a certificate that the server trusts in --redis-tls-cert, and its key in --redis-tls-key; or in REDIS_TLS_CLIENT_CERT and REDIS_TLS_CLIENT_KEY beside the variables of envoyproxy/ratelimit"
	secure      = "check the address, and that the URL begins with rediss:// if the server uses TLS, and with redis:// if it does not"
)

// For returns err with advice for the operator of the gateway, and with long keys shortened. It rewords
// errors of package client, and those of package loader.
func For(err error) error {
	switch list := err.(type) {
	case *client.Error, *nodes.Error: // what these wrap is one error
	case interface{ Unwrap() []error }: // one for each server
		var all []error
		for _, err := range list.Unwrap() {
			all = append(all, For(err))
		}
		return errors.Join(all...)
	}
	if node, ok := errors.AsType[*nodes.Error](err); ok {
		return deployed(*node)
	}
	call, ok := errors.AsType[*client.Error](err)
	if !ok {
		return err
	}
	copied := *call
	copied.Keys = make([]string, len(call.Keys))
	for i, key := range call.Keys {
		copied.Keys[i] = Cut(key)
	}
	switch {
	case errors.Is(err, client.ErrNotDeployed):
		copied.Remedy = deployIt
	case errors.Is(err, os.ErrNotExist):
		copied.Remedy = socket
	case call.Code == "NOAUTH":
		copied.Remedy = password
	case call.Code == "WRONGPASS":
		copied.Remedy = login
	case errors.Is(err, client.ErrNoPermission):
		copied.Remedy = "print the rights that it needs with: ratelimit acl application --all-keys"
		if slices.Contains(operators, call.Op) { // an application has the rights to all commands of these functions
			copied.Remedy += "; and grant it +fcall|ratelimit_" + call.Op
		}
	case call.Code == "MOVED", call.Code == "ASK":
		copied.Remedy = "write redis+cluster:// in the URL of the servers"
	case errors.Is(err, client.ErrUnavailable):
		copied.Remedy = connect(call)
	case call.Code == "" && call.Remedy != "": // the reply is neither a decision nor an error
		copied.Remedy = "find out what runs there with: ratelimit status"
	}
	return &copied
}

// connect returns what to do if no connection can be made because of TLS, or the remedy that e has.
func connect(e *client.Error) string {
	switch found := dialing.New("", e.Err, &tls.Config{}, 0, ""); found.Class {
	case nil:
		return cmp.Or(e.Remedy, found.Remedy)
	case dialing.ErrAuthority:
		return authority
	case dialing.ErrHost:
		return host
	case dialing.ErrCertificate:
		return certificate
	}
	if e.Op == "check" && e.Remedy == "" { // later, a server that hangs or ends is the more probable cause
		return secure
	}
	return e.Remedy
}

// deployed returns an error of package loader with advice for the operator.
func deployed(e nodes.Error) error {
	switch {
	case errors.Is(&e, os.ErrNotExist):
		e.Remedy = socket
	case e.Code == "NOAUTH":
		e.Remedy = password
	case e.Code == "WRONGPASS":
		e.Remedy = login
	case e.Class == nodes.ErrNoPermission:
		e.Remedy = "print the rights that it needs for --deploy with: ratelimit acl deployer; or run ratelimit deploy as another user"
	case e.Class == nodes.ErrForeign:
		e.Remedy = "delete it with FUNCTION DELETE " + functions.Name
	case e.Class == nodes.ErrNoLibrary:
		e.Remedy = deployIt
	}
	return &e
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
