package loader

import (
	"cmp"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/protocol"
	"github.com/ratelimit-functions/ratelimit/policies"
)

const (
	defaultTimeout  = 5 * time.Second
	defaultInterval = 500 * time.Millisecond
)

// Config configures a [Loader]. Its zero value is usable.
type Config struct {
	// Timeout is the maximum time for one step on one node: a command and its reply, including
	// connecting. 0 means 5 s.
	Timeout time.Duration

	// Interval is how long [Loader.Watch] waits between two rounds. 0 means 500 ms.
	Interval time.Duration

	// Namespace makes the Loader work for the policies of one namespace, whose names begin with it and
	// a slash. Deploy, Plan, Status, Watch, Repair and Rollback then change and compare only these
	// policies. The library's code and all other policies stay as they are on the nodes. If no node has
	// the library, Deploy also loads the code of the build. Deploy and Rollback wait for another
	// deployment to finish, unless Options.Wait says otherwise.
	//
	// If it is empty, the Loader works for the code and the policies that have no namespace, and keeps
	// the policies of all namespaces.
	Namespace string

	// Trace is called before each command is sent to a node, by the goroutine that sends it. Use it
	// for logs, and for tests that act between two commands. command is such as "FUNCTION LOAD
	// ratelimit", in which the library's name replaces its source code. Several goroutines may call
	// Trace at the same time.
	Trace func(addr, command string)

	// Steps is called for each step of the protocol. Tests check the steps with [protocol.Check].
	// Several goroutines may call Steps at the same time.
	Steps func(protocol.Step)

	clock   clock
	effects func(library string, changes [][2]functions.Policy) ([]functions.Effect, error) // policies.Effects, unless a test sets it
}

// Loader deploys to, and inspects, the servers that a go-redis client points to. Make one with
// [New]; the zero value is not usable. It keeps no state between calls and is safe for concurrent
// use.
type Loader struct {
	config Config
	from   nodes.Origin
}

// clock is the machine's clock, or that of a test.
type clock struct {
	now   func() time.Time
	after func(time.Duration) <-chan time.Time
}

// New returns a Loader for the servers that rdb points to. rdb is a *redis.Client (also one made by
// NewFailoverClient), which may point to any node of a cluster, a *redis.ClusterClient, or a
// *redis.Ring, whose shards are treated as independent servers. The Loader takes addresses, user,
// password, TLS settings and dialer from rdb. Each call opens and closes its own connections. rdb
// itself is neither used nor closed, and its timeouts and retries are ignored. New sends nothing.
//
// New fails if rdb is nil, has none of these types or has no address, or if c is invalid.
func New(rdb redis.UniversalClient, c Config) (*Loader, error) {
	from, err := nodes.Of(rdb)
	switch {
	case err != nil:
	case c.Timeout < 0:
		err = fmt.Errorf("the timeout %v is below 0; give one such as 5s", c.Timeout)
	case c.Interval < 0:
		err = fmt.Errorf("the interval %v is below 0; give one such as 500ms", c.Interval)
	case c.Namespace != "":
		err = functions.CheckNamespace(c.Namespace)
	}
	if err != nil {
		return nil, fmt.Errorf("loader.New: %w", err)
	}
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.Interval = cmp.Or(c.Interval, defaultInterval)
	if c.clock.now == nil {
		c.clock = clock{time.Now, time.After}
	}
	if c.effects == nil {
		c.effects = policies.Effects
	}
	return &Loader{c, from}, nil
}

// Options allows what a call refuses otherwise. A call ignores the fields that do not concern it.
type Options struct {
	// AllowDowngrade lets an older version replace a newer one, and a lower contract a higher one.
	AllowDowngrade bool

	// RemovePolicies lets a build without some of the current policies replace the current build.
	// Calls that name a removed policy then fail.
	RemovePolicies bool

	// DenyKeysInUse lets a build replace the current one even if a changed policy would deny keys in
	// use until their state expires, or would require a different number of keys.
	DenyKeysInUse bool

	// ReplaceForeign lets a deployment replace, and Delete delete, an unrelated library of the same
	// name.
	ReplaceForeign bool

	// Wait is how long a call waits for another deployment to finish, before it fails with
	// [ErrLeased]. If it is 0, the call fails at once or, in a namespace (Config.Namespace), waits for
	// four times as long as a lease lasts. If it is below 0, the call fails at once.
	Wait time.Duration
}
