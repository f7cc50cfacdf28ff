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
// cluster, no replication, no persistence, and no log: redis.log checks its
// arguments and writes nothing. redis.setresp(3) is refused. The
// commands are those of Redis 7.0 that miniredis has.
//
// In Lua, these remain: pairs goes over the hash part of a table in the order
// of insertion; # of a table with holes may give another of its borders;
// negative zero does not keep its sign through arithmetic; ^ with a fractional
// exponent, math.exp and their kind may differ in the last digit; next does not
// notice a key that was never in the table; collectgarbage counts nothing. What
// cannot be done as Redis does it is refused with a message that says so:
// string.dump, a table's __len, table.insert past the end, and two functions
// whose names differ only in case.
//
// Everything else is held, reply by reply, against what Redis 7.0, Redis 8.0
// and Valkey 8.1 answer: testdata/conformance.json.
package embedded
