package rlqs

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	quota "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestBadInput sends what Envoy never does. Other buckets of the same message get their assignments.
func TestBadInput(t *testing.T) {
	usage := func(allowed uint64, id map[string]string) *quota.RateLimitQuotaUsageReports_BucketQuotaUsage {
		return &quota.RateLimitQuotaUsageReports_BucketQuotaUsage{BucketId: &quota.BucketId{Bucket: id}, NumRequestsAllowed: allowed}
	}
	many := map[string]string{}
	for i := range mostEntries + 1 {
		many[fmt.Sprint(i)] = "x"
	}
	for name, test := range map[string]struct {
		usage *quota.RateLimitQuotaUsageReports_BucketQuotaUsage
		what  string // of refused_total
		log   string
	}{
		"no ID":            {&quota.RateLimitQuotaUsageReports_BucketQuotaUsage{}, "bucket", "empty"},
		"empty ID":         {usage(1, nil), "bucket", "empty"},
		"many entries":     {usage(1, many), "bucket", "21 entries; the most is 20"},
		"huge ID":          {usage(1, map[string]string{"policy": strings.Repeat("x", mostID)}), "bucket", "4102 bytes; the most is 4096"},
		"a pool":           {usage(1, map[string]string{"policy": "api", "user": "1", "pool": "p"}), "bucket", "the entry pool: a guarantee and a pool have no quotas"},
		"an empty class":   {usage(1, map[string]string{"policy": "api", "user": "1", "class": ""}), "bucket", "the entry class is repeated or empty"},
		"2^64-1 requests":  {usage(math.MaxUint64, map[string]string{"policy": "api", "user": "1"}), "usage", "was cut"},
		"requests of 2^53": {usage(1<<53, map[string]string{"policy": "api", "user": "1"}), "usage", "was cut"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, "", policy("api", "100/d"))
			e := w.connect(0)
			e.buckets[named(api)] = &envoyBucket{id: &quota.BucketId{Bucket: api}}
			redistest.Require(t, e.send(&quota.RateLimitQuotaUsageReports{Domain: "web", BucketQuotaUsages: []*quota.RateLimitQuotaUsageReports_BucketQuotaUsage{test.usage, usage(0, api)}}))
			if e.buckets[named(api)].tokens == 0 {
				t.Error("the good bucket got nothing")
			}
			if w.metric("refused_total", test.what) != 1 || !strings.Contains(w.log.String(), test.log) {
				t.Errorf("refused_total{what=%q} is %v, and the log %s", test.what, w.metric("refused_total", test.what), w.log)
			}
		})
	}
	w := newWorld(t, 1, "", policy("api", "100/d"))
	if got := status.Code(w.connect(0).send(&quota.RateLimitQuotaUsageReports{})); got != codes.InvalidArgument {
		t.Errorf("without a domain: %v", got)
	}
	e := w.connect(0)
	redistest.Require(t, e.send(&quota.RateLimitQuotaUsageReports{Domain: "web"}))
	redistest.Require(t, e.send(&quota.RateLimitQuotaUsageReports{}))
	if err := e.send(&quota.RateLimitQuotaUsageReports{Domain: "shop"}); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), `"shop", and it was "web"`) {
		t.Errorf("with another domain: %v", err)
	}
}

// TestTooMany checks that a bucket beyond the bound gets no assignment, and others still do.
func TestTooMany(t *testing.T) {
	w := newWorld(t, 1, "", policy("api", "100/d"))
	e := w.connect(0)
	e.request(1, api)
	w.servers[0].shares += mostShares - 1
	e.request(2, map[string]string{"policy": "api", "user": "43"})
	e.request(1, api)
	if n := w.total(api); n != 1 || w.total(map[string]string{"policy": "api", "user": "43"}) != 0 {
		t.Errorf("%d requests of the first bucket passed, want 1", n)
	}
	if w.metric("refused_total", "bucket") != 1 || !strings.Contains(w.log.String(), "too many") {
		t.Errorf("the log is %s", w.log)
	}
}

// TestDecode reads messages whose parts are broken.
func TestDecode(t *testing.T) {
	id := func(value string) string { // a usage with this ID
		entry := "\x0a\x01a\x12" + string(rune(len(value))) + value
		bucket := "\x0a" + string(rune(len(entry))) + entry
		usage := "\x0a" + string(rune(len(bucket))) + bucket
		return "\x12" + string(rune(len(usage))) + usage
	}
	message := new(usages)
	redistest.Require(t, message.Decode([]byte("\x0a\x03w\xffb"+id("good")+id("b\xffd")+id("fine"))))
	var got []string
	for _, usage := range message.list {
		got = append(got, usage.BucketId.Bucket["a"])
	}
	if !slices.Equal(got, []string{"good", "fine"}) || message.bad != 1 || message.domain != "w\uFFFDb" {
		t.Errorf("%q, %d bad, domain %q", got, message.bad, message.domain)
	}
	if new(usages).Decode([]byte("\x12\x7f")) == nil {
		t.Error("a message that ends early was read")
	}
}
