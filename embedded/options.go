package embedded

import "time"

// Option configures a server.
type Option func(*options)

type options struct {
	addr      string
	start     time.Time
	libraries []string
	cluster   bool
}

// WithAddr sets the address to listen on. The default is "127.0.0.1:0", a free port.
func WithAddr(addr string) Option { return func(o *options) { o.addr = addr } }

// WithTime starts the server with its clock stopped at t. See Server.SetTime.
func WithTime(t time.Time) Option { return func(o *options) { o.start = t } }

// WithLibrary loads a library when the server starts. The option may be given several times.
func WithLibrary(text string) Option {
	return func(o *options) { o.libraries = append(o.libraries, text) }
}

// WithClusterRules makes the server reject commands and function calls whose keys are in different
// hash slots, as a Redis Cluster does.
func WithClusterRules() Option { return func(o *options) { o.cluster = true } }
