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

// Fault is one fault that can be injected into a cluster.
type Fault struct {
	// Name is the same in reports, flags and tests.
	Name string
	// Needs returns why the fault cannot be injected at a site, nil if it can. A nil Needs
	// is for faults that every site supports.
	Needs func(*Site) error
	// Inject injects the fault. It returns mend, which ends it; nil if nothing is left to do.
	Inject func(context.Context, *Strike) (mend func() error, err error)
	// Lasts is how long it lasts before mend is called.
	Lasts time.Duration
	// Deposes is true if the fault ends the term of the present primary, so that the time until
	// a later term answers a client is a failover.
	Deposes bool
}

// Strike is one injection of a fault, with the objects that Inject may use.
type Strike struct {
	Site    *Site
	Rand    *rand.Rand
	Primary *cluster.Server // of the moment
	Epoch   hf.Epoch        // of its term
}

// Replica returns a running server that is not the primary.
func (s *Strike) Replica() *cluster.Server {
	for _, i := range s.Rand.Perm(3) {
		if x := s.Site.Cluster.Servers()[i]; x != s.Primary && x.Running() {
			return x
		}
	}
	return s.Primary
}

// Anyone returns a running server, every other time the primary.
func (s *Strike) Anyone() *cluster.Server {
	if s.Rand.IntN(2) == 0 {
		return s.Primary
	}
	return s.Replica()
}

// All returns every fault, in the order in which a short run injects them.
func All() []Fault {
	var all []Fault
	for _, some := range [][]Fault{processFaults(), networkFaults(), callFaults(), shareFaults(), brickFaults()} {
		all = append(all, some...)
	}
	return all
}

// Usable returns the faults that a site supports, and the reasons for the others by name.
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
