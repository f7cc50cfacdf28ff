// Package sharing lets benchmarks and a test make clients whose calls never share round trips.
package sharing

import "sync/atomic"

// Above is the number of concurrent calls to a server above which calls of a new client share round
// trips; 0 means the client's own number. Whoever sets it does so only for as long as it makes a client. Others may make clients at the same time.
var Above atomic.Int64
