// SPDX-License-Identifier: Apache-2.0

//go:build linux

package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

const (
	// healing bounds how long a cluster may take to be healthy again. On a slow
	// filesystem a takeover that failed backs off, and a hung one is noticed after
	// the storage timeout.
	healing = 90 * time.Second
	// rateWindow is how long calls are counted to know their rate.
	rateWindow = 500 * time.Millisecond
	// calm is how long clients work between two faults.
	calm = 500 * time.Millisecond
)

// Campaign is one round: a site, the clients on it, and the faults that are injected.
type Campaign struct {
	T       testing.TB
	Site    *Site
	Traffic *Traffic
	Rand    *rand.Rand
	// Floor is how many calls per second must succeed while there is no fault.
	Floor float64
	// Strikes are what happened, in order.
	Strikes []Result

	calmCalls int           // that got through without a fault
	calmTime  time.Duration // and how long that was
}

// Result is the result of one injected fault.
type Result struct {
	Fault   string
	At      time.Time
	Epoch   hf.Epoch // that was primary before
	After   hf.Epoch // that was primary when all was well again
	Deposes bool
	// Healed is the time from the end of the fault to a healthy cluster.
	Healed time.Duration
	// During is how many calls succeeded between the injection and the end of the fault.
	During int
}

// Run injects the faults in the given order, until all were injected or the
// limit is over; at least one. It fails the test if the cluster is not healthy in time.
func (c *Campaign) Run(ctx context.Context, faults []Fault, limit time.Duration) {
	began := time.Now()
	for i, f := range faults {
		if i > 0 && time.Since(began) > limit {
			return
		}
		if !c.rest(ctx) || !c.strike(ctx, f) {
			return
		}
	}
	c.rest(ctx)
}

// rest lets the clients work on a healthy cluster, and counts what they do.
func (c *Campaign) rest(ctx context.Context) bool {
	began, before := time.Now(), c.Traffic.Calls()
	traffic.Rest(ctx, calm)
	c.calmCalls += c.Traffic.Calls() - before
	c.calmTime += time.Since(began)
	return ctx.Err() == nil
}

// strike injects one fault and mends it, between two healthy states.
func (c *Campaign) strike(ctx context.Context, f Fault) bool {
	s, took, err := c.healthy(ctx, 0)
	if err != nil {
		c.T.Errorf("I15: before %q: not healthy after %v: %v", f.Name, took.Round(time.Millisecond), err)
		return false
	}
	r := Result{Fault: f.Name, At: time.Now(), Epoch: s.Epoch, Deposes: f.Deposes}
	before := c.Traffic.Calls()
	c.Site.struck.Store(true)
	mend, err := f.Inject(ctx, s)
	if err == nil {
		traffic.Rest(ctx, f.Lasts)
	}
	r.During = c.Traffic.Calls() - before
	mended := time.Now()
	if mend != nil {
		if failed := mend(); failed != nil && err == nil {
			err = failed
		}
	}
	if err != nil {
		c.T.Errorf("%s: %v", f.Name, err)
		return false
	}
	behind := hf.Epoch(0)
	if f.Deposes {
		behind = s.Epoch // its end may show a moment later
	}
	after, took, err := c.healthy(ctx, behind)
	if err != nil {
		c.T.Errorf("I15: %v after %q was mended: not healthy: %v", took.Round(time.Millisecond), f.Name, err)
		return false
	}
	c.Site.struck.Store(false)
	r.After, r.Healed = after.Epoch, time.Since(mended)
	c.Strikes = append(c.Strikes, r)
	c.T.Logf("%-44s epoch %d -> %d, %d calls meanwhile, healthy %v after mending", f.Name, r.Epoch, r.After, r.During, r.Healed.Round(time.Millisecond))
	return true
}

// healthy waits until one primary of a later epoch than behind serves, every
// server is able, and clients get through.
func (c *Campaign) healthy(ctx context.Context, behind hf.Epoch) (s *Strike, took time.Duration, err error) {
	began := time.Now()
	err = fmt.Errorf("no primary")
	cluster.Poll(ctx, healing, func() bool {
		s, err = c.look(ctx)
		if err == nil && s.Epoch <= behind {
			err = fmt.Errorf("epoch %d is still served: the fault is no fault", s.Epoch)
		}
		return err == nil
	})
	return s, time.Since(began), err
}

func (c *Campaign) look(ctx context.Context) (*Strike, error) {
	// As a supervisor would: a server whose calls hang for too long ends by itself.
	c.Site.Cluster.StartAll()
	p, epoch := c.Site.Cluster.Primary(ctx)
	if p == nil {
		return nil, fmt.Errorf("no primary")
	}
	body, err := p.Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, x := range body.Servers {
		if hf.ServerID(x.ID) != p.Member.ID && (x.Role != "replica" || !x.Able) {
			return nil, fmt.Errorf("server %d is %s, able %v", x.ID, x.Role, x.Able)
		}
	}
	before := c.Traffic.Calls()
	traffic.Rest(ctx, rateWindow)
	if rate := float64(c.Traffic.Calls()-before) / rateWindow.Seconds(); rate < c.Floor/2 {
		return nil, fmt.Errorf("%.1f calls/s, want %.1f", rate, c.Floor/2)
	}
	return &Strike{Site: c.Site, Rand: c.Rand, Primary: p, Epoch: hf.Epoch(epoch)}, nil
}

// Rate returns how many calls per second succeeded while there was no fault. A round
// below the floor does not count: faults without traffic prove nothing.
func (c *Campaign) Rate() float64 {
	if c.calmTime == 0 {
		return 0
	}
	return float64(c.calmCalls) / c.calmTime.Seconds()
}
