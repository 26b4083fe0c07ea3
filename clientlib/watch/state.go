// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
)

// LockState is the state of a lock as far as events determine it. It has not what is left of a
// lease, for renewals are no events, nor the waiters and files themselves, for a reset only
// counts them: see Client.Get. Two of them may be compared with ==.
type LockState struct {
	Name clientlib.LockName
	// Holder is the zero value if the lock is free. Of several that share it, it is the oldest,
	// whose the fields up to Ask are, too; SharedWith lists the others.
	Holder clientlib.HolderInfo
	// TTL, GrantEpoch and Request are those of the grant, and Metadata is the text that its
	// holder publishes.
	TTL        time.Duration
	GrantEpoch clientlib.Epoch
	Request    clientlib.RequestID
	Metadata   string
	// Ask is the zero value unless the holder is asked to release the lock. It has not what
	// remains of the grace.
	Ask clientlib.Ask
	// QueueLength is how many requests wait, FileCount how many files are bound to the lock.
	QueueLength, FileCount int

	others string // as sharersText writes them, so that states can be compared
}

// Sharer is one of several holders of a lock in shared mode; its fields are those of LockState.
type Sharer struct {
	clientlib.HolderInfo
	TTL        time.Duration
	GrantEpoch clientlib.Epoch
	Request    clientlib.RequestID
	Metadata   string
	Ask        clientlib.Ask
}

// SharedWith returns the holders beside Holder, the oldest first: as many as a reset listed.
// Holder.Holders counts all.
func (l *LockState) SharedWith() (all []Sharer) {
	if l.others != "" {
		_ = json.Unmarshal([]byte(l.others), &all) // sharersText wrote it
	}
	return all
}

func sharersText(all []Sharer) string {
	if len(all) == 0 {
		return ""
	}
	b, _ := json.Marshal(all) // nothing in it can fail
	return string(b)
}

// Held reports whether the lock has a holder. A lock that is free and has waiters is about to be
// granted, by the next event.
func (l *LockState) Held() bool { return l.Holder.Token != 0 }

// idle reports whether the lock has no holder, waiters and files.
func (l *LockState) idle() bool { return !l.Held() && l.QueueLength == 0 && l.FileCount == 0 }

// free takes the grant away.
func (l *LockState) free() {
	*l = LockState{Name: l.Name, QueueLength: l.QueueLength, FileCount: l.FileCount}
}

func lockStateOf(l *clientlib.LockInfo) LockState {
	s := LockState{
		Name: l.Name, TTL: l.TTL, GrantEpoch: l.GrantEpoch, Request: l.Request,
		Metadata: l.Metadata, QueueLength: l.QueueLength, FileCount: l.FileCount,
	}
	if l.Holder != nil {
		s.Holder = *l.Holder
		s.Holder.Mode = cmp.Or(s.Holder.Mode, clientlib.ModeExclusive) // an older server leaves it out
		s.Holder.Holders = max(1, s.Holder.Holders)
		s.Holder.PermitsTaken = 0 // the holders tell theirs
	}
	if l.Ask != nil {
		s.Ask = *l.Ask
		s.Ask.Remaining = 0
	}
	all := make([]Sharer, len(l.SharedWith))
	for i, x := range l.SharedWith {
		all[i] = Sharer{HolderInfo: x.HolderInfo, TTL: x.TTL, GrantEpoch: x.GrantEpoch, Request: x.Request, Metadata: x.Metadata}
		if all[i].Holders = 0; x.Ask != nil {
			all[i].Ask = *x.Ask
			all[i].Ask.Remaining = 0
		}
	}
	s.others = sharersText(all)
	return s
}

// sharer returns the grant that is shown as the lock's own.
func (l *LockState) sharer() Sharer {
	x := Sharer{HolderInfo: l.Holder, TTL: l.TTL, GrantEpoch: l.GrantEpoch, Request: l.Request, Metadata: l.Metadata, Ask: l.Ask}
	x.Holders = 0
	return x
}

// show makes a grant the one that is shown as the lock's own.
func (l *LockState) show(x *Sharer) {
	count := l.Holder.Holders
	l.Holder, l.TTL, l.GrantEpoch, l.Request, l.Metadata, l.Ask = x.HolderInfo, x.TTL, x.GrantEpoch, x.Request, x.Metadata, x.Ask
	l.Holder.Holders = count
}

