// Package otellimit reports calls made with package client to OpenTelemetry, as metrics and spans.
//
//	observer, err := otellimit.New()
//	...
//	limiter, err := client.Open(url, client.WithObserver(observer))
//
// The metrics, with their attributes after the colon, are
//
//	db.client.operation.duration    histogram of the duration of calls to a server with their
//	                                retries, in seconds: db.system.name, db.operation.name (FCALL or
//	                                FCALL_RO), db.stored_procedure.name; for failed calls also
//	                                error.type and db.response.status_code
//	ratelimit.client.decisions      number of calls that were decided, by a server or by the client,
//	                                or that failed:
//	                                ratelimit.operation (take, peek, refund, acquire or renew),
//	                                ratelimit.outcome (allowed, denied, error, or misconfigured for
//	                                client.ErrMisconfigured), ratelimit.source (server, local,
//	                                policy and so on; not for failed calls), ratelimit.policy
//	                                (client.Observation.Policy; only for calls with a policy),
//	                                ratelimit.class (client.Observation.Class; only for calls with a
//	                                class), and error.type if no server decided
//	ratelimit.client.breaker.open   number of circuit breakers in this process that are open or
//	                                half-open: server.address
//
// The first metric, and the attributes that begin with db, error and server, are stable names of
// the semantic conventions, version 1.41; the conventions have no names for the rest. Attributes
// never contain keys, limits or the text of errors.
//
// A span is of kind client, has the attributes of the histogram, ratelimit.outcome,
// ratelimit.policy and ratelimit.class, and a name such as "FCALL ratelimit_take". It is created after the call,
// so any spans of the Redis client are its siblings.
package otellimit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/sony/gobreaker/v2"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/internal/adapter"
)

const scope = "github.com/ratelimit-functions/ratelimit/client/otellimit"

// An Option sets where metrics and spans go. [New] returns an error if an option is invalid or given twice.
type Option func(*observer) error

// WithMeterProvider sends metrics to provider instead of the global one. To turn metrics off, use
// the provider of package go.opentelemetry.io/otel/metric/noop.
func WithMeterProvider(provider metric.MeterProvider) Option {
	return func(o *observer) error {
		if o.meters != nil {
			return errors.New("WithMeterProvider is given twice; give it once")
		}
		return adapter.Set(&o.meters, provider, "WithMeterProvider(nil); give a provider, or leave it out for the global one")
	}
}

// WithTracerProvider sends spans to provider instead of the global one. To turn spans off, use the
// provider of package go.opentelemetry.io/otel/trace/noop.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return func(o *observer) error {
		if o.tracers != nil {
			return errors.New("WithTracerProvider is given twice; give it once")
		}
		return adapter.Set(&o.tracers, provider, "WithTracerProvider(nil); give a provider, or leave it out for the global one")
	}
}

type observer struct {
	meters  metric.MeterProvider
	tracers trace.TracerProvider

	tracer    trace.Tracer
	duration  metric.Float64Histogram
	decisions metric.Int64Counter
	open      metric.Int64UpDownCounter
}

// New returns an observer for client.WithObserver. It can serve any number of clients.
func New(opts ...Option) (client.Observer, error) {
	o := &observer{}
	if err := adapter.Apply(o, opts); err != nil {
		return client.Observer{}, wrong(err)
	}
	if o.meters == nil {
		o.meters = otel.GetMeterProvider()
	}
	if o.tracers == nil {
		o.tracers = otel.GetTracerProvider()
	}
	o.tracer = o.tracers.Tracer(scope)
	meter := o.meters.Meter(scope)
	var err1, err2, err3 error
	o.duration, err1 = meter.Float64Histogram("db.client.operation.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of database client operations."),
		metric.WithExplicitBucketBoundaries(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)) // as in the semantic conventions
	o.decisions, err2 = meter.Int64Counter("ratelimit.client.decisions", metric.WithUnit("{decision}"),
		metric.WithDescription("Decisions of rate limits, and calls without one."))
	o.open, err3 = meter.Int64UpDownCounter("ratelimit.client.breaker.open", metric.WithUnit("{breaker}"),
		metric.WithDescription("Circuit breakers that keep calls from a node."))
	if err := errors.Join(err1, err2, err3); err != nil {
		return client.Observer{}, wrong(err)
	}
	return client.Observer{Call: o.call, Breaker: o.breaker}, nil
}

