package loader

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/dialing"
)

// Kinds of failure of a node, for errors.Is.
var (
	// ErrUnreachable: no connection, or no reply in time.
	ErrUnreachable = errors.New("unreachable")

	// ErrNoFunctions: the server is older than Redis 7.0, or is not a Redis or Valkey server.
	ErrNoFunctions = errors.New("no functions")

	// ErrNoLua: the server has functions, but no Lua engine to run them.
	ErrNoLua = errors.New("no Lua engine")

	// ErrNoPermission: the server refused the login or a command.
	ErrNoPermission = errors.New("no permission")

	// ErrReadOnly: the node is a replica.
	ErrReadOnly = errors.New("read-only replica")

	// ErrOutOfMemory: the node is above its maxmemory and accepts no library.
	ErrOutOfMemory = errors.New("out of memory")

	// ErrBusy: the node is running a long script, or is still loading its data.
	ErrBusy = errors.New("busy")

	// ErrNameTaken: another library on the node registers one of the library's functions.
	ErrNameTaken = errors.New("function name taken")

	// ErrRefused: the node does not accept the library's text.
	ErrRefused = errors.New("library refused")

	// ErrOverwritten: the node accepted the library but then had another one.
	ErrOverwritten = errors.New("overwritten")

	// ErrForeign: the node has a library of this name that is not a build of it.
	ErrForeign = errors.New("another library of that name")

	// ErrDowngrade: the node runs a newer version, or one with a higher contract.
	ErrDowngrade = errors.New("downgrade")

	// ErrRemovesPolicies: the node runs a policy that the build does not have.
	ErrRemovesPolicies = errors.New("removes policies")

	// ErrLeased: another deployment to the same servers is under way.
	ErrLeased = errors.New("another deployment is under way")

	// ErrNotWritable: the node refuses all writes for now, because it cannot save or too few
	// replicas follow it.
	ErrNotWritable = errors.New("takes no writes")

	// ErrBadReply: the node sent a reply that no Redis or Valkey server sends.
	ErrBadReply = errors.New("bad reply")
)

// NodeError says what is wrong with one node and what to do, in one sentence. errors.Is compares it
// with the Err values above and with the error of the connection or the context. errors.As finds
// the server's reply, a redis.Error.
type NodeError struct {
	Addr string // the node
	Step string // the command that failed, such as "FUNCTION LOAD"
	Code string // the first word of the server's error reply, such as "NOPERM"; empty if it gave none
	Err  error  // the underlying error, or nil if the node was found to be wrong without one

	class    error // one of the Err values, or nil
	sentence string
}

// Error returns the sentence.
func (e *NodeError) Error() string { return e.sentence }

// Unwrap returns the kind of the error and its cause, for errors.Is and errors.As.
func (e *NodeError) Unwrap() []error {
	var all []error
	if e.class != nil {
		all = append(all, e.class)
	}
	if e.Err != nil {
		all = append(all, e.Err)
	}
	return all
}

// replyText returns the text of a server's error reply, or "" if err is something else.
func replyText(err error) string {
	var reply redis.Error
	if errors.As(err, &reply) {
		return reply.Error()
	}
	return ""
}

func isReply(err error, prefix string) bool { return strings.HasPrefix(replyText(err), prefix) }

func isCode(err error, code string) bool { return codeOf(err) == code }

func codeOf(err error) string {
	code, _, _ := strings.Cut(replyText(err), " ")
	return code
}

func (c *conn) fail(step string, class, err error, format string, args ...any) *NodeError {
	return &NodeError{
		Addr: c.address(), Step: step, Code: codeOf(err), Err: err, class: class,
		sentence: c.address() + " " + fmt.Sprintf(format, args...),
	}
}

// userName returns the user's name as the server knows it.
func (c *conn) userName() string {
	if c.user == "" {
		return "default"
	}
	return c.user
}

// failure returns the error for a step that failed.
func failure(c *conn, step string, err error) error {
	user := c.userName()
	if dialing.AtSentinels(err) {
		return unreachable(c, step, err)
	}
	switch code := codeOf(err); code {
	case "":
		return unreachable(c, step, err)
	case "NOPERM":
		return c.fail(step, ErrNoPermission, err, "does not let the user %q call %s; give a deployer its rights with: %s", user, step,
			c.grant(deployerRights(strings.HasPrefix(step, "CLUSTER"))))
	case "NOAUTH":
		return c.fail(step, ErrNoPermission, err, "wants a password; give redis://:PASSWORD@host:port")
	case "WRONGPASS":
		return c.fail(step, ErrNoPermission, err, "refuses the login of the user %q; check the user name and the password", user)
	case "OOM":
		return c.fail(step, ErrOutOfMemory, err, "is out of memory and accepts no library; raise its maxmemory or free some, then try again")
	case "MISCONF", "NOREPLICAS":
		return c.fail(step, ErrNotWritable, err, "takes no writes for now (%s); put that right, then try again", replyText(err))
	case "BUSY":
		return c.fail(step, ErrBusy, err, "is busy with a script; wait for it, or end it with FUNCTION KILL or SCRIPT KILL, then try again")
	case "LOADING":
		return c.fail(step, ErrBusy, err, "is still loading its data; try again when it is done")
	default:
		return c.fail(step, nil, err, "refuses %s: %s", step, replyText(err))
	}
}

