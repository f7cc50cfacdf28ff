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
// Functions see version 7.2.4: time stands still during a call, and numbers
// given to redis.call are written in their shortest form (Redis 7.0 writes
// "%.17g"). There is no EVAL, no DUMP and RESTORE, no MEMORY, no ACL, no
// cluster, no replication, no persistence, and no log: redis.log checks its
// arguments and writes nothing. Nobody can SUBSCRIBE, XREAD does not BLOCK, and
// keys stay in their database: no MOVE, SWAPDB and COPY DB. The commands are
// those of Redis 7.0 that miniredis has; COMMAND lists those of Redis 5.
//
// Everything else is held against Redis 7.0, Redis 8.0 and Valkey 8.1, reply by
// reply (testdata/conformance.json) and byte by byte (testdata/protocol.json).
//
// # What it withstands
//
// No function ends the process: one that runs for more than five seconds, makes
// the heap of the process grow by more than a GiB, or makes a string of more
// than 64 MiB, ends with an error, at the latest when the command or the string
// operation that it is in is done. A library's text has five seconds to run,
// ten times what Redis gives it, and at most 3 MiB, 1048576 words and signs and
// 8192 functions. To read it takes some seconds and some hundred MiB of memory at
// most.
//
// A connection takes less than 32 KiB while nothing runs, and memory for what
// it sends as that arrives, whatever length it announces. A malformed request
// is refused as by Redis, and ends its connection. Replies that a client does
// not read wait, up to 64 MiB, for which Go's heap may have twice as much; then
// its commands wait. A reply above 64 MiB is an error, and so is an offset or a
// count above 4194304 where miniredis would take memory or time for the number:
// in SETRANGE, SETBIT, SPOP, LPOS, SRANDMEMBER, HRANDFIELD and ZRANDMEMBER. A
// fault of miniredis is an error reply. Close waits for the function that runs;
// calls that wait get an error.
//
// # In a program
//
// Do runs a command without the network, so that a program can ask at times of
// its choosing: SetTime, then Do. A server runs one call at a time; for more,
// start several and spread the keys over them by their hash, as
// BenchmarkDecisions does. A larger GOGC helps: functions make much garbage.
//
// # Where things are
//
//	server.go      Start, Run, Close
//	do.go          Do: commands without the network
//	connection.go  a connection: its commands are read, its replies are sent
//	resp.go        how a command is read; reply.go: how a reply is written
//	dispatch.go    what happens to a command: checked, queued by MULTI, run
//	refusals.go    which commands are refused, and why
//	commands.go    all commands, and which run here; cmd_*.go: those
//	miniredis.go   how miniredis, which holds the keys, runs the others
//	fcall.go       where a function is called, and what it may call
//	functions.go   FUNCTION: libraries are loaded and listed
//	expiry.go      when keys expire, and where they are deleted
//	clock.go       the time: SetTime, Advance
//	internal/engine  libraries and calls of functions: load.go, call.go, budget.go for
//	                 time and memory, api.go for redis.call and what else Redis gives them
//	internal/lualib  Lua's own library where gopher-lua's returns other values
//	../internal/luasource  what gopher-lua compiles wrongly: put right, or refused
package embedded
