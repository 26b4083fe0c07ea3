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

// meant is the cluster that a Client began with. It is told with every call, so that
// another one does nothing; and who answers says which one it is. It is a
// credentials.PerRPCCredentials.
type meant struct {
	told atomic.Pointer[map[string]string] // nil until a server has said who it is
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (m *meant) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if told := m.told.Load(); told != nil {
		return *told, nil
	}
	return nil, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials: it is no secret.
func (m *meant) RequireTransportSecurity() bool { return false }

// met notes who answered at an address; "" is a server that does not say.
func (m *meant) met(addr, id string) error {
	if id == "" {
		return nil
	}
	if m.told.Load() == nil {
		m.told.CompareAndSwap(nil, &map[string]string{wire.ClusterKey: id})
	}
	own := (*m.told.Load())[wire.ClusterKey]
	if own == id {
		return nil
	}
	return fmt.Errorf("%w at %s: it is cluster %s, and this client began with cluster %s: look at the addresses, or make a new client",
		ErrOtherCluster, addr, id, own)
}

// met judges what a server answered by the cluster that it says it belongs to.
func (v *server) met(r any, err error) error {
	if err != nil {
		return err
	}
	if who, ok := r.(interface{ GetClusterId() string }); ok {
		return v.meant.met(v.addr, who.GetClusterId())
	}
	return nil
}

// estranged makes an error of the refusal of another cluster's server.
func estranged(err error) (error, bool) {
	switch {
	case errors.Is(err, ErrOtherCluster):
		return err, true
	case status.Code(err) == codes.FailedPrecondition:
		return fmt.Errorf("%w: %s", ErrOtherCluster, status.Convert(err).Message()), true
	}
	return nil, false
}

// estranged ends all locks: every server that is known belongs to another cluster.
func (k *keeper) estranged(why error) {
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
