package metrics

import "github.com/prometheus/client_golang/prometheus"

// XDS holds the metrics of the connection to an xDS server. Its methods may be called concurrently.
type XDS struct {
	connected prometheus.Gauge
	streams   prometheus.Counter
	answers   *prometheus.CounterVec
}

// NewXDS registers the metrics. A gateway without an xDS server has none of them.
func NewXDS(registry prometheus.Registerer) *XDS {
	x := &XDS{
		connected: gauge("ratelimit_gateway_xds_connected", "1 if there is a stream from the xDS server."),
		streams: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ratelimit_gateway_xds_streams_total",
			Help: "Streams opened to the xDS server.",
		}),
		answers: counters("ratelimit_gateway_xds_answers_total", "Answers of the xDS server, by result (ack, nack).", "result"),
	}
	registry.MustRegister(x.connected, x.streams, x.answers)
	for _, result := range []string{"ack", "nack"} {
		x.answers.WithLabelValues(result) // so that both are there before the first
	}
	return x
}

// Connected records that a stream was opened, or that there is none.
func (x *XDS) Connected(yes bool) {
	if !yes {
		x.connected.Set(0)
		return
	}
	x.connected.Set(1)
	x.streams.Inc()
}

// Answered counts an answer, which was put into use or refused.
func (x *XDS) Answered(good bool) {
	result := "nack"
	if good {
		result = "ack"
	}
	x.answers.WithLabelValues(result).Inc()
}