// unreachable returns the error for a step that got no reply, or a reply that is not from Redis, or
// for Sentinels that do not name the primary.
func unreachable(c *conn, step string, err error) error {
	class := ErrUnreachable
	if dialing.Gibberish(err) && !dialing.AtSentinels(err) {
		class = ErrBadReply
	}
	e := c.fail(step, class, err, "")
	e.sentence = dialing.Sentence(c.address(), err, c.tls, c.timeout, "check the address, and that the server runs")
	return e
}

func noFunctions(c *conn, a about, err error) error {
	if a.mode == "sentinel" {
		return c.fail("FUNCTION STATS", ErrNoFunctions, err, dialing.Sentinel)
	}
	return c.fail("FUNCTION STATS", ErrNoFunctions, err, "runs %s %s, which has no functions; use Redis 7.0 or later, or Valkey", a.engine, a.version)
}

func noLua(c *conn, a about) error {
	return c.fail("FUNCTION STATS", ErrNoLua, nil, "runs %s %s without its Lua engine; have it load its Lua module, or use a server that has Lua built in", a.engine, a.version)
}

func readOnly(c *conn, primary string, err error) error {
	if primary != "" {
		primary = " " + primary
	}
	return c.fail("FUNCTION LOAD", ErrReadOnly, err, "is a read-only replica; connect to its primary%s", primary)
}

func nameTaken(c *conn, function, holder string, err error) error {
	if holder == "" {
		return c.fail("FUNCTION LOAD", ErrNameTaken, err, "has another library that registers %s; find it with FUNCTION LIST and delete it or rename its function, then try again", function)
	}
	return c.fail("FUNCTION LOAD", ErrNameTaken, err, "has a library %q that registers %s; delete it with FUNCTION DELETE %s or rename its function, then try again", holder, function, holder)
}

func foreign(c *conn) error {
	return c.fail("FUNCTION LIST", ErrForeign, nil, "has a library %q that is not this one: its text names no build; delete it with FUNCTION DELETE %s, or allow its replacement with --replace-foreign (ReplaceForeign)", functions.Name, functions.Name)
}

func removesPolicies(c *conn, runs string, names []string) error {
	one, them, list := "policies", "them", strings.Join(names[:min(10, len(names))], ", ")
	if len(names) == 1 {
		one, them = "policy", "it"
	}
	if more := len(names) - 10; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return c.fail("FUNCTION LIST", ErrRemovesPolicies, nil, "%s the %s %s, which this build does not have; give the file that has %s with --policies (WithPolicies), or allow the removal with --remove-policies (RemovePolicies)", runs, one, list, them)
}

func leased(c *conn, other lease) error {
	until := time.UnixMilli(other.untilMS).UTC().Format("15:04:05")
	return c.fail("FUNCTION LOAD", ErrLeased, nil, "is in the middle of another deployment, by %s, until %s UTC at most; wait for it with --wait (WaitForLease), or try again then", other.who, until)
}

func cameBetween(c *conn) error {
	return c.fail("FUNCTION LIST", ErrLeased, nil, "has just got another deployment, which is not the one to be undone; look at what runs with: ratelimit status")
}

func refusedText(c *conn, err error) error {
	return c.fail("FUNCTION LOAD", ErrRefused, err, "refuses the library (%s); check the build with: ratelimit verify", replyText(err))
}

func overwritten(c *conn) error {
	return c.fail("FUNCTION LIST", ErrOverwritten, nil, "took the library and now holds another; see who else deploys, then try again")
}

func garbage(c *conn, step string, reply any) error {
	shown := fmt.Sprintf("%q", fmt.Sprint(reply))
	if len(shown) > 80 {
		shown = strings.ToValidUTF8(shown[:80], "") + `..."`
	}
	return c.fail(step, ErrBadReply, nil, "answers %s with %s; check that it is a Redis or Valkey server", step, shown)
}

// stateAfter returns the state of a node that could not be read.
func stateAfter(err error) State {
	if errors.Is(err, ErrUnreachable) {
		return Unreachable
	}
	return Unknown
}

func failedNode(addr string, err error) Node {
	return Node{Addr: addr, State: stateAfter(err), Err: err}
}
