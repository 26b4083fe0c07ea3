// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/primary/throttle"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/wake"
)

// checkpointRetry is when a failed checkpoint is tried again; each further failure doubles it.
const checkpointRetry = 100 * time.Millisecond

// housekeeper writes checkpoints and removes what is not needed any more. A full disk does not
// end the term: it tries again later.
func (p *Primary) housekeeper() {
	t := wake.Every(p.opt.ViewInterval)
	defer t.Stop()
	h := housekeeping{p: p, backoff: checkpointRetry}
	h.begin()
	for {
		h.keepLogShort()
		select {
		case <-p.term.Done():
			return
		case <-t.C:
			t.Again()
		case <-p.wake.housekeeper:
		}
	}
}

// housekeeping is the state of the housekeeper.
type housekeeping struct {
	p       *Primary
	unsound bool      // what was adopted is damaged, and there is no newer base: a checkpoint is due
	left    bool      // what older terms left could not be removed
	after   time.Time // the next checkpoint may begin
	backoff time.Duration
}

// begin removes what older terms left, and verifies what the takeover did not read. That takes long where CPU is
// short, and many terms may end before: so what nobody needs is removed first, and the log is kept short meanwhile.
func (h *housekeeping) begin() {
	p := h.p
	p.verifying = p.unread != nil
	h.removeOlder()
	h.keepLogShort()
	if !p.verifying {
		return
	}
	rest := throttle.New(p.term.Done(), nil).Rest
	h.unsound = !p.verifyUnread(func() { rest(); h.keepLogShort() })
	p.verifying = false
	if !h.unsound {
		h.removeOlder()
		p.settle("remove what checkpoints replaced", p.removeBehind())
	}
}

// keepLogShort writes a checkpoint if it is time for one.
func (h *housekeeping) keepLogShort() {
	p := h.p
	now := time.Now()
	if !h.unsound && p.logBytes.Load() <= p.logLimit.Load() || !now.After(h.after) {
		return
	}
	err := p.checkpoint(p.term.Context())
	p.settle("checkpoint", err)
	if err != nil {
		h.after = now.Add(h.backoff)
		h.backoff = min(2*h.backoff, time.Minute)
		return
	}
	h.backoff = checkpointRetry
	if h.unsound || h.left {
		h.unsound = false
		h.removeOlder()
	}
}

// removeOlder removes what older terms left, but for the one that was adopted from. The one before stays, too, until
// this term has a base that was read, by itself or its takeover, and the log after it, or has written one.
func (h *housekeeping) removeOlder() {
	p := h.p
	if err := p.term.Check(); err != nil {
		return
	}
	before, err := p.source.Epoch, error(nil)
	if p.verifying {
		before, err = p.term.StartedBefore(p.term.Context(), p.source)
	}
	if err == nil {
		err = p.term.RemoveOlder(p.source, before)
	}
	if h.left = err != nil; h.left && p.term.Err() == nil {
		p.opt.Log.Warn().Err(err).Msg("remove what older terms left") // it only takes space
	}
}

// verifyUnread reads what the takeover did not need, and calls rest between pieces. sound is false if that is
// damaged: then a checkpoint is written at once, because a later takeover may need it.
func (p *Primary) verifyUnread(rest func()) (sound bool) {
	var err error
	if p.damaged, err = p.term.VerifyUnread(p.unread, rest); err != nil && p.term.Err() == nil {
		p.opt.Log.Warn().Err(err).Msg("what was adopted is damaged: writing a checkpoint")
	}
	return err == nil
}

// settle deals with an error of background work: space may come back, anything
// else on the term's own directory ends the term.
func (p *Primary) settle(what string, err error) {
	switch {
	case err == nil || p.term.Err() != nil:
	case vfs.IsFull(err):
		p.opt.Log.Warn().Err(err).Msg(what + ": no space; trying again later")
	default:
		p.End(fmt.Errorf("%s: %w", what, err))
	}
}

// checkpoint writes a new base and removes what the previous one made unnecessary.
func (p *Primary) checkpoint(ctx context.Context) error {
	began := time.Now()
	bytes := p.logBytes.Load()
	s, stop, err := p.Export(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if s.At.LSN == p.checkpointed {
		// Bytes that came between the count and the snapshot are counted once more.
		p.logBytes.Add(-bytes)
		return nil
	}
	// Every append up to s.At was given to its writer before the snapshot was answered.
	p.files.Sync(ctx)
	p.index.Sync(ctx) // the log that has these appends may be removed
	s.Pending = p.files.Kept(s.At.LSN)
	size, err := p.term.WriteCheckpoint(s)
	if err != nil {
		return err
	}
	p.checkpointed = s.At.LSN
	p.checkpointAt.Store(int64(p.age()))
	p.logBytes.Add(-bytes)
	p.setLogLimit(size)
	// A crash here leaves one checkpoint and some segments more than needed.
	if err := p.term.Check(); err != nil {
		return err
	}
	p.opt.Log.Info().Uint64("lsn", uint64(s.At.LSN)).Dur("took", time.Since(began)).Int("pending", len(s.Pending)).Msg("checkpoint")
	if p.verifying {
		return nil // what was adopted stays until it is known which of it is damaged
	}
	return p.removeBehind()
}

// setLogLimit sets how much log causes the next checkpoint: writing one costs as much as the base.
func (p *Primary) setLogLimit(base int64) { p.logLimit.Store(max(p.opt.CheckpointBytes, 2*base)) }

// removeBehind removes own checkpoints except the last two, and own segments that are wholly
// before the older of them.
func (p *Primary) removeBehind() error {
	if err := p.term.RemoveCheckpoints(p.damaged...); err != nil {
		return err
	}
	upTo, err := p.term.PreviousBase()
	if err != nil {
		return err
	}
	for _, name := range p.log.Removable(upTo) {
		if err := p.log.Drop(name); err != nil {
			return err
		}
	}
	return nil
}
