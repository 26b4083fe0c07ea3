// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"testing"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

// Site is a cluster and what can be broken around it. What it lacks is nil.
type Site struct {
	Name    string
	Cluster *cluster.Cluster
	// Floor is how many calls a second must get through while nothing is wrong.
	Floor float64
}

// Local is a volume in a directory of the local disk.
func Local(t testing.TB, binary string) *Site {
	t.Helper()
	return &Site{Name: "local disk", Cluster: cluster.Start(t, cluster.Options{Binary: binary}), Floor: 100}
}

// Settle makes the volume readable for the test when no server runs any more,
// and says where it is.
func (s *Site) Settle() (dir string, err error) {
	return s.Cluster.Dir(), nil
}

// Place is where a site can be opened.
type Place struct {
	Name      string
	Available func() error
	Open      func(t testing.TB, binary string) *Site
}

// Places are all of them.
func Places() []Place {
	return []Place{{Name: "local", Available: func() error { return nil }, Open: Local}}
}
