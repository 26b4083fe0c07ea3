// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/retry"
)

// checkCluster returns err, or the error of an answer that names another cluster.
func (v *server) checkCluster(r any, err error) error {
	if err != nil {
		return err
	}
	who, ok := r.(interface{ GetClusterId() string })
	if !ok {
		return nil
	}
	own, ok := v.known.Check(who.GetClusterId())
	if ok {
		return nil
	}
	return fmt.Errorf("%w at %s: it is cluster %s, and this client began with cluster %s: look at the addresses, or make a new client",
		ErrOtherCluster, v.addr, who.GetClusterId(), own)
}

// otherCluster returns the error of a server of another cluster, and reports whether err is one:
// such a server refuses calls that name this one.
func otherCluster(err error) (error, bool) {
	switch {
	case retry.OfError(err) != retry.OtherCluster:
		return nil, false
	case errors.Is(err, ErrOtherCluster):
		return err, true
	}
	return fmt.Errorf("%w: %s", ErrOtherCluster, status.Convert(err).Message()), true
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
