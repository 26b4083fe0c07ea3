// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/primary/throttle"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// checkpointRetry is when a failed checkpoint is tried again; each further failure doubles it.
const checkpointRetry = 100 * time.Millisecond

// housekeeper writes checkpoints and removes what is not needed any more. A full disk does not
// end the term: it tries again later.
func (p *Primary) housekeeper() {
	ctx := p.term.Context()
	t := time.NewTicker(p.opt.ViewInterval)
	defer t.Stop()
	sound := p.verifyUnread()
	if sound {
		p.removeOlder()
	}
	var after time.Time // the next checkpoint may begin
	backoff := checkpointRetry
	for {
		if now := time.Now(); (!sound || p.logBytes.Load() > p.logLimit.Load()) && now.After(after) {
			err := p.checkpoint(ctx)
			p.settle("checkpoint", err)
			if err != nil {
				after = now.Add(backoff)
				backoff = min(2*backoff, time.Minute)
			} else {
				backoff = checkpointRetry
			}
			if err == nil && !sound {
				sound = true
				p.removeOlder()
			}
		}
		select {
		case <-p.term.Done():
			return
		case <-t.C:
		case <-p.wake.housekeeper:
		}
	}
}

// verifyUnread reads what the takeover did not need. sound is false if that is damaged: then a
// checkpoint is written at once, because a later takeover may need it.
func (p *Primary) verifyUnread() (sound bool) {
	if p.unread == nil {
		return true
	}
	var err error
	if p.damaged, err = p.term.VerifyUnread(p.unread, throttle.New(p.term.Done(), nil).Rest); err != nil && p.term.Err() == nil {
		p.opt.Log.Warn().Err(err).Msg("what was adopted is damaged: writing a checkpoint")
	}
	return err == nil
}

// removeOlder removes what older terms left. It is called when this term has a base that was
// read, by itself or its takeover, and the log after it, or has written one: until then what
// older terms left may be needed.
func (p *Primary) removeOlder() {
	if err := p.term.Check(); err != nil {
		return
	}
	if err := p.term.RemoveOlder(p.source); err != nil && p.term.Err() == nil {
		p.opt.Log.Warn().Err(err).Msg("remove what older terms left") // it only takes space
	}
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
	p.logBytes.Add(-bytes)
	p.setLogLimit(size)
	// A crash here leaves one checkpoint and some segments more than needed.
	if err := p.term.Check(); err != nil {
		return err
	}
	p.opt.Log.Info().Uint64("lsn", uint64(s.At.LSN)).Dur("took", time.Since(began)).Int("pending", len(s.Pending)).Msg("checkpoint")
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
