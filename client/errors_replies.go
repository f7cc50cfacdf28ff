package client

import "strings"

// refusals maps the codes of the library's own errors, `RATELIMIT <CODE> text`, to kinds.
var refusals = map[string]string{
	"BADARGS":  typeBadArgs,
	"BADLIMIT": typeBadLimit,
	"BADCOST":  typeBadCost,
	"BADKEYS":  typeBadKeys,
	"BADSTATE": typeBadState,
	"NOPOLICY": typeNoPolicy,
}

// replies classifies the server's own errors, and some of the library's, by prefix. A prefix of one
// word is the whole first word. The first match applies. Each error means that nothing was changed,
// except the two with noCommand: the function may have run other commands before the one that the
// server refused.
var replies = []struct {
	prefix, kind, sentence, remedy string
}{
	{"ERR Function not found", typeNotDeployed, "the server does not have the library", deployIt},
	{`RATELIMIT BADCOST "UPTO"`, typeNotDeployed, "the library on the server is too old for UpTo", deployIt},
	{`RATELIMIT BADLIMIT "EACH"`, typeNotDeployed, "the library on the server is too old for Each", deployIt},
	{`RATELIMIT BADLIMIT "FLOOR"`, typeNotDeployed, "the library on the server is too old for Floor", deployIt},
	{`RATELIMIT BADLIMIT "CLASS"`, typeNotDeployed, "the library on the server is too old for Class", deployIt},
	{`RATELIMIT BADLIMIT "BORROW"`, typeNotDeployed, "the library on the server is too old for Borrow", deployIt},
	{"RATELIMIT BADARGS the number of arguments is 4; acquire", typeNotDeployed, "the library on the server is too old for the Class or Floor of a lease", deployIt},
	{`RATELIMIT BADCOST "FORCE"`, typeNotDeployed, "the library on the server is too old for Force", deployIt},
	{`RATELIMIT BADARGS "ONCE": not an option here`, typeNotDeployed, "the library on the server is too old for an OnceKey of Refund", deployIt},
	{`RATELIMIT BADARGS "EXTEND"`, typeNotDeployed, "the library on the server is too old for a Block with Extend", deployIt},
	{`RATELIMIT BADARGS "GROW"`, typeNotDeployed, "the library on the server is too old for a Block with Max", deployIt},
	{`RATELIMIT BADLIMIT "GROW"`, typeNotDeployed, "the library on the server is too old for Grow", deployIt},
	{"ERR unknown command", typeNotDeployed, "the server has no functions, which need Redis 7.0 or later, or Valkey", ""},
	{"ERR Can not execute a script with write flag", typeNotDeployed, "the function on the server writes, so it is not the library's", deployIt},
	{"ERR wrong number of arguments for", typeBadArgs, badForm, ""},
	{"ERR Bad number of keys", typeBadArgs, badForm, ""},
	{"ERR Number of keys", typeBadArgs, badForm, ""},
	{"CROSSSLOT", typeCrossSlot, "the keys are in different hash slots", sameTag},
	{"NOPERM", typeNoPermission, "the user lacks a right to the function, to a command that it calls, or to a key", grant},
	{"ERR The user executing the script", typeNoPermission, noCommand, grant},
	{"ERR ACL failure in script", typeNoPermission, noCommand, grant},
	{"NOAUTH", typeNoPermission, "the server requires a password", "write redis://:PASSWORD@host:port, or set Password in the options of the Redis client"},
	{"WRONGPASS", typeNoPermission, "the server refuses the login", "check the user name and the password"},
	{"READONLY", typeUnavailable, "the server is a read-only replica", "connect to its primary"},
	{"OOM", typeUnavailable, "the server is out of memory", "raise its maxmemory or free memory"},
	{"BUSY", typeUnavailable, "the server is busy with a script", tryLater},
	{"LOADING", typeUnavailable, "the server is still loading its data", tryLater},
	{"MASTERDOWN", typeUnavailable, "the server has lost its primary", tryLater},
	{"NOREPLICAS", typeUnavailable, "the server has too few replicas to accept writes", tryLater},
	{"CLUSTERDOWN", typeUnavailable, "the cluster does not serve these keys now", tryLater},
	{"TRYAGAIN", typeUnavailable, "the cluster is moving these keys", tryLater},
	{"MOVED", typeUnavailable, redirected, useCluster},
	{"ASK", typeUnavailable, redirected, useCluster},
	{"MISCONF", typeUnavailable, "the server cannot save its data and so accepts no writes", "read its log"},
	{"ERR max number of clients reached", typeUnavailable, "the server has too many connections", "raise its maxclients or use fewer connections"},
}

const (
	badForm    = "the server rejects the form of the call, which something on the way must have changed"
	noCommand  = "the user lacks a right to a command that the function calls"
	redirected = "the server is part of a cluster and does not have these keys"

	deployIt   = "deploy the library with: ratelimit deploy, or with package loader"
	grant      = "grant the user the rules that acl.Rules returns"
	useCluster = "write redis+cluster:// in its URL, or use redis.NewClusterClient"
	sameTag    = "give all keys of one call the same hash tag, such as {user:42}"
	tryLater   = "try again later"
)

// sortReply classifies an error reply. writes is true if the call is not read-only.
func (e *Error) sortReply(text string, writes bool) {
	own, isOwn := strings.CutPrefix(text, "RATELIMIT ")
	e.Code, _, _ = strings.Cut(own, " ")
	for _, r := range replies {
		if strings.HasPrefix(text, r.prefix) && (strings.Contains(r.prefix, " ") || e.Code == r.prefix) {
			e.kind, e.sentence, e.Remedy = r.kind, r.sentence+" ("+text+")", r.remedy
			if r.sentence == noCommand {
				e.doubt(writes)
			}
			return
		}
	}
	if isOwn {
		e.kind, e.sentence = refusals[e.Code], own
		return
	}
	e.sentence = "the server answered: " + text
	e.doubt(writes)
}
