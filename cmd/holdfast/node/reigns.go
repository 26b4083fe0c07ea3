// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

const (
	// reignWait bounds how long a push waits for a look at its reign, and for an answer of its
	// primary. That waits longer, and pushes again when it was refused.
	reignWait = time.Second
	// reignPoll is how often it sees whether that answer has come.
	reignPoll = 5 * time.Millisecond
	// lookWait is how long others wait for a look before one begins beside it: a call on a share
	// may never come back. At most lookMany are under way.
	lookWait = 5 * time.Second
	lookMany = 8
)

// ErrUnseenReign refuses a push of a reign that the volume does not show here: nobody but its
// primary can have sent it, or somebody who has no business here.
var ErrUnseenReign = errors.New("the volume does not show that this reign began")

// reigns is the newest reign of which this server has read on the volume that it began. Who comes
// while a look is under way waits for its end. The zero value is ready.
type reigns struct {
	mu struct {
		sync.Mutex
		began cluster.Epoch
		looks int           // under way
		look  chan struct{} // closed at the end of the newest of them; nil without one
		since time.Time     // the newest began
	}
	handover sync.Mutex // held while one is looked into
}

// began reports whether the volume shows the reign of epoch e. It asks look, which may hang, and
// waits for it a while.
func (r *reigns) began(e cluster.Epoch, look func(cluster.Epoch) bool) bool {
	t := time.NewTimer(reignWait)
	defer t.Stop()
	for {
		seen, done, own := r.join(e, look)
		if seen {
			return true
		}
		select {
		case <-done:
		case <-t.C:
			return false
		}
		if own {
			return r.newest() == e
		}
	}
}

func (r *reigns) newest() cluster.Epoch {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.began
}

// join begins a look of the caller's own, unless it may wait for one that is under way; done is
// closed at the end of that look.
func (r *reigns) join(e cluster.Epoch, look func(cluster.Epoch) bool) (seen bool, done chan struct{}, own bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.began == e || r.mu.look != nil && (time.Since(r.mu.since) < lookWait || r.mu.looks == lookMany) {
		return r.mu.began == e, r.mu.look, false
	}
	done = make(chan struct{})
	r.mu.look, r.mu.since = done, time.Now()
	r.mu.looks++
	go func() {
		seen := look(e)
		r.mu.Lock()
		defer r.mu.Unlock()
		if seen {
			r.mu.began = max(r.mu.began, e)
		}
		r.mu.looks--
		if r.mu.look == done {
			r.mu.look = nil
		}
		close(done)
	}()
	return false, done, true
}

// awaitReign reports whether the volume shows the reign of epoch e. What its primary has not
// told yet, at its own address, it is asked.
func (n *Node) awaitReign(e cluster.Epoch) bool {
	if n.reigns.began(e, n.showsReign) {
		return true
	}
	n.elector.Ask()
	t, end := time.NewTicker(reignPoll), time.Now().Add(reignWait)
	defer t.Stop()
	for !n.answersAs(e) {
		if now := <-t.C; now.After(end) {
			return false
		}
	}
	return n.reigns.began(e, n.showsReign)
}

// showsReign reads on the volume whether the reign of epoch e began and nobody has fenced it: one
// that is over pushes nothing any more.
func (n *Node) showsReign(e cluster.Epoch) bool {
	began, fenced := n.readReign(e)
	return began && !fenced
}

// readReign reads the state of a reign. It looks up no name that nobody speaks of at an address of
// the cluster and that is not listed: a cache would remember that it is not there, and a takeover
// needs it when it is.
func (n *Node) readReign(e cluster.Epoch) (began, fenced bool) {
	if !n.answersAs(e) {
		if listed, err := n.vol.Listed(e); err != nil || !listed {
			return false, false
		}
	}
	began, fenced, err := n.vol.ReignState(context.Background(), e)
	return err == nil && began, fenced
}

// hasBegun reads on the volume whether the reign of epoch e began. It may be over.
func (n *Node) hasBegun(e cluster.Epoch) bool {
	began, _ := n.readReign(e)
	return began
}

// answersAs reports whether another server said at its own address that it reigns in epoch e.
func (n *Node) answersAs(e cluster.Epoch) bool {
	for _, p := range n.elector.Peers() {
		s := p.Answered
		if p.Reachable && s.Epoch == e && (s.Role == election.RoleFencing || s.Role == election.RolePrimary) {
			return true
		}
	}
	return false
}

// resigned proves that the reign of epoch e has ended by its own will: it is the newest on the
// volume, and who claimed it says at its own address that it does not reign.
func (n *Node) resigned(ctx context.Context, e cluster.Epoch) error {
	if !n.reigns.handover.TryLock() {
		return fmt.Errorf("%w: another handover is under way", ErrNotResigned)
	}
	defer n.reigns.handover.Unlock()
	began, fenced, err := n.vol.ReignState(ctx, e)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrNotResigned, err)
	case fenced:
		return ErrLateHandover
	case !began:
		return ErrNotResigned
	}
	id, err := n.vol.Claimant(e)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotResigned, err)
	}
	if !n.elector.Resigned(ctx, id) {
		return ErrNotResigned
	}
	return nil
}
