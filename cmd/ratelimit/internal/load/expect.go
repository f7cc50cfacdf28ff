package load

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/figures"
)

// An Expectation compares a metric of a report with a value, as in "p99<5ms".
type Expectation struct {
	Text   string
	Metric string

	comparison string
	value      float64 // seconds for a latency; a percentage if percent is true
	percent    bool    // whether value is a percentage of all decisions
	share      float64 // quantile of a latency: 0.99 for p99, 1 for max; 0 for other metrics
}

// Metrics lists the metrics that an Expectation can compare.
const Metrics = "p50 to p99, p999, max, per_second, decisions, allowed, denied, errors, not_begun"

var (
	expectation = regexp.MustCompile(`^\s*([^\s<>=!]+)\s*(<=|>=|==|!=|<|>)\s*([^\s<>=!]+)\s*$`)
	percentile  = regexp.MustCompile(`^p([5-9]\d)\.?(\d{0,2})$`)
	counts      = map[string]func(*Report) float64{
		"per_second": (*Report).PerSecond,
		"decisions":  func(r *Report) float64 { return float64(r.Decisions()) },
		"allowed":    func(r *Report) float64 { return float64(r.Allowed) },
		"denied":     func(r *Report) float64 { return float64(r.Denied) },
		"errors":     func(r *Report) float64 { return float64(r.Errors) },
		"not_begun":  func(r *Report) float64 { return float64(r.NotBegun) },
	}
)

// ParseExpectation parses a metric, a comparison (<, <=, >, >=, ==, !=) and a value. The value of a
// latency is a duration. Other values are numbers, or percentages of all decisions such as 1%.
func ParseExpectation(text string) (Expectation, error) {
	parts := expectation.FindStringSubmatch(text)
	if parts == nil {
		return Expectation{}, fmt.Errorf("%q is not a metric, a comparison (<, <=, >, >=, ==, !=) and a value; write one such as 'p99<5ms' or 'errors==0'", text)
	}
	e := Expectation{Text: text, Metric: parts[1], comparison: parts[2]}
	if digits := percentile.FindStringSubmatch(e.Metric); digits != nil {
		e.share, _ = strconv.ParseFloat("0."+digits[1]+digits[2], 64)
	} else if e.Metric == "max" {
		e.share = 1
	} else if counts[e.Metric] == nil {
		return e, fmt.Errorf("%q: %q is not a metric; the metrics are %s", text, e.Metric, Metrics)
	}
	if e.share > 0 {
		d, err := time.ParseDuration(parts[3])
		if err != nil || d < 0 || strings.HasSuffix(parts[3], "m") || strings.HasSuffix(parts[3], "h") { // 10m means ten minutes, and is a typing error
			return e, fmt.Errorf("%q: %q is not a latency; write one in s, ms or us, such as 5ms or 800us", text, parts[3])
		}
		e.value = d.Seconds()
		return e, nil
	}
	number, percent := strings.CutSuffix(parts[3], "%")
	var err error
	e.percent = percent
	switch e.value, err = strconv.ParseFloat(number, 64); {
	case err != nil || !(e.value >= 0 && e.value <= 1e18):
		return e, fmt.Errorf("%q: %q is not a number; write one such as 0 or 1%%", text, parts[3])
	case percent && (e.Metric == "per_second" || e.Metric == "decisions"):
		return e, fmt.Errorf("%q: %s has no share of the decisions; write a number", text, e.Metric)
	}
	return e, nil
}

// Met compares the expectation with a report. It returns the measured value as text. Without
// replies, expectations about latency are not met.
func (e Expectation) Met(r *Report) (measured string, met bool) {
	var value float64
	switch {
	case e.share > 0 && r.Allowed+r.Denied == 0:
		return "no reply", false
	case e.share > 0:
		latency := r.Latency(e.share)
		measured, value = latency.String(), latency.Seconds()
	case e.percent:
		all := r.Decisions()
		if e.Metric == "not_begun" {
			all += r.NotBegun
		}
		n := counts[e.Metric](r)
		measured = figures.Percent(int64(n), all)
		if all > 0 {
			value = 100 * n / float64(all)
		}
	default:
		value = counts[e.Metric](r)
		measured = figures.Grouped(int64(value))
	}
	switch e.comparison {
	case "<":
		met = value < e.value
	case "<=":
		met = value <= e.value
	case ">":
		met = value > e.value
	case ">=":
		met = value >= e.value
	case "==":
		met = value == e.value
	case "!=":
		met = value != e.value
	}
	return measured, met
}
