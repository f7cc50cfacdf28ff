//go:build ignore

// descriptors writes the descriptors of the files that kuadrant.proto imports, and of their imports.
package main

import (
	"log"
	"os"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

func main() {
	set := &descriptorpb.FileDescriptorSet{}
	seen := map[string]bool{}
	var add func(file protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) {
		if seen[file.Path()] {
			return
		}
		seen[file.Path()] = true
		for i := range file.Imports().Len() {
			add(file.Imports().Get(i))
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
	}
	add(rls.File_envoy_service_ratelimit_v3_rls_proto)
	out, err := proto.Marshal(set)
	if err != nil {
		log.Fatal(err)
	}
	os.Stdout.Write(out)
}
