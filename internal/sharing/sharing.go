// Package sharing lets benchmarks and a test make clients whose calls never share round trips.
package sharing

import "sync/atomic"

// Above is the number of concurrent calls to a server above which calls of a new client share round
// trips. 0 means the client's own number. A benchmark or a test sets it, makes a client, and sets it
// back. Another test may make a client in between.
var Above atomic.Int64
