// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"math"

	"google.golang.org/grpc/metadata"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// ClusterKey is the gRPC metadata key under which a call names the cluster it is meant for.
const ClusterKey = "holdfast-cluster"

// PassedOnKey is the gRPC metadata key of a call that on purpose uses a token which was granted to
// another client. Without it a client with a self-chosen ID may use its own tokens only.
const PassedOnKey = "holdfast-passed-on"

// PassedOn returns a context that marks the calls made with it by PassedOnKey.
func PassedOn(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, PassedOnKey, "1")
}

// HeldNotReported is a KeepAliveRequest.held of a client that does not report what it holds: that
// is renewed, and not listed.
const HeldNotReported = math.MaxUint32 - 1

// Decided reports whether an answer holds for every attempt of its request, also for one whose
// answer was lost or that is still under way: a receipt does, and so does a permanent refusal.
// Any other refusal holds for its own attempt only. committed is the answer's; named is set if
// the request names its token, which a break need not.
func Decided(s cluster.Status, committed, named bool) bool {
	switch s {
	case cluster.StatusOK, cluster.StatusWaitTimeout, cluster.StatusCancelled, cluster.StatusLeaseExpired:
		return true
	case cluster.StatusInvalidToken:
		return named // a dead token stays dead
	default:
		return committed // it is in the log, even if not in its file
	}
}
