// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"math"
	"sync/atomic"

	"google.golang.org/grpc/metadata"
)

// ClusterKey is the gRPC metadata key under which a call names the cluster it is meant for.
const ClusterKey = "holdfast-cluster"

// TraceparentKey is the gRPC metadata key, and the HTTP header, under which a call names the span that it is part of, as W3C
// Trace Context has it.
const TraceparentKey = "traceparent"

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

// ErrOtherCluster is the error of a call to a server of another cluster than the caller's.
var ErrOtherCluster = errors.New("another cluster answers")

// KnownCluster is the cluster that a client began with. Every call names it, so that a server of
// another cluster does nothing, and every server that answers says which one it belongs to. It
// implements credentials.PerRPCCredentials.
type KnownCluster struct {
	metadata atomic.Pointer[map[string]string] // nil until a server has named its cluster
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (k *KnownCluster) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if m := k.metadata.Load(); m != nil {
		return *m, nil
	}
	return nil, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials: the name of a cluster is no
// secret.
func (k *KnownCluster) RequireTransportSecurity() bool { return false }

// Known reports whether a server has named its cluster.
func (k *KnownCluster) Known() bool { return k.metadata.Load() != nil }

// ID returns the cluster ID, "" until a server has named it.
func (k *KnownCluster) ID() string {
	if m := k.metadata.Load(); m != nil {
		return (*m)[ClusterKey]
	}
	return ""
}

// Check compares the cluster ID of a server that answered, and notes that of the first one. It
// returns false for the ID of another cluster, beside the ID of the client's own. The id is "" for
// a server that does not name its cluster.
func (k *KnownCluster) Check(id string) (own string, ok bool) {
	if id == "" {
		return "", true
	}
	if k.metadata.Load() == nil {
		k.metadata.CompareAndSwap(nil, &map[string]string{ClusterKey: id})
	}
	own = (*k.metadata.Load())[ClusterKey]
	return own, own == id
}
