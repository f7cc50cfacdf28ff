// Package loader puts the ratelimit library on Redis and Valkey servers, and reports which of them
// run it.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
//	l, err := loader.New(rdb, loader.Config{})
//	...
//	build, err := functions.New()
//	...
//	report, err := l.Deploy(ctx, build, loader.Options{})
//
// Each primary keeps its own library: in a cluster, Redis does not copy it to the other shards. A
// Loader finds out from any one node whether it talks to one server or to a cluster. Each call then
// discovers all primaries and works on every one, including primaries without slots. Replicas
// receive the library from their primary.
//
//   - [Loader.Plan] returns what a deployment would change.
//   - [Loader.Status] returns what each primary runs, compared with a build or with the last
//     deployment. [Loader.History] returns the last deployments.
//   - [Loader.Deploy] makes all primaries run a build, or leaves all as they were. The servers keep
//     the build that it replaced.
//   - [Loader.Rollback] restores the replaced build, from any machine, and [Loader.PlanRollback]
//     returns what a rollback would change.
//   - [Loader.Delete] deletes the library.
//   - [Loader.Watch] reloads what was deployed last on servers that lost it.
//   - [Loader.Repair] does one round of such repairs, and [Healer] lets a client do one.
//
// Below it are package nodes, which finds the servers, talks to each of them and has the errors about
// them; doctor, which finds problems with the servers; acl, with the rules for users; text, which
// reads and writes what a server holds; and protocol, which checks that deployments followed the
// rules of PROTOCOL.md.
//
// A server stores a library byte for byte. A deployment puts a header of comment lines in front of
// the build. A lease on every primary prevents two deployments from running at the same time. deploy.go,
// watch.go and rollback.go are short programs of the rules in PROTOCOL.md, in their order.
//
// Several teams can deploy to the same servers: a Loader with Config.Namespace replaces the policies
// of one namespace, and keeps everything else.
//
// Every command has its own deadline (Config.Timeout). Every failure is reported in one sentence that
// names the server and says what to do; see nodes.Error. docs/deploying.md describes all of this in
// detail, with the commands.
//
// The user that deploys needs the permissions that acl.Rules returns for an acl.Deployer, and no
// access to keys.
package loader
