// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/wal"
)

// recoverPrefix begins the names under servers/ of what a recovery builds.
const recoverPrefix = "recover-"

// publish builds the epoch's directory and begins its reign as a claimant does:
// the name first, then the fences of everybody below, then START. Until START is
// there nothing was decided: a recovery that slept meanwhile, for however long, finds
// what began below it, leaves a number that is burned, and servers go on from what they had.
func (r *recovery) publish(ctx context.Context, s Snapshot) error {
	if err := removeUnfinishedRecoveries(r.fs); err != nil {
		return err
	}
	tmp := serversDir + "/" + recoverPrefix + hex.EncodeToString(r.nonce[:]) + tmpSuffix
	if err := r.fill(tmp, s); err != nil {
		return fmt.Errorf("recover: build epoch %d: %w", s.Epoch, err)
	}
	// Read it as the next claimant will, while it has no name yet.
	src := Source{Epoch: s.Epoch, start: start{epoch: s.Epoch, nonce: r.nonce, end: s.At}}
	a, err := r.v.scanOnce(tmp, src, nil)
	if err == nil && (a.End != s.At || a.Table.Hash() != s.Table.Hash()) {
		err = fmt.Errorf("%w: it reads as LSN %d, written was %d", ErrDamaged, a.End.LSN, s.At.LSN)
	}
	if err != nil {
		return fmt.Errorf("recover: verify epoch %d: %w", s.Epoch, err)
	}
	if err := r.unchanged(); err != nil {
		return err
	}
	if err := r.fs.Rename(tmp, epochDir(s.Epoch)); err != nil && !r.v.holdsNonce(s.Epoch, r.nonce) {
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
func (r *recovery) begin(ctx context.Context, s Snapshot) (err error) {
	reign := &Reign{v: r.v, epoch: s.Epoch, nonce: r.nonce, path: epochDir(s.Epoch)}
	reign.life, reign.end = context.WithCancelCause(context.Background())
	defer reign.end(nil)
	err = r.v.confirmClaim(reign)
	if reign.fence != nil {
		defer func() { err = errors.Join(err, reign.fence.Close()) }()
	}
	if err != nil {
		return err
	}
	if err := r.fenceBelow(s.Epoch); err != nil {
		return err
	}
	// No older reign can speak now. What the checkpoint was made from is the
	// whole truth if nobody began behind it.
	now, err := surveyEpochs(ctx, r.fs)
	if err != nil {
		return err
	}
	for i := range now {
		e := &now[i]
		if e.epoch <= r.plan.Follows || e.epoch == s.Epoch {
			continue
		}
		if e.start != nil || e.unknown() || i == 0 || now[i-1].epoch != e.epoch-1 {
			return fmt.Errorf("epoch %d was claimed meanwhile, and may have begun: %w", e.epoch, ErrServersRun)
		}
	}
	// What the index tells of a history that is lost must not be taken for foreign bytes.
	if err := RemoveIndex(r.fs); err != nil {
		return err
	}
	return reign.WriteStart(s.At)
}

// fenceBelow sets the fence of every epoch below e, until a look behind the last
// one finds nobody new: see fenceWalk.across.
func (r *recovery) fenceBelow(e cluster.Epoch) error {
	last, more := r.plan.Follows, r.numbers()
	for {
		if err := r.fence(more, flag{e, r.nonce}); err != nil {
			return err
		}
		var err error
		if more, err = takenBehind(r.fs, last, e); err != nil || len(more) == 0 {
			return err
		}
		last = more[len(more)-1]
	}
}

// numbers are those of the epochs that were surveyed.
func (r *recovery) numbers() []cluster.Epoch {
	all := make([]cluster.Epoch, len(r.epochs))
	for i := range r.epochs {
		all[i] = r.epochs[i].epoch
	}
	return all
}

// fence sets fences, the newest first. A reign whose fence is missing or short
// can never pass a check again.
func (r *recovery) fence(epochs []cluster.Epoch, by flag) error {
	for _, e := range slices.Backward(epochs) {
		f, _, err := openFence(r.fs, e, FlagWrite)
		if errors.Is(err, ErrDamaged) || errors.Is(err, fs.ErrNotExist) {
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
func (r *recovery) setFlag(f File, by flag) error {
	block := AlignedBuffer(BlockSize)
	if err := readBlock(f, block, 0); err != nil {
		return err
	}
	if other, _ := decodeFlag(block); other.by > by.by || !allZero(block) && by.by < r.plan.Epoch {
		return writeFlag(f, block) // it may be visible without being durable
	}
	return setFlag(f, by.by, by.nonce)
}

// fill writes what a takeover writes before START, into a directory of this
// recovery's own.
func (r *recovery) fill(tmp string, s Snapshot) error {
	if err := r.fs.Mkdir(tmp); err != nil {
		return err
	}
	p := r.plan
	claim, err := json.Marshal(claimFile{
		Cluster: r.v.cluster.ID, Nonce: hex.EncodeToString(r.nonce[:]), Address: r.v.opt.Address, Prepared: time.Now().UTC(),
		Recovered: &recoveredNote{
			Follows: p.Follows, Source: p.Source, End: p.End, LSN: p.LSN, Complete: p.Complete, SeenLSN: p.SeenLSN, SeenEpoch: p.SeenEpoch,
		},
	})
	if err != nil {
		return err
	}
	if err := createFile(r.fs, tmp+"/"+claimName, append(claim, '\n')); err != nil {
		return err
	}
	next, err := createZeros(r.fs, tmp+"/"+wal.NextName, r.opt.FirstSegment)
	if err != nil {
		return err
	}
	if err := next.Close(); err != nil {
		return err
	}
	reign := &Reign{v: r.v, epoch: s.Epoch, nonce: r.nonce, path: tmp}
	reign.life, reign.end = context.WithCancelCause(context.Background())
	defer reign.end(nil)
	if _, err := reign.WriteCheckpoint(s.Export()); err != nil {
		return err
	}
	log, err := wal.Start(r.v.logOptions(reign.dir(), s.Epoch), s.At, s.At.LSN)
	if err != nil {
		return err
	}
	if err := log.Close(); err != nil {
		return err
	}
	fence, err := prepareFence(r.fs, tmp, nil, nil)
	if err == nil {
		err = fence.Close()
	}
	if err != nil {
		return err
	}
	return errors.Join(r.fs.SyncDir(tmp), r.fs.SyncDir(serversDir))
}

// unchanged refuses where somebody claimed since the survey.
func (r *recovery) unchanged() error {
	now, err := listEpochs(r.fs)
	if err != nil {
		return err
	}
	if len(now) != len(r.epochs) || now[len(now)-1] != r.epochs[len(r.epochs)-1].epoch {
		return fmt.Errorf("epoch %d was claimed meanwhile: %w", now[len(now)-1], ErrServersRun)
	}
	return nil
}

// removeUnfinishedRecoveries removes what recoveries built that did not finish. It is
// renamed away first, so that half of it never gets the name of an epoch. All
// servers may do it at once.
func removeUnfinishedRecoveries(fsys FS) error {
	entries, err := fsys.ReadDir(serversDir)
	if err != nil {
		return err
	}
	for _, x := range entries {
		if !strings.HasPrefix(x.Name, recoverPrefix) || x.Type != TypeDir {
			continue
		}
		name := serversDir + "/" + x.Name
		trash := strings.TrimSuffix(strings.TrimSuffix(name, tmpSuffix), trashSuffix) + trashSuffix
		if name != trash {
			if err := ignoreMissing(fsys.Rename(name, trash)); err != nil {
				return err
			}
		}
		if err := ignoreMissing(removeTree(fsys, trash)); err != nil {
			return err
		}
	}
	return nil
}
