// Package loader puts the ratelimit library on Redis and Valkey servers, and tells which of them run it.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
//	l, err := loader.New(rdb)
//	...
//	build, err := functions.New()
//	...
//	report, err := l.Deploy(ctx, build)
//
// Redis keeps a library on each primary by itself: in a cluster nothing carries it from one shard to the next. A Loader
// finds out whether it talks to one server or to a cluster, from any one node, and then works on every primary, found anew each time, also on
// one that holds no slots yet. Replicas receive the library from their primary.
//
//   - [Loader.Plan] tells what a deployment would change, [Loader.Status] what each primary runs.
//   - [Loader.Deploy] makes all primaries run a build, or leaves all as they were, and keeps on the servers what it replaced.
//   - [Loader.Rollback] goes back to that, from anywhere. [Loader.Delete] takes the library away.
//   - [Loader.Watch] loads the build again where it got lost, and never an older one over a newer one.
//   - [Loader.Repair] does so once, and [Healer] from within a client.
//   - [Loader.Doctor] finds what about the servers will hurt later, and [Rules] the least rights that a user needs.
//
// A server stores a library byte for byte. What a server runs is therefore compared by the SHA-256 of the whole text, and
// a server that already runs the build is left alone. Two deployments to the same servers are kept apart by a lease on one of them.
//
// Every command has a deadline of its own ([WithTimeout]), and every failure ends in one sentence that names the server
// and says what to do; see [NodeError]. docs/deploying.md tells all of it at length, with the commands.
//
// A deployer's user needs the rights that [Rules] gives for a [Deployer], and no keys.
package loader
