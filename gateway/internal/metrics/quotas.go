package metrics

import "github.com/prometheus/client_golang/prometheus"

// Quotas holds the metrics of the rate limit quota service. Its methods may be called concurrently.
type Quotas struct {
	streams, buckets     prometheus.Gauge
	assignments, refused *prometheus.CounterVec
	units                *prometheus.CounterVec
}

// NewQuotas registers the metrics.
func NewQuotas(registry prometheus.Registerer) *Quotas {
	q := &Quotas{
		streams:     gauge("ratelimit_gateway_rlqs_streams", "Envoys whose streams are open."),
		buckets:     gauge("ratelimit_gateway_rlqs_buckets", "Buckets of all streams; one for several Envoys."),
		assignments: counters("ratelimit_gateway_rlqs_assignments_total", "Assignments by kind (tokens, deny, allow, abandon), and error for none.", "kind"),
		units:       counters("ratelimit_gateway_rlqs_units_total", "Units by what happened to them (charged, used, refunded).", "kind"),
		refused:     counters("ratelimit_gateway_rlqs_refused_total", "What Envoys sent and was refused or cut, by what (message, bucket, usage).", "what"),
	}
	registry.MustRegister(q.streams, q.buckets, q.assignments, q.units, q.refused)
	return q
}

// Streams adds to the number of open streams.
func (q *Quotas) Streams(n int) { q.streams.Add(float64(n)) }

// Buckets sets the number of buckets.
func (q *Quotas) Buckets(n int) { q.buckets.Set(float64(n)) }

// Assigned counts an assignment.
func (q *Quotas) Assigned(kind string) { q.assignments.WithLabelValues(kind).Inc() }

// Units counts units that were charged, used or refunded.
func (q *Quotas) Units(kind string, n int64) { q.units.WithLabelValues(kind).Add(float64(n)) }

// Refused counts a message or a bucket that was refused.
func (q *Quotas) Refused(what string) { q.refused.WithLabelValues(what).Inc() }
