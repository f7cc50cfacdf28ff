package otellimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sony/gobreaker/v2"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
	"github.com/ratelimit-functions/ratelimit/client/otellimit"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must[T any](t testing.TB) func(T, error) T { return limitertest.Must[T](t) }

// telemetry is an observer with its recorded metrics and spans.
type telemetry struct {
	observer client.Observer
	reader   *sdkmetric.ManualReader
	spans    *tracetest.SpanRecorder
	tracers  *sdktrace.TracerProvider
}

func newTelemetry(t testing.TB) telemetry {
	t.Helper()
	reader, spans := sdkmetric.NewManualReader(), tracetest.NewSpanRecorder()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	observer := must[client.Observer](t)(otellimit.New(
		otellimit.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))), otellimit.WithTracerProvider(tracers)))
	return telemetry{observer, reader, spans, tracers}
}

func text(attrs attribute.Set) string {
	var parts []string
	for _, kv := range attrs.ToSlice() {
		parts = append(parts, string(kv.Key)+"="+kv.Value.String())
	}
	return strings.Join(parts, " ")
}

// points returns the metrics as lines: name, attributes, and count.
func (tel telemetry) points(t testing.TB) (lines []string) {
	t.Helper()
	var data metricdata.ResourceMetrics
	limitertest.Check(t, tel.reader.Collect(t.Context(), &data))
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch found := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range found.DataPoints {
					lines = append(lines, fmt.Sprintf("%s{%s} %d", m.Name, text(p.Attributes), p.Value))
				}
			case metricdata.Histogram[float64]:
				for _, p := range found.DataPoints {
					lines = append(lines, fmt.Sprintf("%s %s{%s} %d", m.Name, m.Unit, text(p.Attributes), p.Count))
				}
			default:
				t.Errorf("%s is a %T", m.Name, found)
			}
		}
	}
	slices.Sort(lines)
	return lines
}

func check(t *testing.T, got []string, want ...string) {
	t.Helper()
	got = slices.Sorted(slices.Values(got))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestCalls(t *testing.T) {
	tel := newTelemetry(t)
	server := embedded.Run(t, embedded.WithLibrary(functions.Source()), embedded.WithTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)))
	limiter := must[*client.Client](t)(client.Open("redis://"+server.Addr(), client.WithTimeout(time.Minute), client.WithObserver(tel.observer)))
	defer func() { _ = limiter.Close() }()
	ctx, parent := tel.tracers.Tracer("test").Start(t.Context(), "request")
	for range 3 {
		_ = must[client.Result](t)(limiter.Allow(ctx, "secret", "2/m"))
	}
	_ = must[client.Result](t)(limiter.Peek(ctx, client.For("secret", "2/m")))
	_ = must[int64](t)(limiter.Reset(ctx, "secret"))
	limitertest.Check(t, limiter.Check(ctx))
	if _, err := limiter.Allow(ctx, "secret", "nonsense"); err == nil {
		t.Fatal("no error")
	}
	parent.End()

	const db = "db.client.operation.duration s{db.operation.name="
	check(t, tel.points(t),
		"ratelimit.client.decisions{ratelimit.operation=take ratelimit.outcome=allowed ratelimit.source=server} 2",
		"ratelimit.client.decisions{ratelimit.operation=take ratelimit.outcome=denied ratelimit.source=server} 1",
		"ratelimit.client.decisions{ratelimit.operation=peek ratelimit.outcome=denied ratelimit.source=server} 1",
		"ratelimit.client.decisions{error.type=bad_limit ratelimit.operation=take ratelimit.outcome=misconfigured} 1",
		db+"FCALL db.stored_procedure.name=ratelimit_take db.system.name=redis} 3",
		db+"FCALL_RO db.stored_procedure.name=ratelimit_peek db.system.name=redis} 1",
		db+"FCALL db.stored_procedure.name=ratelimit_reset db.system.name=redis} 1",
		db+"FCALL_RO db.stored_procedure.name=ratelimit_info db.system.name=redis} 1",
		db+"FCALL db.response.status_code=BADLIMIT db.stored_procedure.name=ratelimit_take db.system.name=redis error.type=bad_limit} 1",
	)

	spans := tel.spans.Ended()
	if len(spans) != 8 {
		t.Fatalf("%d spans, want 7 and the parent's", len(spans))
	}
	var lines []string
	for _, span := range spans[:7] {
		lines = append(lines, span.Name())
		if span.SpanKind() != trace.SpanKindClient || span.Parent().SpanID() != parent.SpanContext().SpanID() || !span.EndTime().After(span.StartTime()) {
			t.Errorf("%s is of kind %v, below %v, from %v to %v", span.Name(), span.SpanKind(), span.Parent().SpanID(), span.StartTime(), span.EndTime())
		}
		if strings.Contains(text(attribute.NewSet(span.Attributes()...))+span.Status().Description, "secret") {
			t.Errorf("the key is in %v", span)
		}
	}
	check(t, lines, "FCALL ratelimit_take", "FCALL ratelimit_take", "FCALL ratelimit_take", "FCALL ratelimit_take", "FCALL ratelimit_reset", "FCALL_RO ratelimit_info", "FCALL_RO ratelimit_peek")
	if got := spans[6].Status(); got.Code != codes.Error || got.Description != "bad_limit" {
		t.Errorf("the last span has the status %v", got)
	}
	if got := spans[0].Status(); got.Code != codes.Unset {
		t.Errorf("the first span has the status %v", got)
	}
}

