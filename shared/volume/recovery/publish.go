// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/volume/index"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// publish builds the epoch's directory and begins its term as a claimant does:
// the name first, then the fences of everybody below, then START. Until START is
// there nothing was decided: a recovery that slept meanwhile, for however long, finds
// what began below it, leaves a number that is burned, and servers go on from what they had.
func (r *recovery) publish(ctx context.Context, s checkpoint.Snapshot) error {
	if err := volume.RemoveUnfinishedRecoveries(r.fs); err != nil {
		return err
	}
	tmp := layout.ServersDir + "/" + layout.RecoverPrefix + hex.EncodeToString(r.nonce[:]) + layout.TmpSuffix
	if err := r.fill(tmp, s); err != nil {
		return fmt.Errorf("recover: build epoch %d: %w", s.Epoch, err)
	}
	// Read it as the next claimant will, while it has no name yet.
	a, err := r.v.ReadTermIn(tmp, epochdir.Start{Epoch: s.Epoch, Nonce: r.nonce, End: s.At})
	if err == nil && (a.End != s.At || a.Table.Hash() != s.Table.Hash()) {
		err = fmt.Errorf("%w: it reads as LSN %d, written was %d", volume.ErrDamaged, a.End.LSN, s.At.LSN)
	}
	if err != nil {
		return fmt.Errorf("recover: verify epoch %d: %w", s.Epoch, err)
	}
	if err := r.unchanged(); err != nil {
		return err
	}
	if err := r.fs.Rename(tmp, layout.EpochDir(s.Epoch)); err != nil && !epochdir.HoldsNonce(r.fs, s.Epoch, r.nonce) {
		return fmt.Errorf("recover: name epoch %d: %w", s.Epoch, err)
	}
	if err := r.begin(ctx, s); err != nil {
		return fmt.Errorf("recover: epoch %d has its name and did not begin: see that all servers are stopped, then repeat: %w", s.Epoch, err)
	}
	r.plan.Done = true
	return nil
}

// begin makes the named epoch the one that servers take over from, unless
// somebody else began meanwhile.
func (r *recovery) begin(ctx context.Context, s checkpoint.Snapshot) (err error) {
	term, err := r.v.Confirm(s.Epoch, r.nonce)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, term.Release()) }()
	if err := r.fenceBelow(s.Epoch); err != nil {
		return err
	}
	// No older term can speak now. What the checkpoint was made from is the
	// whole truth if nobody began behind it.
	now, err := epochdir.Survey(ctx, r.fs)
	if err != nil {
		return err
	}
	for i := range now {
		e := &now[i]
		if e.Epoch <= r.plan.Follows || e.Epoch == s.Epoch {
			continue
		}
		if e.Start != nil || e.Unknown() || i == 0 || now[i-1].Epoch != e.Epoch-1 {
			return fmt.Errorf("epoch %d was claimed meanwhile, and may have begun: %w", e.Epoch, ErrServersRun)
		}
	}
	// What the index tells of a history that is lost must not be taken for foreign bytes.
	if err := index.Remove(r.fs); err != nil {
		return err
	}
	return term.WriteStart(s.At)
}

// fenceBelow sets the fence of every epoch below e, until a look behind the last
// one finds nobody new: see fenceWalk.across.
func (r *recovery) fenceBelow(e cluster.Epoch) error {
	last, more := r.plan.Follows, r.numbers()
	for {
		if err := r.fence(more, epochdir.Flag{By: e, Nonce: r.nonce}); err != nil {
			return err
		}
		var err error
		if more, err = epochdir.TakenAfter(r.fs, last, e); err != nil || len(more) == 0 {
			return err
		}
		last = more[len(more)-1]
	}
}

// numbers are those of the epochs that were surveyed.
func (r *recovery) numbers() []cluster.Epoch {
	all := make([]cluster.Epoch, len(r.epochs))
	for i := range r.epochs {
		all[i] = r.epochs[i].Epoch
	}
	return all
}

