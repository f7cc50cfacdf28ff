package loader

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/dialing"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// Classes of errors, for errors.Is.
var (
	ErrUnreachable     = errors.New("unreachable")                      // no connection, or no reply in time
	ErrNoFunctions     = errors.New("no functions")                     // the server is older than Redis 7.0, or is not a Redis or Valkey server
	ErrSentinel        = fmt.Errorf("a Sentinel: %w", ErrNoFunctions)   // the server is a Sentinel; also an ErrNoFunctions
	ErrNoLua           = errors.New("no Lua engine")                    // the server has functions, but no Lua engine to run them
	ErrNoPermission    = errors.New("no permission")                    // the server refused the login or a command
	ErrReadOnly        = errors.New("read-only replica")                // the node is a replica
	ErrOutOfMemory     = errors.New("out of memory")                    // the node is above its maxmemory and accepts no library
	ErrBusy            = errors.New("busy")                             // the node is running a long script, or is still loading its data
	ErrNameTaken       = errors.New("function name taken")              // another library on the node registers one of the library's functions
	ErrRefused         = errors.New("library refused")                  // the node does not accept the library's source code
	ErrOverwritten     = errors.New("overwritten")                      // the node accepted the library but then had a different one
	ErrForeign         = errors.New("another library of that name")     // the node has an unrelated library of the same name
	ErrDowngrade       = errors.New("downgrade")                        // the node runs a newer version, or a version with a higher contract
	ErrRemovesPolicies = errors.New("removes policies")                 // the node runs a policy that the build does not have
	ErrDeniesKeys      = errors.New("denies keys in use")               // a changed policy would deny calls on keys in use that still have units left
	ErrLeased          = errors.New("another deployment is under way")  // another deployment to the same servers holds the lease
	ErrOvertaken       = fmt.Errorf("overtaken: %w", ErrLeased)         // another deployment took over this call's lease, or ended while this call waited for the lease; also an ErrLeased
	ErrNotWritable     = errors.New("takes no writes")                  // the node refuses all writes for now, because it cannot save or too few replicas follow it
	ErrBadReply        = errors.New("bad reply")                        // the node sent a reply that no Redis or Valkey server sends
	ErrBadBuild        = errors.New("not a build of the library")       // the source code to deploy is not a build of the library
	ErrNamespace       = fmt.Errorf("wrong namespace: %w", ErrBadBuild) // the build has policies of another namespace; also an ErrBadBuild
	ErrNothingKept     = errors.New("nothing to go back to")            // the servers keep nothing that a rollback could restore
	ErrNoRecord        = errors.New("no record")                        // a node runs the build but has lost the record of its deployment
	ErrUnreadable      = errors.New("unreadable library")               // the text of the node's library cannot be read, or was written by a newer version
	ErrClock           = errors.New("wrong clock")                      // the clock of a node cannot be right
)

// These classes are mainly for findings; see [Finding].
var (
	ErrNoLibrary     = errors.New("no library")           // the node does not have the library
	ErrMixedBuilds   = errors.New("mixed builds")         // the primaries have different builds
	ErrNotPersistent = errors.New("not persistent")       // the node saves nothing to disk
	ErrSlots         = errors.New("slots are not served") // the cluster does not serve all slots
)

// Error describes a problem of one node, or of the whole call, and what to do about it. errors.Is
// matches its class, which is one of the Err values above, and the error of the connection or of
// the context. errors.As finds the server's error reply, a redis.Error.
type Error struct {
	Class   error  // one of the Err values, or nil
	Addr    string // the node, or "" if the error is not about a single node
	Step    string // the command that failed, such as "FUNCTION LOAD"
	Code    string // the first word of the server's error reply, such as "NOPERM"; empty if there was no error reply
	Problem string // what is wrong
	Remedy  string // what a Go program or its operator can do; "" if that is not known
	Err     error  // the underlying error, or nil if there is none

	User     string   // for ErrNoPermission: the user
	Rights   []string // for ErrNoPermission: the ACL rules that the user needs
	Policies []string // for ErrRemovesPolicies and ErrDeniesKeys: the policies
	Primary  string   // for ErrReadOnly: the address of the primary, if known
}

