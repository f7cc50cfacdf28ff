// Package embedded implements an in-process Redis server with Redis Functions, for tests without
// Redis or Docker and for trying out libraries.
//
//	srv := embedded.Run(t, embedded.WithLibrary(text), embedded.WithTime(start))
//	client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
//	...
//	srv.Advance(time.Minute)
//
// The server speaks RESP2 and RESP3 to any client. FUNCTION LOAD, LIST, DELETE, FLUSH and STATS,
// FCALL and FCALL_RO behave as on Redis 7. gopher-lua runs the library's code, and miniredis runs
// the commands that functions call. A command, a transaction or a function call is never
// interleaved with those of another connection. The clock can be stopped, set and moved (SetTime,
// Advance, and DEBUG SET-TIME for clients). Keys expire by this clock, to the millisecond, as on
// Redis.
//
// # Differences from Redis
//
// docs/offline.md lists the differences in Lua, with examples. If gopher-lua would run code
// differently from Redis, the package corrects or rejects the code: FUNCTION LOAD returns an error
// with the line, or the call returns an error. A function may only access keys that are in its
// KEYS. A standalone Redis does not check this rule, but a cluster may refuse access to other keys.
//
// Functions see Redis version 7.2.4. The time does not change during a call, and numbers passed to
// redis.call are written in their shortest form (Redis 7.0 writes "%.17g"). There is no EVAL, no
// DUMP or RESTORE, no MEMORY, no ACL, no cluster, no replication, no persistence, and no log:
// redis.log checks its arguments and writes nothing. SUBSCRIBE is not available, and no
// command waits: no BLPOP, no XREAD. Keys cannot move to another database: there is no MOVE, no SWAPDB, and no COPY
// with the option DB. The commands are those of Redis 7.0 that miniredis implements; COMMAND lists
// those of Redis 5.
//
// Tests compare everything else with Redis 7.0, Redis 8.0 and Valkey 8.1, reply by reply
// (testdata/conformance.json) and byte by byte (testdata/protocol.json).
//
// # Limits
//
// No function can crash the process. A function ends with an error if it runs for more than thirty
// seconds, makes the heap of the process grow by more than a GiB, or makes a string of more than 64
// MiB. The function may first complete the current command or string operation. A library's code
// may run for thirty seconds when it is loaded; on Redis, for half a second. It may have at most 3
// MiB, 1048576 tokens, and 8192 functions. Parsing it takes at most a few seconds and a few hundred
// MiB of memory. The first server sets lua.MaxArrayIndex of gopher-lua to 4194304, for the whole
// process: larger indexes of a table are hashed.
//
// An idle connection takes less than 32 KiB. Memory for a request is allocated as its bytes arrive,
// regardless of the length that the request announces. A malformed request is rejected, as in
// Redis, and ends its connection. If a client does not read its replies, up to 64 MiB of them are
// buffered, which may take twice as much memory. Beyond 64 MiB, the client's commands wait. A
// reply above 64 MiB is an error. An offset or a count above 4194304 in SETRANGE, SETBIT, SPOP,
// LPOS, SRANDMEMBER, HRANDFIELD or ZRANDMEMBER is also an error, because miniredis would need
// memory or time in proportion to the number. A panic in miniredis becomes an error reply. Close
// waits for the running function; waiting calls get an error.
//
// # In a program
//
// Do runs a command without the network, so a program can make decisions at chosen times: SetTime,
// then Do. A server runs one call at a time. To run more, start several servers and distribute the
// keys over them by hash, as BenchmarkDecisions does. A larger GOGC helps, because functions
// produce a lot of garbage.
//
// # Files
//
//	server.go      Start, Run, Close
//	do.go          Do: commands without the network
//	connection.go  a connection: reads commands, sends replies
//	resp.go        reads commands; reply.go writes replies
//	dispatch.go    checks a command, queues it after MULTI, or runs it
//	refusals.go    the rejected commands, and why
//	commands.go    the table of all commands; cmd_*.go: those that run here
//	miniredis.go   passes the other commands to miniredis, which stores the keys
//	fcall.go       calls functions, and checks the commands that they call
//	functions.go   FUNCTION: loads and lists libraries
//	expiry.go      when keys expire; deletes them
//	clock.go       the time: SetTime, Advance, DEBUG SET-TIME
//	internal/engine  libraries and function calls: load.go, call.go, budget.go for
//	                 time and memory, api.go for redis.call and the rest of the Lua API
//	internal/lualib  Lua library functions whose results differ in gopher-lua
//	../internal/luasource  corrects or rejects what gopher-lua compiles wrongly
package embedded
