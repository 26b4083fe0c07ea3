// SPDX-License-Identifier: Apache-2.0

package election

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Leader is who leads. The zero value says that nobody does.
type Leader struct {
	// Token is the number of the term; 0 = nobody leads.
	Token cluster.Token
	// Epoch is the reign that granted it.
	Epoch cluster.Epoch
	// Value is what the leader says of itself.
	Value string
	// Client and Holder tell which process it is.
	Client cluster.ClientID
	Holder clientlib.Holder
	// Since is when it was granted, for people. Zero where that is not known.
	Since time.Time
}

// Present says that somebody leads.
func (l Leader) Present() bool { return l.Token != 0 }

// Leader is who leads now, by the word of the primary; ErrNoLeader if nobody does.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	info, err := e.c.Get(ctx, e.name)
	if err != nil {
		return Leader{}, err
	}
	l := leaderOf(&info)
	if !l.Present() {
		return l, ErrNoLeader
	}
	return l, nil
}

// leaderOf is whoever has the lock alone. Somebody who shares it leads nobody.
func leaderOf(l *clientlib.LockInfo) Leader {
	h := l.Holder
	if h == nil || h.Mode == wire.ModeWord(pb.Mode_MODE_SHARED) {
		return Leader{}
	}
	return Leader{
		Token: h.Token, Epoch: l.GrantEpoch, Value: l.Metadata, Client: h.Client,
		Holder: holderOf(h), Since: l.Since,
	}
}

func holderOf(h *wire.Holder) clientlib.Holder {
	return clientlib.Holder{Host: h.Host, PID: int(h.PID), Command: h.Command}
}

// Observe yields who leads at present, also if that is nobody, and again after each
// change of the leader or its value. The latest is what counts: who takes long over one
// misses those that have passed meanwhile, never the last. It goes on over failovers, and
// is told by a replica, a moment late: for a word to act upon without a check, see Leader.
// The sequence ends with an error: that of ctx, a refusal, or that no server answered
// for the client's Budget.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		o := &observer{e: e, changed: make(chan struct{}, 1)}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			o.follow(ctx)
		}()
		defer func() {
			cancel()
			<-ended
		}()
		for told := (*Leader)(nil); ; {
			<-o.changed
			latest, err := o.take()
			if latest != nil && (told == nil || !latest.same(told)) {
				if told = latest; !yield(*latest, nil) {
					return
				}
			}
			if err != nil {
				yield(Leader{}, err)
				return
			}
		}
	}
}

// same says that there is nothing to tell.
func (l *Leader) same(m *Leader) bool { return l.Token == m.Token && l.Value == m.Value }

// observer follows the lock of an election.
type observer struct {
	e       *Election
	changed chan struct{} // has room for one word: look
	coming  Leader        // of a reset that is not complete

	mu struct {
		sync.Mutex
		latest *Leader // nil before the first reset is complete
		err    error   // that the watch ended with
	}
}

// take is what is known at this moment.
func (o *observer) take() (*Leader, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.latest == nil {
		return nil, o.mu.err
	}
	latest := *o.mu.latest
	return &latest, o.mu.err
}

// follow watches until ctx ends or the watch does.
func (o *observer) follow(ctx context.Context) {
	for ev, err := range o.e.c.Watch(ctx, clientlib.WatchOptions{Lock: o.e.name, Kinds: kinds()}) {
		o.mu.Lock()
		if err != nil {
			o.mu.err = err
		} else {
			o.event(&ev)
		}
		o.mu.Unlock()
		select {
		case o.changed <- struct{}{}:
		default: // it will look anyway
		}
	}
}

// kinds are the events that change a leader or its value. An EventForceClear comes in any case.
func kinds() []clientlib.EventKind {
	return []clientlib.EventKind{
		clientlib.EventGrant, clientlib.EventMetadata, clientlib.EventRelease, clientlib.EventExpire, clientlib.EventBreak,
		clientlib.EventDowngrade,
	}
}

// event takes what happened. It is called with mu held.
func (o *observer) event(e *clientlib.Event) {
	if e.Kind == clientlib.EventReset {
		o.reset(e.Reset)
		return
	}
	if o.mu.latest == nil {
		return // a reset comes first
	}
	switch now := o.mu.latest; {
	case e.Kind == clientlib.EventGrant && e.Shared:
		*now = Leader{} // who led has let go, or nobody did
	case e.Kind == clientlib.EventGrant:
		*now = Leader{Token: e.Token, Epoch: e.Epoch, Value: e.Metadata, Client: e.Client, Holder: e.Holder, Since: e.Time}
	case e.Kind == clientlib.EventForceClear:
		*now = Leader{}
	case e.Token != now.Token || e.Lock != o.e.name:
	case e.Kind == clientlib.EventMetadata:
		now.Value = e.Metadata
	case e.Kind == clientlib.EventRelease, e.Kind == clientlib.EventExpire, e.Kind == clientlib.EventBreak, e.Kind == clientlib.EventDowngrade:
		*now = Leader{}
	}
}

// reset takes a piece of the state. It counts when it is complete.
func (o *observer) reset(r *clientlib.Reset) {
	if r.Part == 0 {
		o.coming = Leader{}
	}
	for i := range r.Locks {
		if r.Locks[i].Name == o.e.name {
			o.coming = leaderOf(&r.Locks[i])
		}
	}
	if r.Last {
		latest := o.coming
		o.mu.latest = &latest
	}
}
