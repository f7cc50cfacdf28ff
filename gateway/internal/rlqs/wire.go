package rlqs

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	quota "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// usages is a RateLimitQuotaUsageReports.
type usages struct {
	domain string
	list   []*quota.RateLimitQuotaUsageReports_BucketQuotaUsage
	bad    int // usages that cannot be read
}

// Decode reads a message. It leaves out usages that cannot be read, such as those with an ID that is not
// UTF-8: Envoy takes parts of IDs from requests, so a client could otherwise end the stream.
func (u *usages) Decode(b []byte) error {
	for len(b) > 0 {
		number, wire, n := protowire.ConsumeField(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		_, _, tag := protowire.ConsumeTag(b)
		if wire == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(b[tag:n])
			switch number {
			case 1:
				u.domain = strings.ToValidUTF8(string(value), "\uFFFD")
			case 2:
				usage := new(quota.RateLimitQuotaUsageReports_BucketQuotaUsage)
				if err := proto.Unmarshal(value, usage); err != nil {
					u.bad++
				} else {
					u.list = append(u.list, usage)
				}
			}
		}
		b = b[n:]
	}
	return nil
}

// bucketID is the ID of a bucket within its domain.
type bucketID struct{ id *quota.BucketId }

// newBucketID checks an ID. It returns what is wrong with it, or "".
func newBucketID(id *quota.BucketId) (bucketID, string) {
	size := 0
	for key, value := range id.GetBucket() {
		size += len(key) + len(value)
	}
	switch n := len(id.GetBucket()); {
	case n == 0:
		return bucketID{}, "empty"
	case n > mostEntries:
		return bucketID{}, strconv.Itoa(n) + " entries; the most is " + strconv.Itoa(mostEntries)
	case size > mostID:
		return bucketID{}, strconv.Itoa(size) + " bytes; the most is " + strconv.Itoa(mostID)
	}
	return bucketID{id}, ""
}

// key returns a text that no other bucket of any domain has.
func (b bucketID) key(domain string) string {
	var text strings.Builder
	add := func(s string) {
		text.WriteString(strconv.Itoa(len(s)))
		text.WriteByte(':')
		text.WriteString(s)
	}
	add(domain)
	for _, key := range slices.Sorted(maps.Keys(b.id.Bucket)) {
		add(key)
		add(b.id.Bucket[key])
	}
	return text.String()
}

// entries returns the ID as a descriptor, with its entries sorted by key.
func (b bucketID) entries() (list []*entries.RateLimitDescriptor_Entry) {
	for _, key := range slices.Sorted(maps.Keys(b.id.Bucket)) {
		list = append(list, &entries.RateLimitDescriptor_Entry{Key: key, Value: b.id.Bucket[key]})
	}
	return list
}

// action is what a message says about a bucket.
type action struct {
	kind  kind
	units int64
	at    time.Time // when it was decided
}

type kind int

const (
	tokens kind = iota
	denyAll
	allowAll
	abandon
)

func (k kind) String() string { return [...]string{"tokens", "deny", "allow", "abandon"}[k] }

// different makes each token bucket different from the one before, because Envoy would otherwise
// continue with the present one. Envoy compares the nanoseconds of the interval, but not its seconds.
var different atomic.Uint32

func (a action) message(id *quota.BucketId) *quota.RateLimitQuotaResponse_BucketAction {
	message := &quota.RateLimitQuotaResponse_BucketAction{BucketId: id}
	strategy := &envoytype.RateLimitStrategy{}
	switch a.kind {
	case abandon:
		message.BucketAction = &quota.RateLimitQuotaResponse_BucketAction_AbandonAction_{AbandonAction: &quota.RateLimitQuotaResponse_BucketAction_AbandonAction{}}
		return message
	case tokens:
		// A refill of one token in a day is none within ttl. Envoy's token buckets cannot be without a refill.
		strategy.Strategy = &envoytype.RateLimitStrategy_TokenBucket{TokenBucket: &envoytype.TokenBucket{
			MaxTokens: uint32(min(a.units, math.MaxUint32)), TokensPerFill: wrapperspb.UInt32(1),
			FillInterval: &durationpb.Duration{Seconds: 24 * 60 * 60, Nanos: int32(different.Add(1) % 1_000_000_000)},
		}}
	case denyAll:
		strategy.Strategy = &envoytype.RateLimitStrategy_BlanketRule_{BlanketRule: envoytype.RateLimitStrategy_DENY_ALL}
	default:
		strategy.Strategy = &envoytype.RateLimitStrategy_BlanketRule_{BlanketRule: envoytype.RateLimitStrategy_ALLOW_ALL}
	}
	message.BucketAction = &quota.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction_{
		QuotaAssignmentAction: &quota.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction{
			AssignmentTimeToLive: durationpb.New(ttl), RateLimitStrategy: strategy,
		},
	}
	return message
}
