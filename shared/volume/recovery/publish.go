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

// publish builds the directory of the new epoch and starts its term like a claimant:
// the name first, then the fences of all epochs below, then START. Nothing is decided
// before START: a recovery that was paused, for however long, finds
// the terms that started below it, leaves a number that is used up, and servers go on from the state that they had.
func (r *recovery) publish(ctx context.Context, s checkpoint.Snapshot) error {
	if err := volume.RemoveUnfinishedRecoveries(r.fs); err != nil {
		return err
	}
	tmp := layout.ServersDir + "/" + layout.RecoverPrefix + hex.EncodeToString(r.nonce[:]) + layout.TmpSuffix
	if err := r.fill(tmp, s); err != nil {
		return fmt.Errorf("recover: build epoch %d: %w", s.Epoch, err)
	}
	// Read it as the next claimant will, before it gets its name.
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

// begin starts the renamed epoch, so that servers take over from it, unless a server
// claimed an epoch meanwhile that may have started.
func (r *recovery) begin(ctx context.Context, s checkpoint.Snapshot) (err error) {
	term, err := r.v.Confirm(s.Epoch, r.nonce)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, term.Release()) }()
	if err := r.fenceBelow(s.Epoch); err != nil {
		return err
	}
	// No older term can answer now. The source of the checkpoint was
	// complete if no later term started.
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
	// Bytes that differ from entries of a lost log must not be reported as foreign.
	if err := index.Remove(r.fs); err != nil {
		return err
	}
	// What MEMBERS shows may be of records that are lost. Where this comes late, the primary writes it again. Until START servers may
	// go on with the old state, so it is no newer than it was, or the old state is: the first primary raises the version.
	if err := volume.RestoreMembers(r.fs, r.v.Cluster(), s.Epoch, r.show); err != nil {
		return err
	}
	return term.WriteStart(s.At)
}

// fenceBelow sets the fence of every epoch below e, until it finds no
// new epoch after the last one: see package volume, fenceWalk.across.
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

// numbers returns the numbers of the surveyed epochs.
func (r *recovery) numbers() []cluster.Epoch {
	all := make([]cluster.Epoch, len(r.epochs))
	for i := range r.epochs {
		all[i] = r.epochs[i].Epoch
	}
	return all
}

// fence sets the fences of these epochs, the newest first. It passes over missing and short fences, with which a term
// can never pass a check.
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

// setFlag sets a flag, but keeps an existing one that shows that a
// higher epoch was claimed, which may be missing now or have another claim.
// Until the claim.json of the new epoch records this, it keeps every flag that is set.
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

// fill writes everything that a takeover writes before START, into a new directory.
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
		FeatureLevel: r.v.Cluster().Level(s.Table), SegmentSize: layout.SegmentSize,
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

// unchanged returns an error that wraps ErrServersRun if an epoch was claimed since the survey.
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
