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
	// termWait bounds how long a push waits for a read of its term, and for an answer of its
	// primary, which waits longer and pushes again when it was refused.
	termWait = time.Second
	// termPoll is how often it sees whether that answer has come.
	termPoll = 5 * time.Millisecond
	// lookWait is how long others wait for a read before they begin their own: a call on a share
	// may never return. At most lookMany are under way.
	lookWait = 5 * time.Second
	lookMany = 8
)

// ErrUnseenTerm refuses a push of a term that the volume does not show here: its primary is ahead
// of what this server reads, or it is a forged push.
var ErrUnseenTerm = errors.New("the volume does not show that this term began")

// terms caches the newest term of which this server has read on the volume that it began. Callers
// that come while a read is under way wait for its end. The zero value is ready.
type terms struct {
	mu struct {
		sync.Mutex
		began cluster.Epoch
		looks int           // under way
		look  chan struct{} // closed at the end of the newest of them; nil without one
		since time.Time     // the newest began
	}
	handover sync.Mutex // held while one is checked
}

// began reports whether the volume shows the term of epoch e. It calls look, which may hang, and
// waits for it for termWait at most.
func (r *terms) began(e cluster.Epoch, look func(cluster.Epoch) bool) bool {
	t := time.NewTimer(termWait)
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

func (r *terms) newest() cluster.Epoch {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.began
}

// join begins a read of the caller's own, unless it may wait for one that is under way; done is
// closed at the end of that read.
func (r *terms) join(e cluster.Epoch, look func(cluster.Epoch) bool) (seen bool, done chan struct{}, own bool) {
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

// awaitTerm reports whether the volume shows the term of epoch e. If its primary has not confirmed
// it yet at its own address, it is asked.
func (n *Node) awaitTerm(e cluster.Epoch) bool {
	if n.terms.began(e, n.showsTerm) {
		return true
	}
	n.elector.Ask()
	t, end := time.NewTicker(termPoll), time.Now().Add(termWait)
	defer t.Stop()
	for !n.answersAs(e) {
		if now := <-t.C; now.After(end) {
			return false
		}
	}
	return n.terms.began(e, n.showsTerm)
}

// showsTerm reads on the volume whether the term of epoch e began and is not fenced: one that is
// over pushes nothing any more.
func (n *Node) showsTerm(e cluster.Epoch) bool {
	began, fenced := n.readTerm(e)
	return began && !fenced
}

// readTerm reads the state of a term. It looks up no name that is not listed and that no server of
// the cluster has named from its own address: a cache would remember that it is missing, and a
// takeover needs the name when it exists.
func (n *Node) readTerm(e cluster.Epoch) (began, fenced bool) {
	if !n.answersAs(e) {
		if listed, err := n.vol.Listed(e); err != nil || !listed {
			return false, false
		}
	}
	began, fenced, err := n.vol.TermState(context.Background(), e)
	return err == nil && began, fenced
}

// hasBegun reads on the volume whether the term of epoch e began. It may be over.
func (n *Node) hasBegun(e cluster.Epoch) bool {
	began, _ := n.readTerm(e)
	return began
}

// answersAs reports whether another server answered at its own address as primary of epoch e.
func (n *Node) answersAs(e cluster.Epoch) bool {
	for _, p := range n.elector.Peers() {
		s := p.Answered
		if p.Reachable && s.Epoch == e && (s.Role == election.RoleFencing || s.Role == election.RolePrimary) {
			return true
		}
	}
	return false
}

// resigned returns nil if the term of epoch e has ended on purpose: it is the newest on the volume,
// and the server that claimed it answers at its own address that it is not primary.
func (n *Node) resigned(ctx context.Context, e cluster.Epoch) error {
	if !n.terms.handover.TryLock() {
		return fmt.Errorf("%w: another handover is under way", ErrNotResigned)
	}
	defer n.terms.handover.Unlock()
	began, fenced, err := n.vol.TermState(ctx, e)
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
