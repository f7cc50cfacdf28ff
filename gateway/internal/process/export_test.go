package process

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
