// Package kuadrant has the messages and the gRPC stubs of Kuadrant's rate limit service, generated
// from kuadrant.proto. To generate them again, install protoc (Debian's protobuf-compiler), and run
// go generate in this folder.
package kuadrant

//go:generate sh generate.sh
