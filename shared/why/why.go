// SPDX-License-Identifier: Apache-2.0

// Package why answers why a lock is not available: who holds it, who waits, how it ended before, and what to do about it.
// The command line and the servers give the same answer.
package why

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// endings is how many past grants an answer has.
	endings = 3
	// waiters is how many waiters it has, as far as the server that is asked lists so many.
	waiters = 1000
	// shared is the mode, in JSON, of a lock that is held in shared mode.
	shared = "shared"
)

// Reader is who knows locks: a server, or a volume without one.
type Reader interface {
	GetLock(context.Context, *pb.GetLockRequest) (*pb.GetLockResponse, error)
	History(context.Context, *pb.HistoryRequest) (*pb.HistoryResponse, error)
}

// Body is the answer in JSON.
type Body struct {
	Status  string `json:"status"`
	Message string `json:"message"`
	// Silent is how long ago the lease was renewed; "" if not known: only the primary knows it.
	Silent  string          `json:"silent"`
	Advice  string          `json:"advice"`
	Lock    wire.LockBody   `json:"lock"`
	Endings []wire.PastBody `json:"endings"`
	// Missing is true if the history may lack grants that ended.
	Missing bool `json:"missing"`
	// Ring is clients that wait for each other, one of them for this lock; left out if there are none.
	Ring []wire.RingLinkBody `json:"ring,omitempty"`
}

// Ask reads the lock and its latest past grants, of a primary if that is wanted. A refusal is an answer with its status and message.
func Ask(ctx context.Context, r Reader, lock string, primaryOnly bool) (b Body, err error) {
	l, err := r.GetLock(ctx, &pb.GetLockRequest{Lock: lock, PrimaryOnly: primaryOnly, MaxWaiters: waiters})
	if err != nil {
		return b, err
	}
	b.Lock = wire.LockBodyOf(l)
	b.Lock.Lock = lock // also where there was nothing to read
	b.Status, b.Message, b.Endings = b.Lock.Status, b.Lock.Message, []wire.PastBody{}
	if l.GetStatus() != pb.Status_STATUS_OK {
		return b, nil
	}
	h, err := r.History(ctx, &pb.HistoryRequest{Target: &pb.HistoryRequest_Lock{Lock: lock}, Limit: endings})
	if err != nil {
		return b, err
	}
	past := wire.HistoryBodyOf(h)
	b.Message = cmp.Or(b.Message, past.Message)
	b.Missing = past.Skipped != nil || h.GetStatus() != pb.Status_STATUS_OK || len(past.Gaps) > 0
	for _, g := range past.Grants {
		if g.LSN != 0 && g.LSN <= b.Lock.LSN { // what ended since is held, as the lock was read
			b.Endings = append(b.Endings, g)
		}
	}
	if g := l.GetLock().GetGrant(); g.GetRemainingMs() >= 0 && g.GetToken() != 0 {
		b.Silent = wire.Millis(max(0, g.GetTtlMs()-g.GetRemainingMs())).String()
	}
	b.Ring = wire.RingBodyOf(l.GetRing())
	b.Advice = advice(&b.Lock, l.GetLock())
	if len(b.Ring) > 0 {
		b.Advice = ringAdvice(b.Ring)
	}
	return b, nil
}

