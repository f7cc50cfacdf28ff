package loader

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// Classes of errors, for errors.Is. Those of package nodes are about the servers.
var (
	ErrNameTaken       = errors.New("function name taken")              // another library on the node registers one of the library's functions
	ErrRefused         = errors.New("library refused")                  // the node does not accept the library's source code
	ErrOverwritten     = errors.New("overwritten")                      // the node accepted the library but then had a different one
	ErrDowngrade       = errors.New("downgrade")                        // the node runs a newer version, or a version with a higher contract
	ErrRemovesPolicies = errors.New("removes policies")                 // the node runs a policy that the build does not have
	ErrDeniesKeys      = errors.New("denies keys in use")               // a changed policy would deny calls on keys in use that still have units left
	ErrLeased          = errors.New("another deployment is under way")  // another deployment to the same servers holds the lease
	ErrOvertaken       = fmt.Errorf("overtaken: %w", ErrLeased)         // another deployment took over this call's lease, or ended while this call waited for the lease; also an ErrLeased
	ErrBadBuild        = errors.New("not a build of the library")       // the source code to deploy is not a build of the library
	ErrNamespace       = fmt.Errorf("wrong namespace: %w", ErrBadBuild) // the build has policies of another namespace; also an ErrBadBuild
	ErrNothingKept     = errors.New("nothing to go back to")            // the servers keep nothing that a rollback could restore
	ErrNoRecord        = errors.New("no record")                        // a node runs the build but has lost the record of its deployment
	ErrUnreadable      = errors.New("unreadable library")               // the text of the node's library cannot be read, or was written by a newer version
)

func nameTaken(c *nodes.Conn, function, holder string, err error) *nodes.Error {
	if holder == "" {
		return c.Fail("FUNCTION LOAD", ErrNameTaken, err, "find it with FUNCTION LIST and delete it, then try again", "has another library that registers %s", function)
	}
	return c.Fail("FUNCTION LOAD", ErrNameTaken, err, "delete it with FUNCTION DELETE "+holder+" or rename its function, then try again", "has a library %q that registers %s", holder, function)
}

func downgrade(c *nodes.Conn, running, wanted text.Library) *nodes.Error {
	const remedy = "deploy a newer build, or set Options.AllowDowngrade"
	if running.Contract > wanted.Contract {
		return c.Fail("FUNCTION LIST", ErrDowngrade, nil, remedy, "runs version %s with contract %d, but this build is version %s with contract %d",
			running.Version, running.Contract, wanted.Version, wanted.Contract)
	}
	return c.Fail("FUNCTION LIST", ErrDowngrade, nil, remedy, "runs version %s, which is newer than %s", running.Version, wanted.Version)
}

// removesPolicies returns the error for a build that lacks policies of the node. names lists these
// policies.
func removesPolicies(c *nodes.Conn, names []string, wanted text.Library, back bool) *nodes.Error {
	list := strings.Join(names[:min(10, len(names))], ", ")
	if more := len(names) - 10; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	word := "policies"
	if len(names) == 1 {
		word = "policy"
	}
	build, remedy := "this build", "add it to the build with functions.WithPolicies, or set Options.RemovePolicies"
	if back {
		build, remedy = wanted.String()+", which a rollback would bring back,", "see what changes with PlanRollback, and set Options.RemovePolicies"
	}
	e := c.Fail("FUNCTION LIST", ErrRemovesPolicies, nil, remedy, "runs the %s %s, which %s does not have", word, list, build)
	e.Policies = names
	return e
}

const deleteIt = "delete it there with FUNCTION DELETE " + functions.Name + ", and deploy again"

// unreadable returns the error for a text that cannot be parsed.
func unreadable(c *nodes.Conn, err error) *nodes.Error {
	if errors.Is(err, text.ErrNewer) {
		return c.Fail("FUNCTION LIST", ErrUnreadable, err, "deploy with that version", "has a library that a newer version of this program deployed (%v)", err)
	}
	return c.Fail("FUNCTION LIST", ErrUnreadable, err, deleteIt,
		"has a library %q that this program cannot read (%s)", functions.Name, strings.TrimPrefix(err.Error(), "functions: "))
}

func overtaken(c *nodes.Conn, what string) *nodes.Error {
	return c.Fail("FUNCTION LOAD", ErrOvertaken, nil, lookAtStatus, "%s", what)
}

func leased(c *nodes.Conn, other lease) *nodes.Error {
	until := time.UnixMilli(other.untilMS).UTC().Format("15:04:05")
	return c.Fail("FUNCTION LOAD", ErrLeased, nil, "try again after it, or set Options.Wait", "is in another deployment, by %s, until %s UTC at the latest", other.who, until)
}

const lookAtStatus = "call Status to see what the nodes run"

func overwritten(c *nodes.Conn) *nodes.Error {
	return c.Fail("FUNCTION LIST", ErrOverwritten, nil, "find out who else deploys, then try again", "accepted the library but now has another one")
}

// loadFailure explains why a load was refused. If necessary, it asks the server for details.
func loadFailure(ctx context.Context, c *nodes.Conn, err error) error {
	var known *nodes.Error
	switch {
	case errors.As(err, &known):
		return err
	case nodes.CodeOf(err) == "READONLY":
		return c.ReadOnly(c.PrimaryOf(ctx), err)
	case nodes.IsReply(err, "ERR Function ") && strings.HasSuffix(nodes.ReplyText(err), " already exists"):
		function := strings.TrimSuffix(strings.TrimPrefix(nodes.ReplyText(err), "ERR Function "), " already exists")
		return nameTaken(c, function, holderOf(ctx, c, function), err)
	case nodes.IsReply(err, "ERR ") && strings.Contains(nodes.ReplyText(err), "FUNCTION LOAD timeout"):
		return c.Fail("FUNCTION LOAD", ErrRefused, err, "", "did not load the library within the half second that a server allows (%s); deploy fewer policies, or try when the server is less busy", nodes.ReplyText(err))
	case nodes.IsReply(err, "ERR Error "):
		return c.Fail("FUNCTION LOAD", ErrRefused, err, "check that the text is complete", "refuses the library (%s)", nodes.ReplyText(err))
	}
	return c.Failure("FUNCTION LOAD", err)
}

func holderOf(ctx context.Context, c *nodes.Conn, function string) string {
	if found, err := taken(ctx, c, []string{function}); err == nil && len(found) > 0 {
		return found[0].Library
	}
	return ""
}
