package embedded

import "time"

// Option changes how a server starts.
type Option func(*options)

type options struct {
	addr      string
	start     time.Time
	libraries []string
	logger    func(LogLevel, string)
	callLimit time.Duration
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

// WithLogger receives what functions write with redis.log. It is called while
// the server is locked, and must not call the server.
func WithLogger(log func(level LogLevel, text string)) Option {
	return func(o *options) { o.logger = log }
}

// WithCallLimit sets after how much time a function call is cut off, instead
// of 5 seconds. It must be above zero.
func WithCallLimit(d time.Duration) Option { return func(o *options) { o.callLimit = d } }

// WithClusterRules refuses a command or a function call whose keys are in
// different hash slots, as a Redis Cluster does.
func WithClusterRules() Option { return func(o *options) { o.cluster = true } }

// LogLevel is the level of a redis.log line.
type LogLevel int

// The levels of redis.log.
const (
	LogDebug LogLevel = iota
	LogVerbose
	LogNotice
	LogWarning
)