// advice returns one line of advice for a user who wants the lock.
func advice(l *wire.LockBody, from *pb.Lock) string {
	g := from.GetGrant()
	left := wire.Millis(g.GetRemainingMs())
	silent := wire.Millis(g.GetTtlMs() - g.GetRemainingMs())
	name := Word(l.Lock)
	end := fmt.Sprintf("holdfast break %s --token %d --reason TEXT", name, l.Token)
	for _, f := range l.Files {
		if f.Quarantined {
			return fmt.Sprintf("its file %s is quarantined (%s): nothing can be appended there before holdfast file rotate %s --lock %s", f.File, f.Reason, Word(f.File), name)
		}
	}
	switch {
	case l.Token == 0 && l.QueueLength > 0:
		return "it is free, and goes to the first in the queue within moments"
	case l.Token == 0:
		return "it is free: the next request gets it"
	case l.Remaining == "":
		return "only a primary knows how long the lease lasts: ask one with holdfast why " + name + "; where none runs, the next one counts it anew, with its whole TTL of " + l.TTL
	case l.Mode == shared: // or with a limit
		return sharedAdvice(l, append([]*pb.Grant{g}, from.GetSharedHolders()...))
	case l.Ask != nil:
		return fmt.Sprintf("its holder was asked to let go, and the lock is taken from it in %s; to end it now: %s", cmp.Or(l.Ask.Remaining, "a while"), end)
	case !l.Heard:
		return fmt.Sprintf("its holder's client was not heard since the failover: the lease ends in %v, unless it comes back; to end it now: %s", left, end)
	case silent > left:
		return fmt.Sprintf("its holder's client was not heard for %v: the lease ends in %v, unless it comes back; to end it now: %s", silent, left, end)
	case cluster.ClientID(l.Holder.Client).OneShot():
		return fmt.Sprintf("it was acquired by a command or a call that has ended, and nothing renews it: the lease ends in %v, unless token %d is renewed or used; to end it now: %s", left, l.Token, end)
	case l.QueueLength > 0:
		return fmt.Sprintf("its holder is alive, it was heard %v ago: talk to it, or ask it to let go: %s --grace 1m", silent, end)
	default:
		return fmt.Sprintf("its holder is alive, it was heard %v ago, and no request waits: wait for it with holdfast acquire %s --wait 10m", silent, name)
	}
}

// ringAdvice is advice for a lock of a ring. Any grant that ends opens it.
func ringAdvice(ring []wire.RingLinkBody) string {
	x := &ring[len(ring)-1]
	return fmt.Sprintf("the clients of this ring wait for each other, and unless one of them has another thread that goes on, they do so for ever: have one of them give up its wait, or end a grant: holdfast break %s --token %d --reason TEXT",
		Word(x.Lock), x.Token)
}

// sharedAdvice is advice for a shared lock. A client that wants it exclusively waits for the
// last of its holders, so any holder that is not heard matters, not only the oldest. So it does where permits are all taken.
func sharedAdvice(l *wire.LockBody, all []*pb.Grant) string {
	s := fmt.Sprintf("it is shared by %d, and an exclusive request waits for each of them", max(l.Holders, 1))
	if l.Limit > 0 {
		s = fmt.Sprintf("%d of its %d permits are taken by %d", l.PermitsTaken, l.Limit, max(l.Holders, 1))
	}
	breaks := func(g *pb.Grant) string {
		return fmt.Sprintf("holdfast break %s --token %d --reason TEXT", Word(l.Lock), g.GetToken())
	}
	var stuck, calm *pb.Grant // the silent one that ends last; one that was not asked to let go
	asked, silent := 0, 0
	for _, g := range all {
		switch left := g.GetRemainingMs(); {
		case g.GetAsk() != nil:
			asked++
		case !g.GetHeard() || g.GetTtlMs()-left > left:
			if silent++; stuck == nil || left > stuck.GetRemainingMs() {
				stuck = g
			}
		case calm == nil:
			calm = g
		}
	}
	if asked > 0 {
		s += fmt.Sprintf("; %d asked to let go", asked)
	}
	switch {
	case stuck != nil:
		ago := "since the failover"
		if stuck.GetHeard() {
			ago = fmt.Sprintf("for %v", wire.Millis(stuck.GetTtlMs()-stuck.GetRemainingMs()))
		}
		return s + fmt.Sprintf("; %d of them may be gone: that of token %d, the last to end, was not heard %s; its lease ends in %v, unless it comes back; to end it now: %s",
			silent, stuck.GetToken(), ago, wire.Millis(stuck.GetRemainingMs()), breaks(stuck))
	case l.QueueLength == 0 && l.Limit > 0:
		return s + fmt.Sprintf("; to take one, or wait for one: holdfast acquire %s --limit %d --wait 10m", Word(l.Lock), l.Limit)
	case l.QueueLength == 0:
		return s + fmt.Sprintf("; to share it with them: holdfast acquire %s --shared", Word(l.Lock))
	case calm != nil:
		return s + "; talk to them, or ask each of them to let go: " + breaks(calm) + " --grace 1m"
	}
	return s
}

// Word returns a name as a shell takes it for one word: people paste advice, and anybody may name a lock.
func Word(name string) string {
	special := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_-./:@%+,=", r)
	}
	if !strings.ContainsFunc(name, special) {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}
