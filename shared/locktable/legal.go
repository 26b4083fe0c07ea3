// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// legal says why r must not be applied in this state. It changes nothing.
func (t *Table) legal(r *Record) error {
	if err := r.Validate(); err != nil {
		return err
	}
	switch r.Kind {
	case KindGrant:
		return t.legalGrant(r)
	case KindEnqueue:
		return t.legalEnqueue(r)
	case KindDowngrade:
		return errors.Join(t.legalWriter(r), t.legalRequester(r))
	case KindRelease, KindMetadata, KindAsk:
		return errors.Join(t.legalToken(r), t.legalRequester(r))
	case KindBreak:
		if r.Request == 0 {
			return t.legalToken(r)
		}
		return errors.Join(t.legalToken(r), t.legalRequester(r))
	case KindExpire:
		return t.legalToken(r)
	case KindWaitTimeout:
		if w := t.waiter(r.Client, r.Request); w == nil || w.lock.name != r.Lock {
			return fmt.Errorf("request %d of client %s does not wait for lock %q", r.Request, r.Client, r.Lock)
		}
		return nil
	case KindCancel:
		return t.legalCancel(r)
	case KindAppend, KindBind, KindUnbind, KindRotate, KindSeal, KindAlready:
		if err := t.legalWriter(r); err != nil {
			return err
		}
		if r.Request != 0 {
			if err := t.legalRequester(r); err != nil {
				return err
			}
		}
		return t.legalFile(r)
	case KindQuarantine:
		if f := t.files[r.File]; f == nil || f.Quarantined || f.Generation != r.Generation {
			return fmt.Errorf("file %q is unbound, quarantined or not of generation %d", r.File, r.Generation)
		}
		return nil
	case KindOpenClient:
		if c := t.nonces.get(r.Nonce); c != nil {
			return fmt.Errorf("nonce %#x belongs to client %s", r.Nonce, c.id)
		}
		return nil
	case KindForgetClient:
		if c := t.clients.get(r.Client); c == nil || c.held > 0 || len(c.waits) > 0 {
			return fmt.Errorf("client %s is unknown, holds or waits", r.Client)
		}
		return nil
	default: // ForceClear, Resigned and Reign are always legal
		return nil
	}
}

func (t *Table) legalGrant(r *Record) error {
	l := t.locks.get(r.Lock)
	if l == nil {
		return t.legalRequester(r)
	}
	w := l.next()
	if w == nil || w.client.id != r.Client || w.request != r.Request {
		if l.admits(r.Mode) && l.holders() < MaxHolders {
			return t.legalRequester(r)
		}
		return fmt.Errorf("it is not the turn of request %d of client %s at lock %q: held under token %d, %d wait", r.Request, r.Client, r.Lock, l.first().token, l.queued)
	}
	if r.Hash != w.hash || r.TTL != w.ttl || r.Mode != w.mode || r.Holder != w.holder || r.Metadata != w.metadata || r.LowWater != 0 ||
		r.MaxHold != w.maxHold || r.Heartbeat != w.heartbeat {
		return fmt.Errorf("the grant differs from the waiting request %d of client %s", r.Request, r.Client)
	}
	return nil
}

func (t *Table) legalEnqueue(r *Record) error {
	l := t.locks.get(r.Lock)
	switch {
	case l == nil || l.admits(r.Mode):
		return fmt.Errorf("lock %q is free for mode %d", r.Lock, r.Mode)
	case l.queued >= MaxQueue:
		return fmt.Errorf("lock %q has %d waiters", r.Lock, l.queued)
	case l.crowded(r.Mode):
		return fmt.Errorf("lock %q has %d holders and waiters that share it", r.Lock, l.holders()+l.sharedWaiting())
	}
	return t.legalRequester(r)
}

func (t *Table) legalToken(r *Record) error {
	if t.live(r.Lock, r.Token) == nil {
		return fmt.Errorf("token %d is not the live one of lock %q", r.Token, r.Lock)
	}
	return nil
}

// legalWriter is legalToken for what only an exclusive holder may do.
func (t *Table) legalWriter(r *Record) error {
	if g := t.live(r.Lock, r.Token); g == nil || g.mode != ModeExclusive {
		return fmt.Errorf("token %d is not the live one of lock %q, or a shared one", r.Token, r.Lock)
	}
	return nil
}

// legalRequester checks that r's request may be executed: never before, and
// not below a mark.
func (t *Table) legalRequester(r *Record) error {
	c := t.clients.get(r.Client)
	if c == nil {
		if r.Client.Opened() {
			return fmt.Errorf("client %s is not open", r.Client)
		}
		return nil
	}
	if c.receipt(r.Request) != nil || c.waiter(r.Request) != nil {
		return fmt.Errorf("request %d of client %s was executed or waits", r.Request, r.Client)
	}
	if c.stale(r.Request) {
		return fmt.Errorf("request %d of client %s is below the marks %d and %d", r.Request, r.Client, c.lowWater, c.dropped)
	}
	if c.id.Opened() && c.outstanding(r.LowWater) >= MaxOutstanding {
		return fmt.Errorf("client %s has too many receipts", r.Client)
	}
	return nil
}

func (t *Table) legalCancel(r *Record) error {
	if w := t.waiter(r.Client, r.Request); w != nil {
		if w.lock.name != r.Lock {
			return fmt.Errorf("request %d of client %s waits for lock %q, not %q", r.Request, r.Client, w.lock.name, r.Lock)
		}
		return nil
	}
	if r.Lock != "" || r.Client.Anonymous() {
		return fmt.Errorf("request %d of client %s does not wait", r.Request, r.Client)
	}
	return t.legalRequester(r)
}

func (t *Table) legalFile(r *Record) error {
	f := t.files[r.File]
	if r.Kind == KindBind {
		if f != nil {
			return fmt.Errorf("file %q is bound to lock %q", r.File, f.Lock)
		}
		if r.Generation <= t.past.generation {
			return fmt.Errorf("file %q may have had generation %d before", r.File, r.Generation)
		}
		return t.legalInode(r.Inode)
	}
	if f == nil || f.Lock != r.Lock {
		return fmt.Errorf("file %q is not bound to lock %q", r.File, r.Lock)
	}
	switch r.Kind {
	case KindAppend, KindSeal:
		if f.Quarantined || f.Sealed || r.Generation != f.Generation || r.Offset != f.End {
			return fmt.Errorf("file %q is at generation %d, offset %d, quarantined %t, sealed %t", r.File, f.Generation, f.End, f.Quarantined, f.Sealed)
		}
	case KindUnbind:
		if f.Sealed || r.Remember && (f.Quarantined || t.past.full(f)) {
			return fmt.Errorf("file %q is sealed, quarantined, or too many are remembered", r.File)
		}
	case KindAlready:
		if r.Generation != f.Generation || r.Offset != f.End {
			return fmt.Errorf("file %q is at generation %d, offset %d", r.File, f.Generation, f.End)
		}
	case KindRotate:
		if r.Generation != f.Generation+1 {
			return fmt.Errorf("file %q has generation %d", r.File, f.Generation)
		}
		return t.legalInode(r.Inode)
	}
	return nil
}

func (t *Table) legalInode(inode uint64) error {
	if other, ok := t.inodes[inode]; ok {
		return fmt.Errorf("inode %d is bound as file %q", inode, other)
	}
	return nil
}

// waiter returns the waiting request or nil.
func (t *Table) waiter(id cluster.ClientID, request cluster.RequestID) *waiter {
	if c := t.clients.get(id); c != nil {
		return c.waiter(request)
	}
	return nil
}
