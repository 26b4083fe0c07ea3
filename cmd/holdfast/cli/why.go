// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// whyEndings is how many past grants `holdfast why` prints.
const whyEndings = 3

// whyBody is the JSON result of `holdfast why`.
type whyBody struct {
	Status  string `json:"status"`
	Message string `json:"message"`
	// Silent is how long ago the lease was renewed; "" if not known: only the primary knows it.
	Silent  string          `json:"silent"`
	Advice  string          `json:"advice"`
	Lock    wire.LockBody   `json:"lock"`
	Endings []wire.PastBody `json:"endings"`
	// Missing is true if the history may lack grants that ended.
	Missing bool `json:"missing"`
}

func (a *app) whyCommand() *cobra.Command {
	var from source
	c := &cobra.Command{
		Use:   "why LOCK",
		Short: "Explain why a lock is not available: who holds it, since when, who waits, and what to do",
		Args:  exactly("LOCK"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withReader(c.Context(), &from, func(ctx context.Context, r reader) (any, func(io.Writer), error) {
				b, err := why(ctx, r, args[0], from.primaryOnly())
				now := time.Now()
				return b, func(w io.Writer) { whyText(w, &b, now) }, err
			})
		},
	}
	from.flags(c)
	return c
}

// why reads the lock and its latest past grants.
func why(ctx context.Context, r reader, lock string, primaryOnly bool) (b whyBody, err error) {
	l, err := r.GetLock(ctx, &pb.GetLockRequest{Lock: lock, PrimaryOnly: primaryOnly, MaxWaiters: historyPage})
	if err != nil {
		return b, err
	}
	b.Lock = wire.LockBodyOf(l)
	b.Status, b.Message = b.Lock.Status, b.Lock.Message
	h, err := r.History(ctx, &pb.HistoryRequest{Target: &pb.HistoryRequest_Lock{Lock: lock}, Limit: whyEndings})
	if err != nil {
		return b, err
	}
	past := wire.HistoryBodyOf(h)
	b.Message = cmp.Or(b.Message, past.Message)
	b.Missing = past.Skipped != nil || len(past.Gaps) > 0
	b.Endings = []wire.PastBody{}
	for _, g := range past.Grants {
		if g.LSN != 0 && g.LSN <= b.Lock.LSN { // what ended since is held, as the lock was read
			b.Endings = append(b.Endings, g)
		}
	}
	if g := l.GetLock().GetGrant(); g.GetRemainingMs() >= 0 && g.GetToken() != 0 {
		b.Silent = wire.Millis(max(0, g.GetTtlMs()-g.GetRemainingMs())).String()
	}
	b.Advice = whyAdvice(&b.Lock, l.GetLock())
	return b, nil
}

// whyAdvice returns one line of advice for a user who wants the lock.
func whyAdvice(l *wire.LockBody, from *pb.Lock) string {
	g := from.GetGrant()
	left := wire.Millis(g.GetRemainingMs())
	silent := wire.Millis(g.GetTtlMs() - g.GetRemainingMs())
	end := fmt.Sprintf("holdfast break %s --token %d --reason TEXT", l.Lock, l.Token)
	for _, f := range l.Files {
		if f.Quarantined {
			return fmt.Sprintf("its file %s is quarantined (%s): nothing can be appended there before holdfast file rotate %s --lock %s", f.File, f.Reason, f.File, l.Lock)
		}
	}
	switch {
	case l.Token == 0 && l.QueueLength > 0:
		return "it is free, and goes to the first in line within moments"
	case l.Token == 0:
		return "it is free: the next request gets it"
	case l.Remaining == "":
		return "only a primary knows how long the lease lasts: ask one with holdfast why " + l.Lock + "; where none runs, the next one counts it anew, with its whole TTL of " + l.TTL
	case l.Mode == sharedWord:
		return sharedAdvice(l, append([]*pb.Grant{g}, from.GetSharedHolders()...))
	case l.Ask != nil:
		return fmt.Sprintf("its holder was asked to let go, and is broken in %s; to end it now: %s", cmp.Or(l.Ask.Remaining, "a while"), end)
	case !l.Heard:
		return fmt.Sprintf("its holder's client was not heard since the failover: the lease ends in %v, unless it comes back; to end it now: %s", left, end)
	case silent > left:
		return fmt.Sprintf("its holder's client was not heard for %v: the lease ends in %v, unless it comes back; to end it now: %s", silent, left, end)
	case cluster.ClientID(l.Holder.Client).OneShot():
		return fmt.Sprintf("it was acquired by a command or a call that has ended, and nothing renews it: the lease ends in %v, unless token %d is renewed or used; to end it now: %s", left, l.Token, end)
	case l.QueueLength > 0:
		return fmt.Sprintf("its holder is alive, it was heard %v ago: talk to it, or ask it to let go: %s --grace 1m", silent, end)
	default:
		return fmt.Sprintf("its holder is alive, it was heard %v ago, and no request waits: wait for it with holdfast acquire %s --wait 10m", silent, l.Lock)
	}
}

