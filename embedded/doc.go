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
// by gopher-lua, and the commands that functions call run on miniredis. A
// command, a transaction or a function call is never interleaved with another
// connection's. The clock can be stopped, set and moved (SetTime, Advance);
// keys expire by it, to the millisecond, as on Redis.
//
// # What differs from Redis
//
// In Lua, docs/offline.md lists it, with examples. What gopher-lua would run
// otherwise than Redis is put right or refused, by FUNCTION LOAD with the line
// in question, or by the call. A function may only touch keys that it was given
// in KEYS: a standalone Redis does not check that, a cluster breaks.
//
// No function ends the process: one that runs for more than five seconds, makes the heap of the process grow by more than a GiB, or
// makes a string of more than 64 MiB, ends with an error. A library's text has
// half a second.
//
// Functions see version 7.2.4: time stands still during a call, and numbers
// given to redis.call are written in their shortest form (Redis 7.0 writes
// "%.17g"). There is no EVAL, no DUMP and RESTORE, no MEMORY, no ACL, no
// cluster, no replication, no persistence, and no log: redis.log checks its
// arguments and writes nothing. The commands are those of Redis 7.0 that
// miniredis has.
//
// Everything else is held, reply by reply, against what Redis 7.0, Redis 8.0
// and Valkey 8.1 answer: testdata/conformance.json.
//
// # In a program
//
// Do runs a command without the network, so that a program can ask at times of
// its choosing: SetTime, then Do. A server runs one call at a time; for more,
// start several and spread the keys over them by their hash, as
// BenchmarkDecisions does. A larger GOGC helps: functions make much garbage.
package embedded
