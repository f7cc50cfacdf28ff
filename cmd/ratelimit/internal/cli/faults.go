package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/scan"
	"github.com/ratelimit-functions/ratelimit/internal/dialing"
)

// nodeName returns the display name of a node. For a primary behind Sentinels, this is s.Name,
// because addr is not its address.
func (s servers) nodeName(addr string) string {
	if s.Master != "" {
		return s.Name
	}
	return addr
}

// faults returns an error that explains, to users of the command, what failed on the servers s: the
// errors from a scan, or from calls to each primary. It returns nil if the user interrupted the
// command. rights lists the permissions that the user needs.
func (a *app) faults(s servers, err error, rights string) error {
	var all []error
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		all = several.Unwrap()
	} else if err != nil {
		all = []error{err}
	}
	var found joined
	for _, err := range all {
		var refusal redis.Error
		var call *client.Error
		name := s.Name
		if node, ok := errors.AsType[*scan.NodeError](err); ok {
			err, name = node.Err, s.nodeName(node.Addr)
		}
		switch {
		case errors.Is(err, context.Canceled):
		case errors.As(err, &call) && (call.Code != "" || !errors.Is(err, client.ErrUnavailable)):
			found = append(found, &atNode{name, err})
		case redis.HasErrorPrefix(err, "NOPERM"):
			needs := rights
			if a.clustered.Load() {
				needs += " +cluster|slots +command"
			}
			found = append(found, fmt.Errorf("%s: %w; the user needs %s", name, err, needs))
		case errors.As(err, &refusal):
			found = append(found, fmt.Errorf("%s: %w", name, err))
		default:
			found = append(found, dialing.New(name, err, s.Options.TLSConfig, s.Options.ReadTimeout, "check that the server runs"))
		}
	}
	if len(found) == 0 {
		return nil
	}
	return errors.New(a.explained(found))
}

type joined []error

func (j joined) Unwrap() []error { return j }

func (j joined) Error() string {
	var texts []string
	for _, err := range j {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

type atNode struct {
	name string
	err  error
}

func (e *atNode) Error() string { return e.text(e.err.Error()) }

func (e *atNode) Unwrap() error { return e.err }

func (e *atNode) text(err string) string {
	return e.name + ": " + strings.TrimPrefix(err, "ratelimit: ")
}
