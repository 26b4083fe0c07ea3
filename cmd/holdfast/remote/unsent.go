// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/wire"
)

// unsentError is the failure of a call that no server can have seen.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// tellUnsent marks the error of a call for which there never was a connection: a name that
// is not known, a port that nobody or somebody else serves. A request that cannot be
// written as a message is refused, as every server would.
func tellUnsent(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	var to peer.Peer // is known from the moment that the call has a connection
	err := invoke(ctx, method, req, reply, cc, append(opts, grpc.Peer(&to))...)
	if err == nil {
		return nil
	}
	if m, ok := req.(proto.Message); ok {
		if _, bad := proto.Marshal(m); bad != nil {
			return wire.Invalid("names and texts must be UTF-8")
		}
	}
	if to.Addr == nil {
		return &unsentError{err}
	}
	return err
}
