package rls_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	api "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	types "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/rls"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// rawCodec sends requests that are bytes.
type rawCodec struct{ encoding.CodecV2 }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// askRaw sends a request in which the bytes \x01\x01 stand for \xff\xfe, and returns the response in the form
// of ask.
func (b *testbed) askRaw(request *api.RateLimitRequest) string {
	b.t.Helper()
	return b.askBytes(bytes.ReplaceAll(must[[]byte](b.t)(proto.Marshal(request)), []byte{1, 1}, []byte{0xff, 0xfe}))
}

func (b *testbed) expectRaw(r *api.RateLimitRequest, want string) {
	b.t.Helper()
	if got := b.askRaw(r); got != want {
		b.t.Errorf("%s\nwant %s", got, want)
	}
}

func (b *testbed) askBytes(request []byte) string {
	b.t.Helper()
	response := new(api.RateLimitResponse)
	err := b.conn.Invoke(b.t.Context(), api.RateLimitService_ShouldRateLimit_FullMethodName, request, response,
		grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2(protocodec.Name)}))
	return short(response, err)
}

// TestBytes checks that strings that are not UTF-8 are taken as they are. They are escaped in the
// key, so that each value counts alone, and other descriptors of the request keep their limits.
func TestBytes(t *testing.T) {
	b := newTestbed(t, config, policies...)
	b.expectRaw(request(0, "address=1.2.3.4", "quick=\x01\x01"), "OK | OK :2/minute 1 45s | OK :10/second 9 1s")
	b.expectRaw(request(0, "address=1.2.3.4", "quick=\x01\x01"), "OK | OK :2/minute 0 45s | OK :10/second 8 1s")
	b.expectRaw(request(0, "address=1.2.3.4", "quick=\x01\x01"), "OVER_LIMIT | OVER_LIMIT :2/minute 0 45s | OK :10/second 7 1s")
	b.expectRaw(request(0, "quick=%FF%FE"), "OK | OK :10/second 9 1s")
	b.expectRaw(request(0, "\x01\x01=x"), "OK | OK 0")
	if got := fmt.Sprint(b.server.Do("KEYS", "web|quick*")); !strings.Contains(got, "web|quick=%FF%FE") || !strings.Contains(got, "web|quick=%25FF%25FE") {
		t.Errorf("keys %s", got)
	}

	b = newTestbed(t, "", policies...)
	b.expectRaw(request(0, "policy=api user=\x01\x01"), "OK | OK api:3/unknown 2 20s")
	if got := b.askRaw(request(0, "policy=\x01\x01 user=a")); !strings.HasPrefix(got, "Unavailable: ") || !strings.Contains(got, "NOPOLICY") {
		t.Error(got)
	}
	b.wantMetric(`requests_total{decision="error",name="unknown",source="grpc"} 1`)
}

// TestUnreadable checks that a request that cannot be read is counted and logged. The caller may have
// its answer before, because gRPC answers when it cannot read.
func TestUnreadable(t *testing.T) {
	b := newTestbed(t, config)
	for i, tt := range []struct {
		request []byte
		want    string
	}{
		{[]byte("\x0a\x7fweb"), "Internal: grpc: failed to unmarshal the received message"},
		{bytes.Repeat([]byte{0x0a, 1, 'x'}, 2<<20), "ResourceExhausted: grpc: received message larger than max"},
		{nil, "InvalidArgument: the domain is empty"},
	} {
		if got := b.askBytes(tt.request); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s\nwant %s", got, tt.want)
		}
		redistest.Eventually(t, fmt.Sprintf("request %d to be counted, and the first to be logged", i+1), func() bool {
			return strings.Contains(b.metrics(), fmt.Sprintf(`requests_total{decision="error",name="unknown",source="grpc"} %d`, i+1)) &&
				strings.Contains(b.log.String(), `level=ERROR msg="no decision" source=grpc domain="" error="grpc: failed to unmarshal the received message`)
		})
	}
}

// FuzzDecode checks that decode returns what package proto does for every valid request, and fails
// for every request that is invalid for another reason than its strings.
func FuzzDecode(f *testing.F) {
	for _, r := range []*api.RateLimitRequest{
		request(0, "address=a", "policy=api user=x"),
		{Domain: "web", HitsAddend: 7, Descriptors: []*entries.RateLimitDescriptor{{
			Entries:        descriptor("a=b").Entries,
			Limit:          &entries.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5, Unit: types.RateLimitUnit_HOUR, UnitMultiplier: wrapperspb.UInt32(3)},
			HitsAddend:     wrapperspb.UInt64(9),
			IsNegativeHits: true,
		}}},
	} {
		f.Add(must[[]byte](f)(proto.Marshal(r)))
	}
	f.Add([]byte("\x0a\x01a\x0a\x01\xff\x12\x04\x1a\x02\x08\x01\x12\x04\x1a\x02\x08\x02")) // fields that occur twice
	f.Add([]byte("\x12\x08\x1a\x02\x08\x01\x1a\x02\x08\x02"))
	f.Add([]byte("\x08\x01\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x22\x03abc\x0b\x0c\x13\x14")) // unknown fields, other wire types
	f.Add([]byte("\x12\x03\x0a\x7fa"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var want, got api.RateLimitRequest
		wantErr, err := proto.Unmarshal(data, &want), rls.Decode(data, got.ProtoReflect())
		switch {
		case wantErr == nil && (err != nil || !proto.Equal(&want, &got)):
			t.Errorf("%v, %v; want %v", &got, err, &want)
		case wantErr != nil && err == nil && !strings.Contains(wantErr.Error(), "invalid UTF-8"):
			t.Errorf("%v; want the error %v", &got, wantErr)
		}
	})
}
