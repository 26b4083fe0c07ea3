// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// LockState is what a Mirror knows of a lock: what events tell exactly. What is
// left of a lease is not in it, for renewals are no events, nor who waits and which
// files there are, for a reset only counts them: see Client.Get. Two of them may be
// compared with ==.
type LockState struct {
	Name cluster.LockName
	// Holder is the zero value if nobody holds the lock. Of several who share it it is the
	// oldest, and so are the fields up to Ask; SharedWith lists the others.
	Holder wire.Holder
	// TTL, GrantEpoch and Request are of the grant, and Metadata is what its holder says.
	TTL        time.Duration
	GrantEpoch cluster.Epoch
	Request    cluster.RequestID
	Metadata   string
	// Ask is the zero value unless the holder is asked to let go. What remains of the
	// grace is not told.
	Ask Ask
	// QueueLength is how many wait, FileCount how many files are bound to the lock.
	QueueLength, FileCount int

	others string // as sharersText writes them, so that states can be compared
}

// LockSharer is one of several who share a lock; see LockState.
type LockSharer struct {
	wire.Holder
	TTL        time.Duration
	GrantEpoch cluster.Epoch
	Request    cluster.RequestID
	Metadata   string
	Ask        Ask
}

// SharedWith lists who holds the lock beside Holder, the oldest first: as many as a reset
// told of. Holder.Holders counts all.
func (l *LockState) SharedWith() (all []LockSharer) {
	if l.others != "" {
		_ = json.Unmarshal([]byte(l.others), &all) // sharersText wrote it
	}
	return all
}

func sharersText(all []LockSharer) string {
	if len(all) == 0 {
		return ""
	}
	b, _ := json.Marshal(all) // nothing in it can fail
	return string(b)
}

// Held says that somebody holds the lock. One that nobody holds and somebody waits
// for is about to be granted: the next event says to whom.
func (l *LockState) Held() bool { return l.Holder.Token != 0 }

// idle says that there is nothing to know of the lock.
func (l *LockState) idle() bool { return !l.Held() && l.QueueLength == 0 && l.FileCount == 0 }

// free takes the grant away.
func (l *LockState) free() {
	*l = LockState{Name: l.Name, QueueLength: l.QueueLength, FileCount: l.FileCount}
}

func lockStateOf(l *LockInfo) LockState {
	s := LockState{
		Name: l.Name, TTL: l.TTL, GrantEpoch: l.GrantEpoch, Request: l.Request,
		Metadata: l.Metadata, QueueLength: l.QueueLength, FileCount: l.FileCount,
	}
	if l.Holder != nil {
		s.Holder = *l.Holder
		s.Holder.Mode = cmp.Or(s.Holder.Mode, wire.ModeWord(pb.Mode_MODE_EXCLUSIVE)) // an older server says nothing
		s.Holder.Holders = max(1, s.Holder.Holders)
	}
	if l.Ask != nil {
		s.Ask = *l.Ask
		s.Ask.Remaining = 0
	}
	all := make([]LockSharer, len(l.SharedWith))
	for i, x := range l.SharedWith {
		all[i] = LockSharer{Holder: x.Holder, TTL: x.TTL, GrantEpoch: x.GrantEpoch, Request: x.Request, Metadata: x.Metadata}
		if all[i].Holders = 0; x.Ask != nil {
			all[i].Ask = *x.Ask
			all[i].Ask.Remaining = 0
		}
	}
	s.others = sharersText(all)
	return s
}

// sharer is the grant that is shown as the lock's own.
func (l *LockState) sharer() LockSharer {
	x := LockSharer{Holder: l.Holder, TTL: l.TTL, GrantEpoch: l.GrantEpoch, Request: l.Request, Metadata: l.Metadata, Ask: l.Ask}
	x.Holders = 0
	return x
}

// show makes a grant the one that is shown as the lock's own.
func (l *LockState) show(x *LockSharer) {
	count := l.Holder.Holders
	l.Holder, l.TTL, l.GrantEpoch, l.Request, l.Metadata, l.Ask = x.Holder, x.TTL, x.GrantEpoch, x.Request, x.Metadata, x.Ask
	l.Holder.Holders = count
}

// join adds a holder. False: it cannot hold the lock together with those who do.
func (l *LockState) join(x *LockSharer) bool {
	l.Holder.Holders++
	if l.Holder.Holders == 1 {
		l.show(x)
		return true
	}
	if x.Mode != sharedWord || l.Holder.Mode != sharedWord {
		return false
	}
	if all := l.SharedWith(); len(all)+2 == int(l.Holder.Holders) { // else they are not all known
		l.others = sharersText(append(all, *x))
	}
	return true
}

const sharedWord = "shared"

