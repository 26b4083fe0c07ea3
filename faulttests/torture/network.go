// SPDX-License-Identifier: Apache-2.0

//go:build linux

package torture

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

// networkFaults cut and thin the network between servers and clients. The volume
// stays reachable for all.
func networkFaults() []Fault {
	net := func(name string, lasts time.Duration, deposes bool, cut func(*cluster.Net, *Strike) (mend func())) Fault {
		return Fault{
			Name: name, Lasts: lasts, Deposes: deposes,
			Needs: func(s *Site) error {
				if s.Net == nil {
					return errNoNetwork
				}
				return nil
			},
			Inject: func(_ context.Context, s *Strike) (func() error, error) {
				mend := cut(s.Site.Net, s)
				return func() error { mend(); return nil }, nil
			},
		}
	}
	const long = 3 * time.Second
	return []Fault{
		net("isolate the primary", long, true, func(n *cluster.Net, s *Strike) func() { return n.Isolate(s.Primary.Member.ID) }),
		net("isolate a replica", long, false, func(n *cluster.Net, s *Strike) func() { return n.Isolate(s.Replica().Member.ID) }),
		net("the primary is not heard by a replica", long, false, func(n *cluster.Net, s *Strike) func() {
			return n.Cut(s.Primary.Member.ID, s.Replica().Member.ID)
		}),
		net("the primary does not hear a replica", long, false, func(n *cluster.Net, s *Strike) func() {
			return n.Cut(s.Replica().Member.ID, s.Primary.Member.ID)
		}),
		net("the primary hears nobody", long, true, func(n *cluster.Net, s *Strike) func() {
			return all(s, func(other *cluster.Server) func() { return n.Cut(other.Member.ID, s.Primary.Member.ID) })
		}),
		net("nobody hears the primary", long, true, func(n *cluster.Net, s *Strike) func() {
			return all(s, func(other *cluster.Server) func() { return n.Cut(s.Primary.Member.ID, other.Member.ID) })
		}),
		net("clients do not reach the primary", long, false, func(n *cluster.Net, s *Strike) func() {
			return n.CutClients(s.Primary.Member.ID)
		}),
		net("a fifth of all packets of a server are lost", long, false, func(n *cluster.Net, s *Strike) func() {
			return n.Lose(s.Anyone().Member.ID, 0.2)
		}),
	}
}

// all does something about every server but the primary.
func all(s *Strike, do func(*cluster.Server) (mend func())) (mend func()) {
	var mends []func()
	for _, x := range s.Site.Cluster.Servers() {
		if x != s.Primary {
			mends = append(mends, do(x))
		}
	}
	return func() {
		for _, m := range mends {
			m()
		}
	}
}
