// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/wire"
)

// ErrOtherCluster is the error of a call that found, at the addresses it knows, servers of
// another cluster than the one this Client began with: the volume was made anew, say, or
// the addresses were given away. Client IDs, tokens and LSNs mean something else there.
// If the old cluster is no more, make a new Client.
var ErrOtherCluster = errors.New("another cluster answers")

// knownCluster is the cluster that a Client began with. Every call names it, so that a server of
// another cluster does nothing, and every server that answers says which one it belongs to. It
// implements credentials.PerRPCCredentials.
type knownCluster struct {
	metadata atomic.Pointer[map[string]string] // nil until a server has named its cluster
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (k *knownCluster) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if m := k.metadata.Load(); m != nil {
		return *m, nil
	}
	return nil, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials: the name of a cluster is no
// secret.
func (k *knownCluster) RequireTransportSecurity() bool { return false }

// check compares the cluster of a server that answered at an address, and notes that of the first
// one. It returns an error that wraps ErrOtherCluster for another one. The id is "" for a server
// that does not name its cluster.
func (k *knownCluster) check(addr, id string) error {
	if id == "" {
		return nil
	}
	if k.metadata.Load() == nil {
		k.metadata.CompareAndSwap(nil, &map[string]string{wire.ClusterKey: id})
	}
	own := (*k.metadata.Load())[wire.ClusterKey]
	if own == id {
		return nil
	}
	return fmt.Errorf("%w at %s: it is cluster %s, and this client began with cluster %s: look at the addresses, or make a new client",
		ErrOtherCluster, addr, id, own)
}

// checkCluster returns err, or the error of an answer that names another cluster.
func (v *server) checkCluster(r any, err error) error {
	if err != nil {
		return err
	}
	if who, ok := r.(interface{ GetClusterId() string }); ok {
		return v.known.check(v.addr, who.GetClusterId())
	}
	return nil
}

// otherCluster returns the error of a server of another cluster, and reports whether err is one:
// such a server refuses calls that name this one.
func otherCluster(err error) (error, bool) {
	switch {
	case errors.Is(err, ErrOtherCluster):
		return err, true
	case status.Code(err) == codes.FailedPrecondition:
		return fmt.Errorf("%w: %s", ErrOtherCluster, status.Convert(err).Message()), true
	}
	return nil, false
}

// loseAll ends all locks, because every server that is known belongs to another cluster.
func (k *leaseRenewer) loseAll(why error) {
	k.mu.Lock()
	var all []*Lock
	for l := range k.handles() {
		all = append(all, l)
	}
	k.mu.Unlock()
	for _, l := range all {
		l.lose(l.lost(LossOtherCluster, why))
	}
}
