#!/bin/sh
# Generates the Go code for kuadrant.proto. The modules of Envoy's API have no .proto files, so
# descriptors.go writes the descriptors of the imported files, which protoc reads instead.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go build -o "$dir/protoc-gen-go" google.golang.org/protobuf/cmd/protoc-gen-go
GOWORK=off GOFLAGS= GOBIN="$dir" go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.1
go run descriptors.go >"$dir/imports"
PATH="$dir:$PATH" protoc --descriptor_set_in="$dir/imports" --proto_path=. \
	--go_out=paths=source_relative:. --go-grpc_out=paths=source_relative:. kuadrant.proto
