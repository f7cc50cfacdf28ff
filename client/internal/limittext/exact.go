package limittext

import "math"

// mostTicks is the longest debt that the library can count exactly. Lua's numbers are float64.
const mostTicks = 1 << 53

// fineness is the least ratio of an emission interval to the error of its rounded form.
const fineness = 1e9

// countable reports whether the library can count the debts of a limit of gcra or leaky_bucket. It
// calculates as functions/src/algorithms/gcra.lua does, in float64.
func countable(rates []Rate) bool {
	if len(rates) == 1 && rates[0].ms() >= float64(rates[0].N) && divides(rates[0], 1) {
		return true
	}
	for _, rate := range rates {
		if !divides(rate, 1000) && !rounds(rate) {
			return false
		}
	}
	return true
}

func (r Rate) ms() float64 { return float64(r.Period.Milliseconds()) }

// divides reports whether all debts of a rate can be counted in parts of its emission interval, on
// a clock with unitsPerMS units in a ms.
func divides(r Rate, unitsPerMS float64) bool {
	period := r.ms() * unitsPerMS
	a, b := period, float64(r.N)
	for b > 0 {
		a, b = b, math.Mod(a, b)
	}
	return 2*(period/a)*float64(r.Capacity) <= mostTicks
}

// rounds reports whether a fraction just above the emission interval can count all debts. It
// descends the Stern-Brocot tree.
func rounds(r Rate) bool {
	most := math.Floor(mostTicks / (2 * float64(r.Capacity)))
	low, lowTicks, below := 0.0, 1.0, r.ms()*1000
	high, highTicks, above := 1.0, 0.0, float64(r.N)
	for low+high <= most {
		steps := math.Floor(below / above)
		low, lowTicks, below = low+steps*high, lowTicks+steps*highTicks, below-steps*above
		steps = 0
		if below > 0 {
			steps = math.Floor(above / below)
			if low > 0 {
				steps = min(steps, math.Floor((most-high)/low))
			}
		}
		high, highTicks, above = high+steps*low, highTicks+steps*lowTicks, above-steps*below
	}
	return highTicks > 0 && above*fineness < r.ms()*1000*highTicks
}