func TestBreakerAndFallback(t *testing.T) {
	tel := newTelemetry(t)
	limiter := must[*client.Client](t)(client.Open("redis://127.0.0.1:1", client.WithTimeout(time.Minute), client.WithFallback(client.FailOpen), client.WithObserver(tel.observer)))
	defer func() { _ = limiter.Close() }()
	for range 5 { // until the breaker opens
		_ = must[client.Result](t)(limiter.Allow(t.Context(), "k", "2/m"))
	}
	// Report a call that was not sent because the breaker was open.
	tel.observer.Call(t.Context(), client.Observation{Op: "take", Outcome: "allowed", Source: "fallback",
		Err: errors.Join(client.ErrUnavailable, gobreaker.ErrOpenState), ErrorType: "unavailable"})
	check(t, tel.points(t),
		"ratelimit.client.decisions{error.type=unavailable ratelimit.operation=take ratelimit.outcome=allowed ratelimit.source=fallback} 6",
		"db.client.operation.duration s{db.operation.name=FCALL db.stored_procedure.name=ratelimit_take db.system.name=redis error.type=unavailable} 5",
		"ratelimit.client.breaker.open{server.address=127.0.0.1 server.port=1} 1",
	)
	tel.observer.Breaker("127.0.0.1:1", "open", "half-open")
	tel.observer.Breaker("127.0.0.1:1", "half-open", "closed")
	tel.observer.Breaker("FailoverClient", "closed", "open")
	var open []string
	for _, line := range tel.points(t) {
		if strings.Contains(line, "breaker") {
			open = append(open, line)
		}
	}
	check(t, open, "ratelimit.client.breaker.open{server.address=127.0.0.1 server.port=1} 0", "ratelimit.client.breaker.open{server.address=FailoverClient} 1")
}

// A decision that this process makes alone is not a database operation.
func TestDecidedHere(t *testing.T) {
	tel := newTelemetry(t)
	tel.observer.Call(context.Background(), client.Observation{Op: "take", Outcome: "allowed", Source: "local"})
	check(t, tel.points(t), "ratelimit.client.decisions{ratelimit.operation=take ratelimit.outcome=allowed ratelimit.source=local} 1")
	if n := len(tel.spans.Ended()); n != 0 {
		t.Errorf("%d spans", n)
	}
}

// A call under a policy with classes has the attribute ratelimit.class, unless the policy lacks the class.
func TestClass(t *testing.T) {
	tel := newTelemetry(t)
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{
		Name: "api", Limits: []functions.PolicyLimit{{Limit: "2/d"}}, Classes: map[string]int{"batch": 50}})))
	server := embedded.Run(t, embedded.WithLibrary(build.Text()))
	limiter := must[*client.Client](t)(client.Open("redis://"+server.Addr(), client.WithTimeout(time.Minute), client.WithObserver(tel.observer)))
	defer func() { _ = limiter.Close() }()
	for _, class := range []string{"batch", "batch", "made-up", ""} {
		req := client.For("secret", "@api")
		req.Class = class
		_, _ = limiter.Take(t.Context(), req)
	}
	var decisions []string
	for _, line := range tel.points(t) {
		if strings.HasPrefix(line, "ratelimit") {
			decisions = append(decisions, line)
		}
	}
	check(t, decisions,
		"ratelimit.client.decisions{ratelimit.class=batch ratelimit.operation=take ratelimit.outcome=allowed ratelimit.policy=api ratelimit.source=server} 1",
		"ratelimit.client.decisions{ratelimit.class=batch ratelimit.operation=take ratelimit.outcome=denied ratelimit.policy=api ratelimit.source=server} 1",
		"ratelimit.client.decisions{error.type=bad_args ratelimit.operation=take ratelimit.outcome=misconfigured ratelimit.policy=api} 1",
		"ratelimit.client.decisions{ratelimit.operation=take ratelimit.outcome=allowed ratelimit.policy=api ratelimit.source=server} 1",
	)
}

