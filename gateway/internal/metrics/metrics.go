// Package metrics counts the decisions of the gateway for Prometheus.
package metrics

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics holds the counters of the process. Its methods may be called concurrently.
type Metrics struct {
	requests *prometheus.CounterVec
	classes  *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	reloads  *prometheus.CounterVec
	breakers *prometheus.GaugeVec
	held     *prometheus.CounterVec
	policies sync.Map // names of the policies that have made a decision, such as @api
	named    sync.Map // names of the policies with each class that has got a decision
	nNamed   atomic.Int64
	counters sync.Map // cache of the counters in requests, with keys of type counted; saves a lookup by labels
}

type counted struct{ source, name, decision string }

// New registers the metrics.
func New(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: counters("ratelimit_gateway_requests_total",
			"Decisions by source (grpc, check, api), name (a policy or a rule) and decision.", "source", "name", "decision"),
		classes: counters("ratelimit_gateway_class_requests_total",
			"Decisions on requests that name a class, by source, policy, class and decision (allowed, denied).", "source", "name", "class", "decision"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ratelimit_gateway_request_seconds",
			Help:    "Time to answer, by source.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .015, .02, .05, .1, .5},
		}, []string{"source"}),
		reloads: counters("ratelimit_gateway_config_reloads_total", "Times that rules were loaded from files or xDS, by result (ok, error).", "result"),
		breakers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ratelimit_gateway_breaker_open",
			Help: "1 if the circuit breaker of a Redis node is open.",
		}, []string{"node"}),
		held: counters("ratelimit_gateway_reservations_total",
			"Reservations by event (reserved, denied, committed, repeated, late, unknown, reported, given_back).", "event"),
	}
	registry.MustRegister(m.requests, m.classes, m.seconds, m.reloads, m.breakers, m.held)
	return m
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// Decided calls [Metrics.Count] and [Metrics.Took] for a request with one decision.
func (m *Metrics) Decided(source, name, decision string, began time.Time) {
	m.Count(source, name, decision)
	m.Took(source, began)
}

// Took observes the time to answer a request.
func (m *Metrics) Took(source string, began time.Time) {
	m.seconds.WithLabelValues(source).Observe(time.Since(began).Seconds())
}

// Count counts a decision. decision is a word such as "allowed", "denied" or "error". name is a
// policy, such as "@api", or a string that requests cannot choose. Requests can name any policy,
// and each name takes memory. So the errors of a policy without a decision count as "unknown".
func (m *Metrics) Count(source, name, decision string) {
	if strings.HasPrefix(name, "@") {
		if _, known := m.policies.Load(name); !known {
			if decision == "error" {
				name = "unknown"
			} else {
				m.policies.Store(name, true)
			}
		}
	}
	key := counted{source, name, decision}
	counter, found := m.counters.Load(key)
	if !found {
		counter, _ = m.counters.LoadOrStore(key, m.requests.WithLabelValues(source, name, decision))
	}
	counter.(prometheus.Counter).Inc()
}

// mostClasses is the maximum number of classes, each under one policy, that have their own series.
const mostClasses = 256

// Class counts a decision on a request that names a class of a policy. A class that has not got a
// decision may not exist, and under `classes: any` requests can name any. So errors are not counted
// here, and classes above mostClasses count as "other".
func (m *Metrics) Class(source, name, class, decision string) {
	if class == "" || decision == "error" {
		return
	}
	pair := [2]string{name, class}
	if _, known := m.named.Load(pair); !known {
		if m.nNamed.Load() >= mostClasses {
			class = "other"
		} else if _, known := m.named.LoadOrStore(pair, nil); !known {
			m.nNamed.Add(1)
		}
	}
	m.classes.WithLabelValues(source, name, class, decision).Inc()
}

// Reloaded counts an attempt to load the configuration files.
func (m *Metrics) Reloaded(err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.reloads.WithLabelValues(result).Inc()
}

// Reservation counts what happened to a reservation. event is a word of package holds.
func (m *Metrics) Reservation(event string) { m.held.WithLabelValues(event).Inc() }

// Breaker records whether the circuit breaker of a node is open.
func (m *Metrics) Breaker(node string, open bool) {
	value := 0.0
	if open {
		value = 1
	}
	m.breakers.WithLabelValues(node).Set(value)
}
