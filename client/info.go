package client

import (
	"context"
	"time"
)

// Info is what the library on a server says of itself.
type Info struct {
	Version  string   // of the library, such as "0.1.0"
	Contract int64    // the version of the wire contract; this package is written for 1
	BuildID  string   // changes with each change of the library's text, policies included
	Policies []string // their names, in order, without @

	// ShadowDenied is, for every shadow policy, how many calls it has let through that it would have denied, on the node
	// that replied, since the library was loaded there. It is nil where the library does not say.
	ShadowDenied map[string]int64
}

const infoFields = "version, contract, build_id and policies"

// Info asks which library the server holds, and so also whether it holds one ([ErrNotDeployed]). In a cluster go-redis
// chooses the node that replies; [Client.Check] asks them all.
func (c *Client) Info(ctx context.Context) (info Info, err error) {
	if c.onCall != nil {
		defer func(began time.Time) { c.observeDone(ctx, "info", began, err) }(time.Now())
	}
	reply, err := c.ask(ctx, call{verb: "info", way: readOnly})
	if err != nil {
		return Info{}, err
	}
	info, ok := parseInfo(reply)
	if !ok {
		return Info{}, badReply("info", nil, infoFields, reply)
	}
	return info, nil
}