// If a call has a policy, the decision counter and the span contain the policy's name. The
// histogram does not.
func TestPolicy(t *testing.T) {
	tel := newTelemetry(t)
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "1/d"}}})))
	server := embedded.Run(t, embedded.WithLibrary(build.Text()))
	limiter := must[*client.Client](t)(client.Open("redis://"+server.Addr(), client.WithTimeout(time.Minute), client.WithObserver(tel.observer)))
	defer func() { _ = limiter.Close() }()
	for range 2 {
		_ = must[client.Result](t)(limiter.Allow(t.Context(), "secret", "@api"))
	}
	if _, err := limiter.Allow(t.Context(), "secret", "@made-up"); err == nil {
		t.Fatal("no error")
	}
	check(t, tel.points(t),
		"ratelimit.client.decisions{ratelimit.operation=take ratelimit.outcome=allowed ratelimit.policy=api ratelimit.source=server} 1",
		"ratelimit.client.decisions{ratelimit.operation=take ratelimit.outcome=denied ratelimit.policy=api ratelimit.source=server} 1",
		"ratelimit.client.decisions{error.type=no_policy ratelimit.operation=take ratelimit.outcome=misconfigured} 1",
		"db.client.operation.duration s{db.operation.name=FCALL db.stored_procedure.name=ratelimit_take db.system.name=redis} 2",
		"db.client.operation.duration s{db.operation.name=FCALL db.response.status_code=NOPOLICY db.stored_procedure.name=ratelimit_take db.system.name=redis error.type=no_policy} 1",
	)
	for i, span := range tel.spans.Ended() {
		if got := text(attribute.NewSet(span.Attributes()...)); strings.Contains(got, "ratelimit.policy=api") != (i < 2) || strings.Contains(got, "made-up") {
			t.Errorf("span %d has %s", i, got)
		}
	}
}

// A call that makes no decision is not counted as a decision, even if it fails.
func TestErrorsOfOtherCalls(t *testing.T) {
	tel := newTelemetry(t)
	tel.observer.Call(t.Context(), client.Observation{Op: "reset", Outcome: "error", Err: client.ErrUnavailable, ErrorType: "unavailable"})
	check(t, tel.points(t), "db.client.operation.duration s{db.operation.name=FCALL db.stored_procedure.name=ratelimit_reset db.system.name=redis error.type=unavailable} 1")
}

func TestNewRefuses(t *testing.T) {
	for want, opt := range map[string]otellimit.Option{
		"WithMeterProvider(nil)": otellimit.WithMeterProvider(nil), "WithTracerProvider(nil)": otellimit.WithTracerProvider(nil), "an option is nil": nil,
	} {
		if _, err := otellimit.New(opt); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "ratelimit: otellimit.New") {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	for want, opt := range map[string]otellimit.Option{
		"WithMeterProvider is given twice; give it once":  otellimit.WithMeterProvider(noopmetric.NewMeterProvider()),
		"WithTracerProvider is given twice; give it once": otellimit.WithTracerProvider(nooptrace.NewTracerProvider()),
	} {
		if _, err := otellimit.New(opt, opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if o, err := otellimit.New(); err != nil || o.Call == nil || o.Breaker == nil {
		t.Errorf("with the global providers: %v, %v", o, err)
	}
}

// The providers that turn metrics and spans off are structs, not pointers.
func TestNoopProviders(t *testing.T) {
	observer, err := otellimit.New(otellimit.WithTracerProvider(nooptrace.NewTracerProvider()), otellimit.WithMeterProvider(noopmetric.NewMeterProvider()))
	if err != nil {
		t.Fatal(err)
	}
	observer.Call(t.Context(), client.Observation{Op: "take", Outcome: "allowed", Source: "server"})
}

func ExampleNew() {
	reader := sdkmetric.NewManualReader() // a program would use an exporter
	observer, err := otellimit.New(otellimit.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter, err := client.Open("redis://127.0.0.1:1", client.WithFallback(client.FailOpen), client.WithObserver(observer)) // nothing listens here
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()
	ctx := context.Background()
	if _, err := limiter.Allow(ctx, "user:42", "100/m"); err != nil {
		fmt.Println(err)
	}
	var data metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &data); err != nil {
		fmt.Println(err)
	}
	for _, m := range data.ScopeMetrics[0].Metrics {
		fmt.Println(m.Name)
	}
	// Output:
	// db.client.operation.duration
	// ratelimit.client.decisions
}
