// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/wal"
)

// lockPoll is how often the flocks of fenced terms are tried during the fencing period.
const lockPoll = 10 * time.Millisecond

// courtesy is the longest fencing period on a filesystem of one host, under preserve: it only
// lets an old primary that is alive finish what it has under way.
const courtesy = 50 * time.Millisecond

// takeOver makes the claimed term a serving one, in this order and no other. Any error ends the
// term; its number is never used again. The core loop is nil before the START.
func (p *Primary) takeOver(ctx context.Context) (*core, error) {
	if p.opt.Confirm != nil {
		if err := p.opt.Confirm(ctx); err != nil {
			return nil, p.refuse(fmt.Errorf("no longer meant to take over: %w", err))
		}
	}
	// 1. Fences. From here on no older term can answer anything new.
	src, err := p.term.FenceOlder(ctx)
	if err != nil {
		return nil, p.refuse(err)
	}
	fenced := time.Now()
	p.source = src
	p.opt.Log.Info().Uint64("from_epoch", uint64(src.Epoch)).Int("fenced", len(src.Fenced)).Msg("takeover: older terms fenced")

	// 2. The wait. A filesystem that shows stale data has shown it by now: also of terms that the
	// first step went past.
	if err := p.waitFenced(ctx, fenced); err != nil {
		return nil, p.refuse(err)
	}
	if err := p.term.ConfirmSource(ctx, src); err != nil {
		return nil, p.refuse(err)
	}
	// 3. The scan. A crash up to here leaves nothing but a used number.
	a, err := p.term.Scan(ctx, src, p.opt.Warm)
	if err != nil {
		return nil, p.refuse(err)
	}
	p.opt.Log.Info().Uint64("lsn", uint64(a.End.LSN)).Uint64("base", uint64(a.Base)).Int("records", a.Records).
		Int("redo", len(a.Redo)).Bool("warm", a.Warm).Msg("takeover: log scanned")

	if known := max(p.opt.Known, p.term.HistoryReach(ctx)); a.End.LSN < known {
		return nil, p.refuse(fmt.Errorf("%w: LSN %d was committed, the log ends at %d. Put the newer files back; where they are lost, stop all servers on all hosts and type, with a --data-dir for each server that has one: holdfast recover --volume DIR --restored --seen-lsn %d --data-dir DATADIR",
			ErrVolumeRolledBack, known, a.End.LSN, known))
	}
	if err := errors.Join(p.listed(a.Table), p.term.FitsCell(a.Table)); err != nil {
		return nil, p.refuse(fmt.Errorf("the log that was to be adopted: %w", err))
	}
	// 4. Adoption, durable; 5. START, then the check.
	if p.log, err = p.term.Adopt(a); err != nil {
		return nil, err
	}
	if err := p.term.WriteStart(a.End); err != nil {
		return nil, err
	}
	// From here on this term is what a later claimant adopts.
	p.setEnd(a.End)
	list := a.Table.MembersOr(p.term.FirstServers())
	p.setMembers(&list)
	p.replication.Begin(a)
	p.logBytes.Store(a.LogBytes)
	p.unread, p.adopted = a.Unread, a.End.LSN
	p.history.Adopt(a.Ends, a.End.LSN)
	p.setLogLimit(a.BaseBytes)
	p.checked.Store(int64(time.Since(p.began)))
	p.opt.Log.Info().Msg("takeover: started")
	p.wg.Go(p.watch) // what is left may take as long as the longest lease
	p.warm = nil

	c := newCore(p, a.Table, a.End)
	if err := p.waitClear(ctx, a.Table, fenced); err != nil {
		return c, err
	}
	c.begin(a)
	return c, p.term.Err()
}

// Refused reports whether a term ended because of the volume itself: no server can be primary
// until an operator has repaired it, or this one cannot until it runs a newer binary.
func Refused(err error) bool {
	_, damaged := errors.AsType[*wal.ScanError](err)
	return damaged || errors.Is(err, volume.ErrDamaged) || errors.Is(err, ErrVolumeRolledBack) || volume.TooOld(err) != nil
}

// refuse drops the log of a takeover that failed before it adopted anything. Where the term was fenced, whoever did
// that removes it: a deposed term changes nothing.
func (p *Primary) refuse(err error) error {
	if !errors.Is(p.term.Err(), volume.ErrFenced) {
		err = errors.Join(err, p.term.DropLog())
	}
	return err
}

// begin logs the term's first records and starts redoing what files may lack.
func (c *core) begin(a *volume.Adoption) {
	for name, redo := range group(a.Redo) {
		state, bound := a.Table.File(name)
		if !bound {
			continue
		}
		c.slots[name] = &fileSlot{writer: c.p.files.Start(name, state, redo)}
	}
	c.p.index.Adopt(a.Redo) // maybe not indexed by their own term
	c.apply(c.table.DecideOwn(c.p.term.Born(), c.p.Epoch(), nil), nil)
	c.adoptSome(adoptStep)
	if c.p.opt.Timing.Policy == cluster.PolicyClear {
		c.apply(c.table.DecideForceClear(c.p.Epoch(), nil), nil)
	}
	c.apply(c.table.DecideTerm(c.p.opt.Server, c.p.Epoch(), nil), nil)
}

// group sorts appends by file; each file's stay in order.
func group(redo []locktable.Record) map[cluster.FileName][]locktable.Record {
	by := map[cluster.FileName][]locktable.Record{}
	for _, rec := range redo {
		by[rec.File] = append(by[rec.File], rec)
	}
	return by
}

// waitFenced waits the fencing period, counted from the last fence. Under preserve, on a
// filesystem of one host that shows nothing stale, the wait is not needed for safety: it is
// short, and ends when the flock of every fenced term is free. On a network filesystem flocks
// are not tried: if the host of a fenced term is dead, an NFS server answers only when it has
// given up its delegations, a whole lease later.
func (p *Primary) waitFenced(ctx context.Context, fenced time.Time) error {
	t := p.opt.Timing
	short := t.Policy == cluster.PolicyPreserve && t.Staleness == 0 && !p.term.Kind().Network
	period := t.FencingPeriod
	if short {
		period = min(period, courtesy)
	}
	for {
		left := period - time.Since(fenced)
		if left <= 0 || short && p.term.WritersEnded(p.source) {
			return nil
		}
		if short {
			left = min(left, lockPoll)
		}
		if err := waitFor(ctx, p.term.Done(), left); err != nil {
			return err
		}
	}
}

// waitClear waits, under the clear policy, until every adopted lease must have
// ended at its holder. It never ends early.
func (p *Primary) waitClear(ctx context.Context, table *locktable.Table, fenced time.Time) error {
	t := p.opt.Timing
	if t.Policy != cluster.PolicyClear {
		return nil
	}
	var longest time.Duration
	for l := range table.Leases("", 0) {
		if l.Token() != 0 {
			longest = max(longest, l.TTL())
		}
	}
	if longest == 0 {
		return nil
	}
	return waitFor(ctx, p.term.Done(), longest+t.ClearBuffer-time.Since(fenced))
}

func waitFor(ctx context.Context, done <-chan struct{}, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-done:
		return volume.ErrDeposed
	case <-t.C:
		return nil
	}
}
