package embedded

import "time"

// Option changes how a server starts.
type Option func(*options)

type options struct {
	addr      string
	start     time.Time
	libraries []string
	cluster   bool
}

// WithAddr sets the address to listen on; "127.0.0.1:0", a free port, is the
// default.
func WithAddr(addr string) Option { return func(o *options) { o.addr = addr } }

// WithTime stops the clock at t from the start; see Server.SetTime.
func WithTime(t time.Time) Option { return func(o *options) { o.start = t } }

// WithLibrary loads a library at the start. It may be given several times.
func WithLibrary(text string) Option {
	return func(o *options) { o.libraries = append(o.libraries, text) }
}

// WithClusterRules refuses a command or a function call whose keys are in
// different hash slots, as a Redis Cluster does.
func WithClusterRules() Option { return func(o *options) { o.cluster = true } }