func wrong(err error) error { return fmt.Errorf("ratelimit: otellimit.New: %w", err) }

// decisions lists the operations that make a decision unless they fail.
var decisions = []string{"take", "peek", "refund", "acquire", "renew"}

func (o *observer) call(ctx context.Context, call client.Observation) {
	own := []attribute.KeyValue{attribute.String("ratelimit.outcome", string(call.Outcome))}
	if call.Policy != "" {
		own = append(own, attribute.String("ratelimit.policy", call.Policy))
	}
	if call.Class != "" {
		own = append(own, attribute.String("ratelimit.class", call.Class))
	}
	if call.Outcome != "done" && slices.Contains(decisions, call.Op) {
		attrs := append([]attribute.KeyValue{attribute.String("ratelimit.operation", call.Op)}, own...)
		if call.Outcome == "allowed" || call.Outcome == "denied" {
			attrs = append(attrs, attribute.String("ratelimit.source", call.Source))
		}
		if call.Err != nil {
			attrs = append(attrs, semconv.ErrorTypeKey.String(call.ErrorType))
		}
		o.decisions.Add(ctx, 1, metric.WithAttributes(attrs...))
	}
	if !wasSent(call) {
		return
	}
	attrs := operation(call)
	o.duration.Record(ctx, call.Duration.Seconds(), metric.WithAttributes(attrs...))
	name := attrs[1].Value.AsString() + " " + attrs[2].Value.AsString()
	_, span := o.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(call.Began),
		trace.WithAttributes(attrs...), trace.WithAttributes(own...))
	if call.Err != nil {
		span.SetStatus(codes.Error, call.ErrorType) // not the error's text, which contains keys
	}
	span.End(trace.WithTimestamp(call.Began.Add(call.Duration)))
}

// wasSent reports whether the call counts as sent to a server. It returns false only if a circuit
// breaker stopped the call or if this process decided without trying a server.
func wasSent(call client.Observation) bool {
	return !errors.Is(call.Err, gobreaker.ErrOpenState) && (call.Err != nil || call.Source == "server")
}

// operation returns the attributes of a call as a database operation: its system, command, function
// and error.
func operation(call client.Observation) []attribute.KeyValue {
	command, function := "FCALL", call.Op
	switch function {
	case "peek", "usage", "info":
		command = "FCALL_RO"
	case "check":
		command, function = "FCALL_RO", "info"
	}
	attrs := []attribute.KeyValue{
		semconv.DBSystemNameRedis,
		semconv.DBOperationName(command),
		semconv.DBStoredProcedureName("ratelimit_" + function),
	}
	if call.Err != nil {
		attrs = append(attrs, semconv.ErrorTypeKey.String(call.ErrorType))
		if e, ok := errors.AsType[*client.Error](call.Err); ok && e.Code != "" {
			attrs = append(attrs, semconv.DBResponseStatusCode(e.Code))
		}
	}
	return attrs
}

func (o *observer) breaker(node, from, to string) {
	var n int64
	switch {
	case from == "closed":
		n = 1
	case to == "closed":
		n = -1
	default: // the change is between open and half-open
		return
	}
	attrs := []attribute.KeyValue{semconv.ServerAddress(node)}
	if host, port, err := net.SplitHostPort(node); err == nil {
		if number, err := strconv.Atoi(port); err == nil {
			attrs = []attribute.KeyValue{semconv.ServerAddress(host), semconv.ServerPort(number)}
		}
	}
	o.open.Add(context.Background(), n, metric.WithAttributes(attrs...))
}
