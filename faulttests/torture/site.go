// SPDX-License-Identifier: Apache-2.0

//go:build linux

package torture

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/fuse"
	"github.com/holdfast-lock/holdfast/faulttests/gluster"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

// Site is a cluster with its storage and network, in which faults can be injected. Parts that the
// site does not have are nil.
type Site struct {
	Name    string
	Cluster *cluster.Cluster
	Net     *cluster.Net
	Share   *fuse.Share
	Mounts  map[hf.ServerID]*fuse.Mount
	Gluster *gluster.Volume
	// Loss sums up what power losses took so far.
	Loss fuse.Loss
	// Floor is how many calls per second must succeed while there is no fault.
	Floor float64

	struck atomic.Bool // a fault is at work
}

// Settle makes the volume complete and readable for the test when no server runs
// any more, and says where it is.
func (s *Site) Settle() (dir string, err error) {
	if s.Share != nil {
		err = s.Share.Close()
	}
	return s.Cluster.Dir(), err
}

// Place is a kind of site that can be opened.
type Place struct {
	Name      string
	Available func() error
	Open      func(t testing.TB, binary string, seed uint64) *Site
}

// Places returns all kinds of sites.
func Places() []Place {
	return []Place{
		{Name: "local", Available: func() error { return nil }, Open: local},
		shared("fuse", fuse.Strict()),
		shared("fuse with stale caches", fuse.Stale(time.Second)),
		bricks("gluster"),
	}
}

// local is a volume in a directory of the local disk, and a network of its own.
func local(t testing.TB, binary string, _ uint64) *Site {
	t.Helper()
	net := cluster.NewNet(t)
	return &Site{Name: "local", Net: net, Cluster: cluster.Start(t, cluster.Options{Binary: binary, Net: net}), Floor: 100}
}
