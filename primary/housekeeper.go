// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/shared/volume"
)

// fileSyncWait bounds how long a checkpoint waits for one protected file.
const fileSyncWait = 2 * time.Second

// housekeeper writes checkpoints and removes what nobody needs any more. A full disk deposes nobody: it tries again later.
func (p *Primary) housekeeper() {
	ctx := p.reign.Context()
	t := time.NewTicker(p.opt.ViewInterval)
	defer t.Stop()
	sound := p.verifyUnread()
	if sound {
		p.removeOlder()
	}
	var after time.Time // the next checkpoint may begin
	backoff := firstRetry
	for {
		if now := time.Now(); (!sound || p.logBytes.Load() > p.logLimit.Load()) && now.After(after) {
			err := p.checkpoint(ctx)
			p.settle("checkpoint", err)
			if err != nil {
				after = now.Add(backoff)
				backoff = min(2*backoff, time.Minute)
			} else {
				backoff = firstRetry
			}
			if err == nil && !sound {
				sound = true
				p.removeOlder()
			}
		}
		select {
		case <-p.reign.Done():
			return
		case <-t.C:
		case <-p.wake.housekeeper:
		}
	}
}

// verifyUnread reads what the takeover had no need for. Where that is damaged a
// checkpoint is written at once, because a later takeover may come to need it.
func (p *Primary) verifyUnread() (sound bool) {
	if p.unread == nil {
		return true
	}
	var err error
	if p.damaged, err = p.reign.VerifyUnread(p.unread, p.newPace().rest); err != nil && p.reign.Err() == nil {
		p.opt.Log.Warn().Err(err).Msg("what was adopted is damaged: writing a checkpoint")
	}
	return err == nil
}

// removeOlder comes when this reign has a base that was read, by itself or its
// takeover, and the log behind it, or has written one: until then somebody may need
// what older reigns left.
func (p *Primary) removeOlder() {
	if err := p.reign.Check(); err != nil {
		return
	}
	if err := p.reign.RemoveOlder(p.source); err != nil && p.reign.Err() == nil {
		p.opt.Log.Warn().Err(err).Msg("remove what older reigns left") // it only takes space
	}
}

// settle deals with an error of background work: space may come back, anything
// else on the reign's own directory ends the reign.
func (p *Primary) settle(what string, err error) {
	switch {
	case err == nil || p.reign.Err() != nil:
	case volume.IsFull(err):
		p.opt.Log.Warn().Err(err).Msg(what + ": no space; trying again later")
	default:
		p.Depose(fmt.Errorf("%s: %w", what, err))
	}
}

// checkpoint writes a new base and removes what lies behind the one before.
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
	// Every append up to s.At was handed to its writer before the snapshot was answered.
	p.SyncFiles(ctx)
	p.index.sync(ctx) // the log that could tell these appends once more may go
	p.files.Lock()
	for _, w := range p.files.writers {
		s.Pending = append(s.Pending, w.keptUpTo(s.At.LSN)...)
	}
	p.files.Unlock()

	size, err := p.reign.WriteCheckpoint(s)
	if err != nil {
		return err
	}
	p.checkpointed = s.At.LSN
	p.logBytes.Add(-bytes)
	p.setLogLimit(size)
	// A crash here leaves one checkpoint and some segments more than needed.
	if err := p.reign.Check(); err != nil {
		return err
	}
	p.opt.Log.Info().Uint64("lsn", uint64(s.At.LSN)).Dur("took", time.Since(began)).Int("pending", len(s.Pending)).Msg("checkpoint")
	return p.removeBehind()
}

// setLogLimit says how much log makes the next checkpoint worth its while: it
// costs as much as the base.
func (p *Primary) setLogLimit(base int64) { p.logLimit.Store(max(p.opt.CheckpointBytes, 2*base)) }

// removeBehind removes own checkpoints but two, and own segments wholly behind the older of them.
func (p *Primary) removeBehind() error {
	if err := p.reign.RemoveCheckpoints(p.damaged...); err != nil {
		return err
	}
	upTo, err := p.reign.PreviousBase()
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

// SyncFiles asks every writer to make its file durable, and waits a bounded
// time: what a file could not take goes into the checkpoint.
func (p *Primary) SyncFiles(ctx context.Context) {
	p.askWriters(ctx, fileSyncWait, (*fileWriter).sync)
}

// drain waits a bounded time for the appends under way, so that they are
// answered before the reign resigns.
func (p *Primary) drain(limit time.Duration) {
	p.askWriters(context.Background(), limit, (*fileWriter).barrier)
}

// askWriters asks every writer for something and waits until all have answered
// or the time is over.
func (p *Primary) askWriters(ctx context.Context, limit time.Duration, ask func(*fileWriter, func(error))) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	p.files.Lock()
	n := len(p.files.writers)
	done := make(chan error, n)
	for _, w := range p.files.writers {
		ask(w, func(err error) { done <- err })
	}
	p.files.Unlock()
	for range n {
		select {
		case <-ctx.Done():
			return
		case <-done:
		}
	}
}
