// Package monitoring exports the metrics of package client to Prometheus, with OpenTelemetry's exporter.
// dashboard.json is a dashboard for Grafana, and alerts.yaml has rules for Prometheus.
package monitoring

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/otellimit"
)

// New returns an observer for client.WithObserver and a handler for /metrics. Call stop when the program ends.
func New() (observer client.Observer, metrics http.Handler, stop func(context.Context) error, err error) {
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return client.Observer{}, nil, nil, err
	}
	// The default bucket boundaries of OpenTelemetry's conventions begin at 1 ms, but most
	// decisions take less.
	buckets := sdkmetric.NewView(
		sdkmetric.Instrument{Name: "db.client.operation.duration"},
		sdkmetric.Stream{Aggregation: sdkmetric.AggregationExplicitBucketHistogram{
			Boundaries: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		}})
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithView(buckets))
	observer, err = otellimit.New(otellimit.WithMeterProvider(provider))
	if err != nil {
		return client.Observer{}, nil, nil, err
	}
	return observer, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), provider.Shutdown, nil
}