// join adds a holder. It returns false if that cannot hold the lock together with the present
// ones.
func (l *LockState) join(x *Sharer) bool {
	l.Holder.Holders++
	if l.Holder.Holders == 1 {
		l.show(x)
		return true
	}
	if x.Mode != clientlib.ModeShared || l.Holder.Mode != clientlib.ModeShared {
		return false
	}
	if all := l.SharedWith(); len(all)+2 == int(l.Holder.Holders) { // else they are not all known
		l.others = sharersText(append(all, *x))
	}
	return true
}

// change changes the grant with this token, or removes it if f is nil. It returns false if there
// is no such grant, or it is not known which one is shown next.
func (l *LockState) change(token clientlib.Token, f func(*Sharer)) bool {
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
	i := slices.IndexFunc(all, func(x Sharer) bool { return x.Token == token })
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
type lockStates map[clientlib.LockName]LockState

// reset adds a piece of the state.
func (s lockStates) reset(r *clientlib.Reset) {
	for i := range r.Locks {
		l := lockStateOf(&r.Locks[i])
		s[l.Name] = l
	}
}

// transaction changes locks and remembers their states before: the zero value is that of a lock
// that was not there.
type transaction struct {
	locks  lockStates
	before map[clientlib.LockName]LockState
}

func (x *transaction) put(l LockState) {
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

// undo restores all states.
func (x *transaction) undo() {
	for name, l := range x.before {
		if l.Name == "" {
			delete(x.locks, name)
		} else {
			x.locks[name] = l
		}
	}
}

// apply applies an event. It returns false if the event does not fit or is of a kind that this
// library does not know: the result would be no state of the service.
func (x *transaction) apply(e *clientlib.Event) bool {
	l := x.locks[e.Lock]
	l.Name = e.Lock
	switch e.Kind {
	case clientlib.EventGrant:
		if l.QueueLength > 0 { // a lock with a queue is granted to those in line
			l.QueueLength--
		}
		if !l.join(sharerOf(e)) {
			return false
		}
	case clientlib.EventMetadata:
		if !l.change(e.Token, func(x *Sharer) { x.Metadata = e.Metadata }) {
			return false
		}
	case clientlib.EventAsk:
		if !l.change(e.Token, func(x *Sharer) { x.Ask = clientlib.Ask{Actor: e.Actor, Reason: e.Reason, Grace: e.Wait} }) {
			return false
		}
	case clientlib.EventDowngrade:
		if !l.change(e.Token, func(x *Sharer) { x.Mode = clientlib.ModeShared }) {
			return false
		}
	case clientlib.EventExtend:
		if !l.change(e.Token, func(x *Sharer) { x.TTL = e.TTL }) {
			return false
		}
	case clientlib.EventRelease, clientlib.EventExpire, clientlib.EventBreak:
		if !l.change(e.Token, nil) {
			return false
		}
	case clientlib.EventEnqueue:
		l.QueueLength++
	case clientlib.EventWaitTimeout, clientlib.EventSkip:
		l.QueueLength--
	case clientlib.EventCancel:
		if e.Lock == "" { // it did not wait
			return true
		}
		l.QueueLength--
	case clientlib.EventBind:
		l.FileCount++
	case clientlib.EventUnbind:
		l.FileCount--
	case clientlib.EventForceClear:
		x.clear()
		return true
	case clientlib.EventAppend, clientlib.EventQuarantine, clientlib.EventRotate, clientlib.EventSeal, clientlib.EventHandedOver, clientlib.EventTerm, clientlib.EventLevel, clientlib.EventMembers,
		clientlib.EventForgetMark, clientlib.EventOwn:
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

func sharerOf(e *clientlib.Event) *Sharer {
	return &Sharer{
		HolderInfo: clientlib.HolderInfo{
			Client: e.Client, Token: e.Token, Host: e.Holder.Host, PID: int64(e.Holder.PID), Command: e.Holder.Command,
			Since: clientlib.Moment(e.Time.UnixMilli()), Mode: modeOf(e.Shared), Identity: e.Identity, Limit: e.Limit, Weight: e.Weight,
		},
		TTL: e.TTL, GrantEpoch: e.Epoch, Request: e.Request, Metadata: e.Metadata,
	}
}

func modeOf(shared bool) string {
	if shared {
		return clientlib.ModeShared
	}
	return clientlib.ModeExclusive
}

// clear removes all holders and waiters.
func (x *transaction) clear() {
	for _, l := range x.locks {
		if l.Held() || l.QueueLength > 0 {
			l.free()
			l.QueueLength = 0
			x.put(l)
		}
	}
}

// replace makes these the locks.
func (x *transaction) replace(by lockStates) {
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
