package rls

import (
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	pb "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/kuadrant"
)

// Register registers the service. The generated code would receive the request before it calls the
// service, so that the service could not count and log a request that cannot be read. Therefore,
// the method is registered as a stream whose handler receives one request.
func Register(server grpc.ServiceRegistrar, s *Server) {
	desc := rls.RateLimitService_ServiceDesc
	desc.Methods, desc.Streams = nil, []grpc.StreamDesc{{StreamName: "ShouldRateLimit", Handler: serve}}
	server.RegisterService(&desc, s)
}

func serve(service any, stream grpc.ServerStream) error {
	s := service.(*Server)
	if s.Begin != nil {
		if err := s.Begin(); err != nil {
			return err
		}
		defer s.End()
	}
	request := new(rls.RateLimitRequest)
	if err := stream.RecvMsg(request); err != nil {
		return s.failed(stream.Context(), "", nil, err)
	}
	response, err := s.ShouldRateLimit(stream.Context(), request)
	if err != nil {
		return err
	}
	return stream.SendMsg(response)
}

// Codec is the codec of a gRPC server that has the service. It differs from the usual one in that
// the strings of a request may be any bytes. Envoy sends parts of the client's request in them, so
// a client could otherwise turn off all limits with one byte that is not UTF-8.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

type codec struct{ encoding.CodecV2 }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if own, ok := v.(interface{ Decode([]byte) error }); ok { // a message of package rlqs
		return own.Decode(data.Materialize())
	}
	err := c.CodecV2.Unmarshal(data, v)
	if err == nil {
		return nil
	}
	switch request := v.(type) {
	case *rls.RateLimitRequest, *kuadrant.ReserveRequest, *kuadrant.CommitRequest:
		message := request.(pb.Message)
		pb.Reset(message)
		return decode(data.Materialize(), message.ProtoReflect())
	}
	return err
}

// decode merges b into message, as [pb.Unmarshal] does, but accepts strings that are not UTF-8. Fields
// that are neither strings nor messages are left to package proto.
func decode(b []byte, message protoreflect.Message) error {
	for len(b) > 0 {
		number, wire, n := protowire.ConsumeField(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := decodeField(b[:n], message, message.Descriptor().Fields().ByNumber(number), wire); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// decodeField merges b, which has one field, into message. field is nil if the field is unknown.
func decodeField(b []byte, message protoreflect.Message, field protoreflect.FieldDescriptor, wire protowire.Type) error {
	if wire != protowire.BytesType || field == nil || field.IsMap() || field.Kind() != protoreflect.StringKind && field.Kind() != protoreflect.MessageKind {
		return pb.UnmarshalOptions{Merge: true}.Unmarshal(b, message.Interface())
	}
	_, _, tag := protowire.ConsumeTag(b)
	value, _ := protowire.ConsumeBytes(b[tag:])
	switch text := protoreflect.ValueOfString(string(value)); {
	case field.Kind() == protoreflect.StringKind && field.IsList():
		message.Mutable(field).List().Append(text)
	case field.Kind() == protoreflect.StringKind:
		message.Set(field, text)
	case field.IsList():
		return decode(value, message.Mutable(field).List().AppendMutable().Message())
	default:
		return decode(value, message.Mutable(field).Message())
	}
	return nil
}