// Error returns the problem and the remedy in one line.
func (e *Error) Error() string {
	if e.Remedy == "" {
		return e.Problem
	}
	return e.Problem + "; " + e.Remedy
}

// Unwrap returns the class of the error and its cause, for errors.Is and errors.As.
func (e *Error) Unwrap() []error {
	return slices.DeleteFunc([]error{e.Class, e.Err}, func(err error) bool { return err == nil })
}

// MarshalText returns the same text as Error.
func (e *Error) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// found returns the problem without the address, so that nodes with the same problem get the same
// text.
func (e *Error) found() string {
	if reason, ok := strings.CutPrefix(e.Problem, "cannot reach "+e.Addr+": "); ok {
		return "it cannot be reached: " + reason
	}
	return strings.TrimPrefix(e.Problem, e.Addr+" ")
}

// replyText returns the text of a server's error reply, or "" if err is something else.
func replyText(err error) string {
	if reply, ok := errors.AsType[redis.Error](err); ok {
		return reply.Error()
	}
	return ""
}

func isReply(err error, prefix string) bool { return strings.HasPrefix(replyText(err), prefix) }

func codeOf(err error) string {
	code, _, _ := strings.Cut(replyText(err), " ")
	return code
}

// fail returns an error about the node. problem is the format of Error.Problem without the address.
func (c *conn) fail(step string, class, err error, remedy, problem string, args ...any) *Error {
	return &Error{
		Class: class, Addr: c.address(), Step: step, Code: codeOf(err), Err: err,
		Problem: c.address() + " " + fmt.Sprintf(problem, args...), Remedy: remedy,
	}
}

func (c *conn) userName() string {
	if c.user == "" {
		return "default"
	}
	return c.user
}

func failure(c *conn, step string, err error) *Error {
	const again = ", then try again"
	code := codeOf(err)
	if code == "" || dialing.AtSentinels(err) {
		return unreachable(c, step, err)
	}
	switch code {
	case "NOPERM":
		e := c.fail(step, ErrNoPermission, err, "grant the user the rules that Rules returns for a Deployer, or for a Planner if it only looks", "does not let the user %q call %s", c.userName(), step)
		e.User, e.Rights = c.userName(), deployerRights(strings.HasPrefix(step, "CLUSTER"))
		return e
	case "NOAUTH":
		return c.fail(step, ErrNoPermission, err, "set Password in the options of the Redis client", "requires a password")
	case "WRONGPASS":
		e := c.fail(step, ErrNoPermission, err, "check the user name and the password", "refuses the login of the user %q", c.userName())
		e.User = c.userName()
		return e
	case "OOM":
		return c.fail(step, ErrOutOfMemory, err, "raise its maxmemory or free memory"+again, "is out of memory and accepts no library")
	case "MISCONF", "NOREPLICAS":
		remedy := "see its log: it cannot write to its disk"
		if codeOf(err) == "NOREPLICAS" {
			remedy = "start its replicas, or lower its min-replicas-to-write"
		}
		return c.fail(step, ErrNotWritable, err, remedy+again, "accepts no writes now (%s)", replyText(err))
	case "BUSY":
		return c.fail(step, ErrBusy, err, "wait for it, or end it with FUNCTION KILL or SCRIPT KILL"+again, "is busy with a script")
	case "LOADING":
		return c.fail(step, ErrBusy, err, "try again when it is done", "is still loading its data")
	}
	return c.fail(step, nil, err, "", "refuses %s: %s", step, replyText(err))
}

// unreachable returns the error for a step without a valid reply, or for Sentinels that do not name
// the primary.
func unreachable(c *conn, step string, err error) *Error {
	class := ErrUnreachable
	if dialing.Gibberish(err) && !dialing.AtSentinels(err) {
		class = ErrBadReply
	}
	e := c.fail(step, class, err, "", "")
	d := dialing.New(c.address(), err, c.tls, c.timeout, "check the address and that the server runs")
	e.Problem, e.Remedy, e.Err = d.Problem, d.Remedy, d
	return e
}

func noFunctions(c *conn, a about, err error) *Error {
	if a.mode == "sentinel" {
		return c.fail("FUNCTION STATS", ErrSentinel, err, "pass a client made with redis.NewFailoverClient and its MasterName, or connect to the primary", "is a Sentinel, which holds no data")
	}
	return c.fail("FUNCTION STATS", ErrNoFunctions, err, "use Redis 7.0 or later, or Valkey", "runs %s %s, which has no functions", a.engine, a.version)
}

