// SPDX-License-Identifier: Apache-2.0

//go:build linux

package torture

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

// Fault is one bad thing that can happen to a cluster.
type Fault struct {
	// Name is the same in reports, flags and tests.
	Name string
	// Needs says why it cannot be injected at a site; nil where it can. A nil Needs
	// is for faults that every site can have.
	Needs func(*Site) error
	// Inject does it and returns what mends it; a nil mend where nothing is left to do.
	Inject func(context.Context, *Strike) (mend func() error, err error)
	// Lasts is how long it stays before it is mended.
	Lasts time.Duration
	// Deposes says that the primary of the moment cannot go on, so the time until
	// a client hears from a later reign is a failover.
	Deposes bool
}

// Strike is one injection of a fault. Inject finds in it what it may break.
type Strike struct {
	Site    *Site
	Rand    *rand.Rand
	Primary *cluster.Server // of the moment
	Epoch   hf.Epoch        // of its reign
}

// Replica is a running server that is not the primary.
func (s *Strike) Replica() *cluster.Server {
	for _, i := range s.Rand.Perm(3) {
		if x := s.Site.Cluster.Servers()[i]; x != s.Primary && x.Running() {
			return x
		}
	}
	return s.Primary
}

// Anyone is a running server, every other time the primary.
func (s *Strike) Anyone() *cluster.Server {
	if s.Rand.IntN(2) == 0 {
		return s.Primary
	}
	return s.Replica()
}

// All lists every fault, in the order in which a short run injects them.
func All() []Fault {
	var all []Fault
	for _, some := range [][]Fault{processFaults(), networkFaults(), callFaults(), shareFaults(), brickFaults()} {
		all = append(all, some...)
	}
	return all
}

// Usable are those of the faults that a site can have, and the reasons of the others.
func Usable(all []Fault, s *Site) (usable []Fault, why map[string]error) {
	why = map[string]error{}
	for _, f := range all {
		if f.Needs != nil {
			if err := f.Needs(s); err != nil {
				why[f.Name] = err
				continue
			}
		}
		usable = append(usable, f)
	}
	return usable, why
}

// What sites may lack.
var (
	errNoShare   = errors.New("the site has no share of its own")
	errNoNetwork = errors.New("the site has no network of its own")
	errNoBricks  = errors.New("the site has no bricks")
)
