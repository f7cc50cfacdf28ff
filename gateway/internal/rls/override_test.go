package rls_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	api "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	types "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func TestOverride(t *testing.T) {
	b := newTestbed(t, config)
	with := func(count uint32, unit types.RateLimitUnit, multiplier uint32) *api.RateLimitRequest {
		r := request(0, "address=a")
		r.Descriptors[0].Limit = &entries.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: count, Unit: unit}
		if multiplier > 0 {
			r.Descriptors[0].Limit.UnitMultiplier = wrapperspb.UInt32(multiplier)
		}
		return r
	}
	b.expect(with(1, types.RateLimitUnit_HOUR, 0), "OK | OK :1/hour 0 3585s", "OVER_LIMIT | OVER_LIMIT :1/hour 0 3585s")
	b.expect(with(1, types.RateLimitUnit_MINUTE, 5), "OK | OK :1/minute*5 0 285s", "OVER_LIMIT | OVER_LIMIT :1/minute*5 0 285s")
	b.expect(request(0, "address=a"), "OK | OK :2/minute 1 45s")
	if got := b.ask(with(1, types.RateLimitUnit_UNKNOWN, 0)); !strings.HasPrefix(got, "InvalidArgument: descriptor 1: the unit") {
		t.Error(got)
	}
	if got := b.ask(with(1, types.RateLimitUnit_YEAR, math.MaxUint32)); !strings.HasPrefix(got, "InvalidArgument: ") || !strings.Contains(got, "BADLIMIT") {
		t.Error(got)
	}
	if got := b.ask(with(1, 99, 0)); got != "InvalidArgument: descriptor 1: the unit of its limit is 99; use SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR" {
		t.Error(got)
	}
	unknown := with(1, types.RateLimitUnit_HOUR, 0)
	unknown.Domain = "unknown"
	b.expect(unknown, "OK | OK 0", "OK | OK 0")
}

// TestOverridesShareAMetric checks that, without a configuration, overrides have the same label in
// all domains.
func TestOverridesShareAMetric(t *testing.T) {
	b := newTestbed(t, "")
	for i := range 100 {
		r := request(0, "address=a")
		r.Domain = fmt.Sprint("domain", i)
		r.Descriptors[0].Limit = &entries.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: types.RateLimitUnit_HOUR}
		b.expect(r, "OK | OK :1/hour 0 3585s", "OVER_LIMIT | OVER_LIMIT :1/hour 0 3585s")
	}
	families, err := b.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.Metric {
			if text := fmt.Sprint(metric.Label); family.GetName() == "ratelimit_gateway_requests_total" && (!strings.Contains(text, `"override"`) || metric.Counter.GetValue() != 100) {
				t.Errorf("%s %v", text, metric.Counter)
			}
		}
	}
}
