// SPDX-License-Identifier: Apache-2.0

// Package wire is what a client and a server, and two servers, must agree on
// beyond the types of package cluster: the messages (holdfast.proto and
// peer.proto, generated into package pb), the one table that relates a status to
// a Go error, a gRPC code and an HTTP code, and the JSON bodies.
//
// It knows nothing of the lock table; package convert does. To generate pb
// anew, install protoc (Debian: protobuf-compiler) and run go generate here.
package wire

//go:generate go build -o ../../bin/ google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
//go:generate protoc -I ../.. --plugin=../../bin/protoc-gen-go --plugin=../../bin/protoc-gen-go-grpc --go_out=../.. --go_opt=module=github.com/holdfast-lock/holdfast --go-grpc_out=../.. --go-grpc_opt=module=github.com/holdfast-lock/holdfast shared/wire/holdfast.proto shared/wire/peer.proto
