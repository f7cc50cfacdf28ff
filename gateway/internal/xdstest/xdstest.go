// Package xdstest has an xDS server for tests: the state of the world over ADS.
package xdstest

import (
	"fmt"
	"slices"
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Server answers each stream that asks. When [Server.Send] changes the answer, it sends the new one to
// all of them. Its methods may be called concurrently.
type Server struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer

	mu       sync.Mutex
	changed  chan struct{} // closed when answer changes
	answer   *discovery.DiscoveryResponse
	requests []*discovery.DiscoveryRequest
	streams  int
	end      chan struct{} // closed to end the streams
}

// New returns a Server that has nothing to send yet.
func New() *Server { return &Server{changed: make(chan struct{}), end: make(chan struct{})} }

// Set sends resources.
func (s *Server) Set(version string, list ...*rlsconf.RateLimitConfig) {
	answer := &discovery.DiscoveryResponse{VersionInfo: version, TypeUrl: typeOf(&rlsconf.RateLimitConfig{})}
	for _, config := range list {
		value, err := proto.Marshal(config)
		if err != nil {
			panic(err) // a test has text that is not UTF-8
		}
		answer.Resources = append(answer.Resources, &anypb.Any{TypeUrl: answer.TypeUrl, Value: value})
	}
	s.Send(answer)
}

func typeOf(m proto.Message) string {
	return "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName())
}

// Send sends an answer, which may be wrong. Send sets its nonce.
func (s *Server) Send(answer *discovery.DiscoveryResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
	close(s.changed)
	s.changed = make(chan struct{})
}

// End ends all streams.
func (s *Server) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.end)
	s.end = make(chan struct{})
}

// Requests returns the requests so far, of all streams.
func (s *Server) Requests() []*discovery.DiscoveryRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Streams returns how many streams there were so far.
func (s *Server) Streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams
}

// StreamAggregatedResources implements the service.
func (s *Server) StreamAggregatedResources(stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	s.mu.Lock()
	s.streams++
	end := s.end
	s.mu.Unlock()
	requests := make(chan *discovery.DiscoveryRequest)
	go func() {
		defer close(requests)
		for {
			request, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- request:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	asked, nonce := false, 0
	var sent *discovery.DiscoveryResponse
	for {
		s.mu.Lock()
		changed, answer := s.changed, s.answer
		s.mu.Unlock()
		if asked && answer != nil && answer != sent {
			nonce++
			sent = answer
			copied, _ := proto.Clone(answer).(*discovery.DiscoveryResponse)
			copied.Nonce = fmt.Sprint(nonce)
			if err := stream.Send(copied); err != nil {
				return err
			}
		}
		select {
		case request, ok := <-requests:
			if !ok {
				return nil
			}
			asked = true
			s.mu.Lock()
			s.requests = append(s.requests, request)
			s.mu.Unlock()
		case <-changed:
		case <-end:
			return status.Error(codes.Unavailable, "the test ends the stream")
		}
	}
}
