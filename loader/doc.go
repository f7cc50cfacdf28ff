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
// finds out whether it talks to one server or to a cluster, from any one node, and then works on every primary, also on
// one that holds no slots yet. Replicas receive the library from their primary.
//
// A server stores a library byte for byte. What a server runs is therefore compared by the SHA-256 of the whole text, and
// a server that already runs the build is left alone.
//
// Every command has a deadline of its own ([WithTimeout]), and every failure ends in one sentence that names the server
// and says what to do; see [NodeError].
//
// A deployer's user needs the rights +function|load +function|list +function|delete +function|stats, in a cluster
// +cluster|shards as well, and no keys.
package loader