// fence sets fences, the newest first. A term whose fence is missing or short
// can never pass a check again.
func (r *recovery) fence(epochs []cluster.Epoch, by epochdir.Flag) error {
	for _, e := range slices.Backward(epochs) {
		f, _, err := epochdir.OpenFence(r.fs, e, vfs.FlagWrite)
		if errors.Is(err, volume.ErrDamaged) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = errors.Join(r.setFlag(f, by), f.Close())
		}
		if err != nil {
			return fmt.Errorf("fence epoch %d: %w", e, err)
		}
	}
	return nil
}

// setFlag sets a flag, and does not lose what the one that is there tells: that a
// higher epoch was claimed, which may be missing now, or by another claim than the one that
// is there. Until the new epoch's claim.json says it, each flag that is set stays as it is.
func (r *recovery) setFlag(f vfs.File, by epochdir.Flag) error {
	block := vfs.AlignedBuffer(vfs.BlockSize)
	if err := vfs.ReadBlock(f, block, 0); err != nil {
		return err
	}
	if other, _ := epochdir.DecodeFlag(block); other.By > by.By || !vfs.AllZero(block) && by.By < r.plan.Epoch {
		return epochdir.WriteFlag(f, block) // it may be visible without being durable
	}
	return epochdir.SetFlag(f, by.By, by.Nonce)
}

// fill writes what a takeover writes before START, into a directory of this
// recovery's own.
func (r *recovery) fill(tmp string, s checkpoint.Snapshot) error {
	if err := r.fs.Mkdir(tmp); err != nil {
		return err
	}
	p := r.plan
	claim, err := json.Marshal(epochdir.Claim{
		Cluster: r.v.Cluster().ID, Nonce: hex.EncodeToString(r.nonce[:]), Address: "holdfast recover", Prepared: time.Now().UTC(),
		Recovered: &epochdir.Recovered{
			Follows: p.Follows, Source: p.Source, End: p.End, LSN: p.LSN, Complete: p.Complete, SeenLSN: p.SeenLSN, SeenEpoch: p.SeenEpoch,
		},
	})
	if err != nil {
		return err
	}
	if err := vfs.CreateFile(r.fs, tmp+"/"+layout.ClaimName, append(claim, '\n')); err != nil {
		return err
	}
	next, err := vfs.CreateZeros(r.fs, tmp+"/"+wal.NextName, r.opt.FirstSegment)
	if err != nil {
		return err
	}
	if err := next.Close(); err != nil {
		return err
	}
	x := s.Export()
	x.Cluster = r.v.Cluster().ID
	if _, err := checkpoint.Write(r.fs, tmp, x, func() error { return nil }); err != nil {
		return err
	}
	log, err := wal.Start(wal.Options{
		Dir: &epochdir.Dir{FS: r.fs, Path: tmp}, Cluster: r.v.Cluster().ID, Epoch: s.Epoch,
		FeatureLevel: volume.FeatureLevel, SegmentSize: layout.SegmentSize,
	}, s.At, s.At.LSN)
	if err != nil {
		return err
	}
	if err := log.Close(); err != nil {
		return err
	}
	fence, err := epochdir.CreateFence(r.fs, tmp, nil, nil)
	if err == nil {
		err = fence.Close()
	}
	if err != nil {
		return err
	}
	return errors.Join(r.fs.SyncDir(tmp), r.fs.SyncDir(layout.ServersDir))
}

// unchanged refuses where somebody claimed since the survey.
func (r *recovery) unchanged() error {
	now, err := epochdir.List(r.fs)
	if err != nil {
		return err
	}
	if len(now) != len(r.epochs) || now[len(now)-1] != r.epochs[len(r.epochs)-1].Epoch {
		return fmt.Errorf("epoch %d was claimed meanwhile: %w", now[len(now)-1], ErrServersRun)
	}
	return nil
}
