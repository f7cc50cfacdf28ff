package api

import (
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

type whole int64

// percent returns n for a field of package client that is an int. What is too large stays above 100.
func (n whole) percent() int { return int(min(n, 1<<30)) }

// costs is one cost for all keys, or a list with a cost for each key.
type costs []int64

type onceRequest struct {
	Key   string `json:"key"`
	TTLMS whole  `json:"ttl_ms"`
}

type takeRequest struct {
	Keys   []string       `json:"keys"`
	Limits []client.Limit `json:"limits"`
	Cost   costs          `json:"cost,omitempty"`
	UpTo   bool           `json:"upto,omitempty"`
	Class  string         `json:"class,omitempty"`
	Floor  whole          `json:"floor,omitempty"`
	Borrow bool           `json:"borrow,omitempty"`
	Force  bool           `json:"force,omitempty"`
	Once   *onceRequest   `json:"once,omitempty"`
	Track  string         `json:"track,omitempty"`
	Each   bool           `json:"each,omitempty"`
}

type peekRequest struct {
	Keys   []string       `json:"keys"`
	Limits []client.Limit `json:"limits"`
	Cost   costs          `json:"cost,omitempty"`
	UpTo   bool           `json:"upto,omitempty"`
	Class  string         `json:"class,omitempty"`
	Floor  whole          `json:"floor,omitempty"`
	Borrow bool           `json:"borrow,omitempty"`
	Each   bool           `json:"each,omitempty"`
}

type refundRequest struct {
	Keys   []string       `json:"keys"`
	Limits []client.Limit `json:"limits"`
	Cost   costs          `json:"cost,omitempty"`
	Paid   whole          `json:"paid,omitempty"` // who paid a take with borrow: 1, or 2 for the pool alone
	Once   *onceRequest   `json:"once,omitempty"`
	Each   bool           `json:"each,omitempty"`
}

type acquireRequest struct {
	Key     string       `json:"key"`
	Limit   client.Limit `json:"limit"`
	LeaseID string       `json:"lease_id,omitempty"` // random if absent
	Class   string       `json:"class,omitempty"`
	Floor   whole        `json:"floor,omitempty"`
}

type leaseRequest struct {
	Key     string       `json:"key"`
	Limit   client.Limit `json:"limit"`
	LeaseID string       `json:"lease_id"`
}

type blockRequest struct {
	Keys   []string `json:"keys"`
	MS     whole    `json:"ms"`
	Extend bool     `json:"extend,omitempty"`
}

type overrideRequest struct {
	Keys  []string     `json:"keys"`
	Limit client.Limit `json:"limit"`
	MS    whole        `json:"ms"`
}

type keysRequest struct {
	Keys []string `json:"keys"`
}

type usageRequest struct {
	Key string `json:"key"`
}

// of returns the lease that a request is about.
func (q leaseRequest) of(limiter *client.Client) (leaseRequest, *client.Lease) {
	return q, limiter.Lease(q.Key, q.Limit, q.LeaseID)
}

func (q acquireRequest) of(limiter *client.Client) (leaseRequest, *client.Lease) {
	of, lease := leaseRequest{q.Key, q.Limit, q.LeaseID}.of(limiter)
	lease.Class, lease.Floor = q.Class, q.Floor.percent()
	return of, lease
}

func (q takeRequest) request() (client.Request, error) {
	req, err := q.Once.of(q.Keys, q.Limits, q.Cost)
	req.UpTo, req.Force, req.UsageKey, req.Each = q.UpTo, q.Force, q.Track, q.Each
	req.Class, req.Floor, req.Borrow = q.Class, q.Floor.percent(), q.Borrow
	return upTo(req), err
}

func (q peekRequest) request() (client.Request, error) {
	req, err := (*onceRequest)(nil).of(q.Keys, q.Limits, q.Cost)
	req.UpTo, req.Each = q.UpTo, q.Each
	req.Class, req.Floor, req.Borrow = q.Class, q.Floor.percent(), q.Borrow
	return upTo(req), err
}

func (q refundRequest) request() (client.Request, error) {
	req, err := q.Once.of(q.Keys, q.Limits, q.Cost)
	if req.Each = q.Each; q.Paid == 0 || err != nil {
		return req, err
	}
	switch n := int64(1); {
	case q.Paid != 1 && q.Paid != 2:
		return req, bad("paid is %d; give the index in the reply to the take: 1, or 2 if the pool paid alone", q.Paid)
	case len(q.Cost) > 1:
		return req, bad("cost is %v beside paid; a guarantee and a pool are charged the same: give one number", []int64(q.Cost))
	case len(q.Cost) == 1:
		n = q.Cost[0]
		fallthrough
	default:
		req.Borrow, req.Costs = true, []int64{n * int64(2-q.Paid), n}
	}
	return req, nil
}

// of returns a request with the given keys, limits and cost. If o is not nil, the request also has
// the key and the TTL of o.
func (o *onceRequest) of(keys []string, limits []client.Limit, cost costs) (client.Request, error) {
	req := client.Request{Keys: keys, Limits: limits, Costs: cost}
	if o == nil {
		return req, nil
	}
	var err error
	req.OnceKey = o.Key
	req.OnceTTL, err = milliseconds("once.ttl_ms", o.TTLMS)
	return req, err
}

// upTo returns req. If UpTo is set and req has no cost, the cost is 1, the library's default.
func upTo(req client.Request) client.Request {
	if req.UpTo && len(req.Costs) == 0 {
		req.Costs = []int64{1}
	}
	return req
}

// milliseconds returns ms as a duration, or an error that names field if ms is out of range.
func milliseconds(field string, ms whole) (time.Duration, error) {
	const most = 36500 * 24 * time.Hour
	if ms < 1 || ms > whole(most.Milliseconds()) {
		return 0, exemplified(field, bad("%s is %d; give 1 to %d", field, ms, most.Milliseconds()))
	}
	return time.Duration(ms) * time.Millisecond, nil
}
