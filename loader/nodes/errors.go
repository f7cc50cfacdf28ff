package nodes

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/dialing"
	"github.com/ratelimit-functions/ratelimit/loader/acl"
)

// Classes of errors, for errors.Is.
var (
	ErrUnreachable  = errors.New("unreachable")                    // no connection, or no reply in time
	ErrNoFunctions  = errors.New("no functions")                   // the server is older than Redis 7.0, has no Lua engine, or is not a Redis or Valkey server
	ErrSentinel     = fmt.Errorf("a Sentinel: %w", ErrNoFunctions) // the server is a Sentinel; also an ErrNoFunctions
	ErrNoPermission = errors.New("no permission")                  // the server refused the login or a command
	ErrReadOnly     = errors.New("read-only replica")              // the node is a replica
	ErrNotWritable  = errors.New("takes no writes")                // the node accepts no library for now: it is out of memory, cannot save, has too few replicas, is loading its data, or runs a long script
	ErrNoLibrary    = errors.New("no library")                     // the node does not have the library
	ErrForeign      = errors.New("another library of that name")   // the node has an unrelated library of the same name
	ErrBadReply     = errors.New("bad reply")                      // the node sent a reply that no Redis or Valkey server sends
)

// Error describes a problem of one node, or of the whole call, and what to do about it. errors.Is
// matches its class, which is an Err value of this package, of loader or of doctor, and the error of the connection or of
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
	Policies []string // the policies that the error is about
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

// Found returns the problem without the address, so that nodes with the same problem get the same
// text.
func (e *Error) Found() string {
	if reason, ok := strings.CutPrefix(e.Problem, "cannot reach "+e.Addr+": "); ok {
		return "it cannot be reached: " + reason
	}
	return strings.TrimPrefix(e.Problem, e.Addr+" ")
}

// ReplyText returns the text of a server's error reply, or "" if err is something else.
func ReplyText(err error) string {
	if reply, ok := errors.AsType[redis.Error](err); ok {
		return reply.Error()
	}
	return ""
}

// IsReply reports whether err is an error reply that begins with prefix.
func IsReply(err error, prefix string) bool { return strings.HasPrefix(ReplyText(err), prefix) }

// CodeOf returns the first word of the error reply, or "" if err is something else.
func CodeOf(err error) string {
	code, _, _ := strings.Cut(ReplyText(err), " ")
	return code
}

// Fail returns an error about the node. problem is the format of Error.Problem without the address.
func (c *Conn) Fail(step string, class, err error, remedy, problem string, args ...any) *Error {
	return &Error{
		Class: class, Addr: c.Address(), Step: step, Code: CodeOf(err), Err: err,
		Problem: c.Address() + " " + fmt.Sprintf(problem, args...), Remedy: remedy,
	}
}

// UserName returns the name of the user that logs in.
func (c *Conn) UserName() string {
	if c.user == "" {
		return "default"
	}
	return c.user
}

// Failure returns the error for a command that failed.
func (c *Conn) Failure(step string, err error) *Error {
	const again = ", then try again"
	code := CodeOf(err)
	if code == "" || dialing.AtSentinels(err) {
		return c.unreachable(step, err)
	}
	switch code {
	case "NOPERM":
		e := c.Fail(step, ErrNoPermission, err, "grant the user the rules that acl.Rules returns for a Deployer, or for a Planner if it only looks", "does not let the user %q call %s", c.UserName(), step)
		e.User, e.Rights = c.UserName(), acl.DeployerRights(strings.HasPrefix(step, "CLUSTER"))
		return e
	case "NOAUTH":
		return c.Fail(step, ErrNoPermission, err, "set Password in the options of the Redis client", "requires a password")
	case "WRONGPASS":
		e := c.Fail(step, ErrNoPermission, err, "check the user name and the password", "refuses the login of the user %q", c.UserName())
		e.User = c.UserName()
		return e
	case "OOM":
		return c.Fail(step, ErrNotWritable, err, "raise its maxmemory or free memory"+again, "is out of memory and accepts no library")
	case "MISCONF":
		return c.Fail(step, ErrNotWritable, err, "see its log: it cannot write to its disk"+again, "accepts no writes now (%s)", ReplyText(err))
	case "NOREPLICAS":
		return c.Fail(step, ErrNotWritable, err, "start its replicas, or lower its min-replicas-to-write"+again, "accepts no writes now (%s)", ReplyText(err))
	case "BUSY":
		return c.Fail(step, ErrNotWritable, err, "wait for it, or end it with FUNCTION KILL or SCRIPT KILL"+again, "is busy with a script")
	case "LOADING":
		return c.Fail(step, ErrNotWritable, err, "try again when it is done", "is still loading its data")
	}
	return c.Fail(step, nil, err, "", "refuses %s: %s", step, ReplyText(err))
}

// unreachable returns the error for a step without a valid reply, or for Sentinels that do not name
// the primary.
func (c *Conn) unreachable(step string, err error) *Error {
	class := ErrUnreachable
	if dialing.Gibberish(err) && !dialing.AtSentinels(err) {
		class = ErrBadReply
	}
	e := c.Fail(step, class, err, "", "")
	d := dialing.New(c.Address(), err, c.tls, c.timeout, "check the address and that the server runs")
	e.Problem, e.Remedy, e.Err = d.Problem, d.Remedy, d
	return e
}

// ReadOnly returns the error for a node that is a replica.
func (c *Conn) ReadOnly(primary string, err error) *Error {
	e := c.Fail("FUNCTION LOAD", ErrReadOnly, err, strings.TrimSpace("connect to its primary "+primary), "is a read-only replica")
	e.Primary = primary
	return e
}

// Garbage returns the error for a reply that no server sends.
func (c *Conn) Garbage(step string, reply any) *Error {
	shown := fmt.Sprintf("%q", fmt.Sprint(reply))
	if len(shown) > 80 {
		shown = strings.ToValidUTF8(shown[:80], "") + `..."`
	}
	return c.Fail(step, ErrBadReply, nil, "check that it is a Redis or Valkey server", "answers %s with %s", step, shown)
}

// Foreign returns the error for a node with an unrelated library of the same name.
func (c *Conn) Foreign() *Error {
	return c.Fail("FUNCTION LIST", ErrForeign, nil, "delete it with FUNCTION DELETE "+functions.Name+", or replace it with Options.ReplaceForeign",
		"has another library with the name %q: its text contains no build ID", functions.Name)
}