// change changes the grant with this token, or takes it out if f is nil. False: it is not
// there, or who is shown next is not known.
func (l *LockState) change(token cluster.Token, f func(*LockSharer)) bool {
	if !l.Held() {
		return false
	}
	all := l.SharedWith()
	whole := len(all)+1 == int(l.Holder.Holders)
	if l.Holder.Token == token {
		switch {
		case f != nil:
			own := l.sharer()
			f(&own)
			l.show(&own)
		case l.Holder.Holders == 1:
			l.free()
		case len(all) == 0:
			return false
		default:
			l.Holder.Holders--
			l.show(&all[0])
			l.others = sharersText(all[1:])
		}
		return true
	}
	i := slices.IndexFunc(all, func(x LockSharer) bool { return x.Token == token })
	switch {
	case i < 0:
		if f == nil && !whole {
			l.Holder.Holders--
		}
		return !whole
	case f != nil:
		f(&all[i])
	default:
		l.Holder.Holders--
		all = slices.Delete(all, i, i+1)
	}
	l.others = sharersText(all)
	return true
}

// lockStates are the locks of a Mirror: the state at one LSN.
type lockStates map[cluster.LockName]LockState

// reset adds a piece of the state.
func (s lockStates) reset(r *Reset) {
	for i := range r.Locks {
		l := lockStateOf(&r.Locks[i])
		s[l.Name] = l
	}
}

// edit changes locks and remembers what they were: the zero value is one that was not there.
type edit struct {
	locks  lockStates
	before map[cluster.LockName]LockState
}

func (x *edit) put(l LockState) {
	old := x.locks[l.Name]
	if _, known := x.before[l.Name]; !known {
		x.before[l.Name] = old
	}
	if l.idle() {
		delete(x.locks, l.Name)
	} else {
		x.locks[l.Name] = l
	}
}

// undo takes all back.
func (x *edit) undo() {
	for name, l := range x.before {
		if l.Name == "" {
			delete(x.locks, name)
		} else {
			x.locks[name] = l
		}
	}
}

// apply does what an event did. False means that the event does not fit or is of a
// kind that this library does not know: what is known is no state any more.
func (x *edit) apply(e *Event) bool {
	l := x.locks[e.Lock]
	l.Name = e.Lock
	switch e.Kind {
	case EventGrant:
		if l.QueueLength > 0 { // a lock with a queue is granted to those in line
			l.QueueLength--
		}
		if !l.join(sharerOf(e)) {
			return false
		}
	case EventMetadata:
		if !l.change(e.Token, func(x *LockSharer) { x.Metadata = e.Metadata }) {
			return false
		}
	case EventAsk:
		if !l.change(e.Token, func(x *LockSharer) { x.Ask = Ask{Actor: e.Actor, Reason: e.Reason, Grace: e.Wait} }) {
			return false
		}
	case EventDowngrade:
		if !l.change(e.Token, func(x *LockSharer) { x.Mode = sharedWord }) {
			return false
		}
	case EventRelease, EventExpire, EventBreak:
		if !l.change(e.Token, nil) {
			return false
		}
	case EventEnqueue:
		l.QueueLength++
	case EventWaitTimeout:
		l.QueueLength--
	case EventCancel:
		if e.Lock == "" { // it did not wait
			return true
		}
		l.QueueLength--
	case EventBind:
		l.FileCount++
	case EventUnbind:
		l.FileCount--
	case EventForceClear:
		x.clear()
		return true
	case EventAppend, EventQuarantine, EventRotate, EventSeal, EventResigned, EventReign:
		return true
	default:
		return false
	}
	if l.QueueLength < 0 || l.FileCount < 0 {
		return false
	}
	x.put(l)
	return true
}

func sharerOf(e *Event) *LockSharer {
	return &LockSharer{
		Holder: wire.Holder{
			Client: e.Client, Token: e.Token, Host: e.Holder.Host, PID: int64(e.Holder.PID), Command: e.Holder.Command,
			Since: wire.Moment(e.Time.UnixMilli()), Mode: wire.ModeWord(modeOf(e.Shared)),
		},
		TTL: e.TTL, GrantEpoch: e.Epoch, Request: e.Request, Metadata: e.Metadata,
	}
}

// clear drops all holders and waiters.
func (x *edit) clear() {
	for _, l := range x.locks {
		if l.Held() || l.QueueLength > 0 {
			l.free()
			l.QueueLength = 0
			x.put(l)
		}
	}
}

// replace makes the locks others.
func (x *edit) replace(by lockStates) {
	for name, l := range x.locks {
		if by[name] != l {
			x.before[name] = l
		}
	}
	for name := range by {
		if _, known := x.locks[name]; !known {
			x.before[name] = LockState{}
		}
	}
	x.locks = by
}
