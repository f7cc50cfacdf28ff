package rlqs

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	quota "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/envoyconfig"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/remedy"
)

// stream is the stream of an Envoy.
type stream struct {
	server *Server
	domain string
	shares map[string]*share // belongs to the goroutine that receives reports
	ended  atomic.Bool       // whether shares has some that are gone

	mu   sync.Mutex
	out  []*share // with actions to send
	wake chan struct{}
}

// Register registers the service. Its messages are read by [usages.Decode], for which the gRPC server
// needs the codec of package rls.
func Register(registrar grpc.ServiceRegistrar, s *Server) {
	desc := quota.RateLimitQuotaService_ServiceDesc
	desc.HandlerType = (*any)(nil)
	desc.Streams = []grpc.StreamDesc{{StreamName: "StreamRateLimitQuotas", Handler: serve, ServerStreams: true, ClientStreams: true}}
	registrar.RegisterService(&desc, s)
}

func serve(service any, connection grpc.ServerStream) error {
	s := service.(*Server)
	if s.NeedsConfig && s.config.Load() == nil {
		return status.Error(codes.Unavailable, "there are no rules yet; the gateway waits for its xDS server")
	}
	s.Metrics.Streams(1)
	st := s.newStream()
	failed := make(chan error, 1)
	s.reports.Go(func() { // ends after serve, which ends the stream
		defer s.Metrics.Streams(-1)
		defer st.close()
		failed <- st.receive(connection.RecvMsg)
	})
	return st.write(connection.Context(), failed, connection.SendMsg)
}

func (s *Server) newStream() *stream {
	return &stream{server: s, shares: map[string]*share{}, wake: make(chan struct{}, 1)}
}

// receive handles the messages of the Envoy until there is an error.
func (st *stream) receive(next func(any) error) error {
	for {
		message := new(usages)
		if err := next(message); err != nil {
			return err
		}
		if err := st.handle(message); err != nil {
			st.server.Metrics.Refused("message")
			st.server.logs.Do(func() {
				st.server.Log.Error("a stream of reports was ended", "source", "rlqs", "domain", remedy.Cut(message.domain), "error", status.Convert(err).Message())
			})
			return err
		}
	}
}

// handle handles a message. It returns an error if the stream must end.
func (st *stream) handle(message *usages) error {
	switch {
	case st.domain == "" && message.domain == "":
		return status.Error(codes.InvalidArgument, "the first message has no domain; set it in Envoy's rate limit quota filter")
	case st.domain == "":
		st.domain = message.domain
	case message.domain != "" && message.domain != st.domain:
		return status.Errorf(codes.InvalidArgument, "the domain is %q, and it was %q before; open another stream for it", remedy.Cut(message.domain), remedy.Cut(st.domain))
	}
	if st.ended.Swap(false) {
		for key, sh := range st.shares {
			if sh.gone.Load() {
				delete(st.shares, key)
			}
		}
	}
	st.refused("not UTF-8", message.bad)
	for _, usage := range message.list {
		id, err := newBucketID(usage.GetBucketId())
		if err == "" {
			err = st.server.misnamed(st.domain, id)
		}
		if err != "" {
			st.refused(err, 1)
			continue
		}
		st.report(id, usage.NumRequestsAllowed, usage.NumRequestsDenied)
	}
	return nil
}

// misnamed returns what is wrong with the entries of an ID that name a policy, or "".
func (s *Server) misnamed(domain string, id bucketID) string {
	if config := s.config.Load(); config != nil && config.Known(domain) {
		return ""
	}
	named, err := envoyconfig.Policy(id.entries())
	switch {
	case err != nil:
		return err.Error()
	case named.Pool != "":
		return "the entry pool: a guarantee and a pool have no quotas; use the rate limit service"
	}
	return ""
}

// report handles the report for one bucket.
func (st *stream) report(id bucketID, allowed, denied uint64) {
	key := id.key(st.domain)
	now := st.server.Now()
	if sh := st.shares[key]; sh != nil && sh.bucket.report(sh, allowed, denied, now) {
		return
	}
	sh := st.server.join(st, key, id)
	if sh == nil {
		st.refused("too many", 1)
		return
	}
	st.shares[sh.bucket.text] = sh
	sh.bucket.report(sh, allowed, denied, now)
}

// refused counts and logs buckets that get no assignment.
func (st *stream) refused(why string, n int) {
	if n == 0 {
		return
	}
	st.server.Metrics.Refused("bucket")
	st.server.logs.Do(func() {
		st.server.Log.Error("a bucket gets no assignment", "source", "rlqs", "domain", remedy.Cut(st.domain), "bucket_id", why, "buckets", n)
	})
}

// close ends the shares of the stream.
func (st *stream) close() {
	for _, sh := range st.shares {
		sh.bucket.leave(sh)
	}
}

// send replaces what the next message says about a share.
func (st *stream) send(sh *share, a action) {
	st.mu.Lock()
	defer st.mu.Unlock()
	sh.action = a
	if !sh.out {
		sh.out = true
		st.out = append(st.out, sh)
	}
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// waits reports whether an action for a share has not been sent yet.
func (st *stream) waits(sh *share) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return sh.out
}

// write sends the actions until the stream ends.
func (st *stream) write(ctx context.Context, failed <-chan error, send func(any) error) error {
	for {
		select {
		case err := <-failed:
			if status.Code(err) == codes.Unknown { // io.EOF
				return nil
			}
			return err
		case <-ctx.Done():
			return status.Error(codes.Unavailable, "the stream ends; open another one")
		case <-st.wake:
		}
		for response := st.next(st.server.Now()); response != nil; response = st.next(st.server.Now()) {
			if err := send(response); err != nil {
				return err
			}
		}
	}
}

// next returns the next message, or nil.
func (st *stream) next(now time.Time) *quota.RateLimitQuotaResponse {
	st.mu.Lock()
	defer st.mu.Unlock()
	response := &quota.RateLimitQuotaResponse{}
	for len(st.out) > 0 && len(response.BucketAction) < 1000 {
		sh := st.out[0]
		st.out[0], st.out = nil, st.out[1:]
		sh.out = false
		if now.Sub(sh.action.at) > late { // the Envoy does not read, so its units would be too old
			continue
		}
		response.BucketAction = append(response.BucketAction, sh.action.message(sh.bucket.id.id))
		st.server.Metrics.Assigned(sh.action.kind.String())
	}
	if len(st.out) == 0 {
		st.out = nil
	}
	if len(response.BucketAction) == 0 {
		return nil
	}
	return response
}