func readOnly(c *conn, primary string, err error) *Error {
	e := c.fail("FUNCTION LOAD", ErrReadOnly, err, strings.TrimSpace("connect to its primary "+primary), "is a read-only replica")
	e.Primary = primary
	return e
}

func nameTaken(c *conn, function, holder string, err error) *Error {
	if holder == "" {
		return c.fail("FUNCTION LOAD", ErrNameTaken, err, "find it with FUNCTION LIST and delete it, then try again", "has another library that registers %s", function)
	}
	return c.fail("FUNCTION LOAD", ErrNameTaken, err, "delete it with FUNCTION DELETE "+holder+" or rename its function, then try again", "has a library %q that registers %s", holder, function)
}

func otherLibrary(c *conn) *Error {
	return c.fail("FUNCTION LIST", ErrForeign, nil, "delete it with FUNCTION DELETE "+functions.Name+", or replace it with Options.ReplaceForeign",
		"has another library with the name %q: its text contains no build ID", functions.Name)
}

func downgrade(c *conn, running, wanted Library) *Error {
	const remedy = "deploy a newer build, or set Options.AllowDowngrade"
	if running.Contract > wanted.Contract {
		return c.fail("FUNCTION LIST", ErrDowngrade, nil, remedy, "runs version %s with contract %d, but this build is version %s with contract %d",
			running.Version, running.Contract, wanted.Version, wanted.Contract)
	}
	return c.fail("FUNCTION LIST", ErrDowngrade, nil, remedy, "runs version %s, which is newer than %s", running.Version, wanted.Version)
}

// removesPolicies returns the error for a build that lacks policies of the node. names lists these
// policies.
func removesPolicies(c *conn, names []string, wanted Library, back bool) *Error {
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
	e := c.fail("FUNCTION LIST", ErrRemovesPolicies, nil, remedy, "runs the %s %s, which %s does not have", word, list, build)
	e.Policies = names
	return e
}

const deleteIt = "delete it there with FUNCTION DELETE " + functions.Name + ", and deploy again"

// unreadable returns the error for a text that cannot be parsed.
func unreadable(c *conn, err error) *Error {
	if errors.Is(err, text.ErrNewer) {
		return c.fail("FUNCTION LIST", ErrUnreadable, err, "deploy with that version", "has a library that a newer version of this program deployed (%v)", err)
	}
	return c.fail("FUNCTION LIST", ErrUnreadable, err, deleteIt,
		"has a library %q that this program cannot read (%s)", functions.Name, strings.TrimPrefix(err.Error(), "functions: "))
}

func overtaken(c *conn, what string) *Error {
	return c.fail("FUNCTION LOAD", ErrOvertaken, nil, lookAtStatus, "%s", what)
}

func leased(c *conn, other lease) *Error {
	until := time.UnixMilli(other.untilMS).UTC().Format("15:04:05")
	return c.fail("FUNCTION LOAD", ErrLeased, nil, "try again after it, or set Options.Wait", "is in another deployment, by %s, until %s UTC at the latest", other.who, until)
}

const lookAtStatus = "call Status to see what the nodes run"

func cameBetween(c *conn) *Error {
	return c.fail("FUNCTION LIST", ErrOvertaken, nil, lookAtStatus, "got another deployment while this call waited for the lease")
}

func overwritten(c *conn) *Error {
	return c.fail("FUNCTION LIST", ErrOverwritten, nil, "find out who else deploys, then try again", "accepted the library but now has another one")
}

func garbage(c *conn, step string, reply any) *Error {
	shown := fmt.Sprintf("%q", fmt.Sprint(reply))
	if len(shown) > 80 {
		shown = strings.ToValidUTF8(shown[:80], "") + `..."`
	}
	return c.fail(step, ErrBadReply, nil, "check that it is a Redis or Valkey server", "answers %s with %s", step, shown)
}

func stateAfter(err error) State {
	if errors.Is(err, ErrUnreachable) {
		return Unreachable
	}
	return Unknown
}

func failedNode(addr string, err error) Node {
	return Node{Addr: addr, State: stateAfter(err), Err: err}
}