// sharedAdvice is whyAdvice for a shared lock. A client that wants it exclusively waits for the
// last of its holders, so any holder that is not heard matters, not only the oldest.
func sharedAdvice(l *wire.LockBody, all []*pb.Grant) string {
	s := fmt.Sprintf("it is shared by %d, and an exclusive request waits for each of them", max(l.Holders, 1))
	breaks := func(g *pb.Grant) string {
		return fmt.Sprintf("holdfast break %s --token %d --reason TEXT", l.Lock, g.GetToken())
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
	case l.QueueLength == 0:
		return s + fmt.Sprintf("; to share it with them: holdfast acquire %s --shared", l.Lock)
	case calm != nil:
		return s + "; talk to them, or ask each of them to let go: " + breaks(calm) + " --grace 1m"
	}
	return s
}

func whyText(w io.Writer, b *whyBody, now time.Time) {
	l := &b.Lock
	if l.Token == 0 {
		fmt.Fprintf(w, "%s is free\n", l.Lock)
	} else {
		fmt.Fprintf(w, "%s is held by %s\n", l.Lock, holderText(l.Holder))
		fmt.Fprintf(w, "  since %s, under token %d\n", sinceText(l.Since, now), l.Token)
		if b.Silent != "" {
			fmt.Fprintf(w, "  lease of %s, renewed %s ago, %s left\n", l.TTL, b.Silent, l.Remaining)
		} else {
			fmt.Fprintf(w, "  lease of %s; what is left of it is not known here\n", l.TTL)
		}
		if l.MaxHold != "0s" {
			fmt.Fprintf(w, "  it ends after %s, however often it is renewed\n", l.MaxHold)
		}
	}
	restText(w, l, func(x *wire.WaiterBody) string { return "since " + sinceText(x.Since, now) })
	if more := int(l.QueueLength) - len(l.Waiters); more > 0 {
		fmt.Fprintf(w, "  and %d more waiting\n", more)
	}
	for _, f := range l.Files {
		fmt.Fprintf(w, "  guards file %s, %d bytes\n", f.File, f.End)
	}
	for i := range b.Endings {
		g := &b.Endings[i]
		fmt.Fprintf(w, "  before: token %d of %s, until %s: %s\n", g.Token, pastText(g), cmp.Or(g.Ended.String(), "an unknown time"), endText(g))
	}
	if b.Missing {
		fmt.Fprintf(w, "  the history may lack grants that ended: see holdfast history %s\n", l.Lock)
	}
	fmt.Fprintf(w, "advice: %s\n", b.Advice)
}

// sinceText formats a time and how long ago it was.
func sinceText(m wire.Moment, now time.Time) string {
	if m == 0 {
		return "an unknown time"
	}
	ago := now.Sub(time.UnixMilli(int64(m))).Round(time.Second)
	if ago < 0 {
		return m.String() // clocks differ
	}
	return fmt.Sprintf("%s (%v ago)", m, ago)
}
