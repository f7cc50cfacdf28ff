// Package embedded is a Redis server within a Go process, with Redis
// Functions: for tests without Redis and without Docker, and for trying a
// library out.
//
//	srv := embedded.Run(t, embedded.WithLibrary(text), embedded.WithTime(start))
//	client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
//	...
//	srv.Advance(time.Minute)
//
// It speaks RESP2 and RESP3 to any client. FUNCTION LOAD, LIST, DELETE, FLUSH
// and STATS, FCALL and FCALL_RO behave as on Redis 7: the library text is run
// by gopher-lua, made to behave as the Lua 5.1 inside Redis does, and the
// commands that functions call run on miniredis. A command, a transaction or a
// function call is never interleaved with another connection's. The clock can
// be stopped, set and moved (SetTime, Advance); keys expire by it, to the
// millisecond, as on Redis.
//
// # What it is stricter about
//
// A function may only touch keys that it was given in KEYS: a standalone Redis
// does not check that, a cluster breaks. A function that runs for more than
// five seconds is cut off with an error, where Redis would be BUSY.
//
// # What differs from Redis
//
// Functions see version 7.2.4: time stands still during a call, and numbers
// given to redis.call are written in their shortest form (Redis 7.0 writes
// "%.17g"). There is no EVAL, no DUMP and RESTORE, no MEMORY, no ACL, no
// cluster, no replication, no persistence; redis.setresp(3) is refused. The
// order of pairs over a table's hash part is that of insertion, and # of a
// table with holes may give another of its borders than PUC Lua does.
package embedded
