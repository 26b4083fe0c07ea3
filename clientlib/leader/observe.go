// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
)

// Info describes the leader of an election. The zero value means that there is none.
type Info struct {
	// Token is the number of the leader's term; 0 = there is no leader.
	Token clientlib.Token
	// Epoch is the epoch of the service that granted it.
	Epoch clientlib.Epoch
	// Value is what the leader publishes of itself.
	Value string
	// Client and Holder identify its process.
	Client clientlib.ClientID
	Holder clientlib.Holder
	// Since is when it was granted, for people. Zero where that is not known.
	Since time.Time
}

// Present reports whether there is a leader.
func (l Info) Present() bool { return l.Token != 0 }

// Leader asks the primary for the present leader. It returns ErrNoLeader if there is none.
func (e *Election) Leader(ctx context.Context) (Info, error) {
	info, err := e.c.Get(ctx, e.name)
	if err != nil {
		return Info{}, err
	}
	l := leaderOf(&info)
	if !l.Present() {
		return l, ErrNoLeader
	}
	return l, nil
}

// leaderOf is the holder that has the lock alone. A holder that shares it is no leader.
func leaderOf(l *clientlib.LockInfo) Info {
	h := l.Holder
	if h == nil || h.Mode == clientlib.ModeShared {
		return Info{}
	}
	return Info{
		Token: h.Token, Epoch: l.GrantEpoch, Value: l.Metadata, Client: h.Client,
		Holder: holderOf(h), Since: l.Since,
	}
}

func holderOf(h *clientlib.HolderInfo) clientlib.Holder {
	return clientlib.Holder{User: h.User, Host: h.Host, PID: int(h.PID), Command: h.Command}
}

// Observe yields the present leader, also if there is none, and again after each change of the
// leader or its value. A loop that takes long over one misses those in between, never the latest.
// It goes on over failovers. What it yields comes from a replica, a moment late: before acting
// upon it without a check, call Leader. The sequence ends with an error: that of ctx, a refusal,
// or that no server answered for the client's Budget.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
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
		for last := (*Info)(nil); ; {
			<-o.changed
			latest, err := o.take()
			if latest != nil && (last == nil || !latest.same(last)) {
				if last = latest; !yield(*latest, nil) {
					return
				}
			}
			if err != nil {
				yield(Info{}, err)
				return
			}
		}
	}
}

// same reports whether the leader and its value have not changed.
func (l *Info) same(m *Info) bool { return l.Token == m.Token && l.Value == m.Value }

// observer follows the lock of an election.
type observer struct {
	e       *Election
	changed chan struct{} // has room for one signal
	coming  Info          // of a reset that is not complete

	mu struct {
		sync.Mutex
		latest *Info // nil before the first reset is complete
		err    error // that the watch ended with
	}
}

// take is what is known at this moment.
func (o *observer) take() (*Info, error) {
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
		default: // it is about to wake up
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
		*now = Info{} // the leader has released the lock, or there was none
	case e.Kind == clientlib.EventGrant:
		*now = Info{Token: e.Token, Epoch: e.Epoch, Value: e.Metadata, Client: e.Client, Holder: e.Holder, Since: e.Time}
	case e.Kind == clientlib.EventForceClear:
		*now = Info{}
	case e.Token != now.Token || e.Lock != o.e.name:
	case e.Kind == clientlib.EventMetadata:
		now.Value = e.Metadata
	case e.Kind == clientlib.EventRelease, e.Kind == clientlib.EventExpire, e.Kind == clientlib.EventBreak, e.Kind == clientlib.EventDowngrade:
		*now = Info{}
	}
}

// reset takes a piece of the state. It counts when it is complete.
func (o *observer) reset(r *clientlib.Reset) {
	if r.Part == 0 {
		o.coming = Info{}
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
