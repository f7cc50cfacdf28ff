// Package sharing lets the benchmarks measure clients whose calls never share round trips.
package sharing

// Above is the number of concurrent calls to a server above which calls of a new client share round
// trips; 0 means the client's own number. Nothing but a benchmark sets it, before it makes a client.
var Above int64
