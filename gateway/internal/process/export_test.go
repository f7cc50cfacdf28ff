package process

import "google.golang.org/grpc/keepalive"

// Lifetimes says when gRPC connections are closed.
var Lifetimes = lifetimes

// WithConnections returns options with other bounds of gRPC connections.
func (o Options) WithConnections(bounds keepalive.ServerParameters) Options {
	o.connections = bounds
	return o
}

// WithSteps returns options that call step before each step of the shutdown.
func (o Options) WithSteps(step func(step string)) Options {
	o.step = step
	return o
}

// Steps of the shutdown, for tests.
const (
	StepUnready    = stepUnready
	StepStreams    = stepStreams
	StepDrain      = stepDrain
	StepBackground = stepBackground
	StepSettle     = stepSettle
	StepClose      = stepClose
)
