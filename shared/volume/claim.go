// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// ErrOvertaken means that a higher epoch was claimed meanwhile: this claim is
// used up, and its server yields to the other one.
var ErrOvertaken = errors.New("a higher epoch was claimed meanwhile")

// ErrNotClaimed means that a claimant could not read which numbers are taken, and claimed none:
// the prepared claim can be used again.
var ErrNotClaimed = errors.New("nothing was claimed")

// Prepared is a complete, durable epoch directory that waits in servers/ for its
// number. That it exists proves that this server can write.
type Prepared struct {
	v     *Volume
	nonce epochdir.Nonce
	path  string
	lock  vfs.Lock // of claim.json
	// held are the fence and the segment, open for writing until the term has opened them itself. An NFS
	// server then grants no client a delegation of them: if the machine of a client with a delegation died,
	// a claimant would have to wait for it. claim.json is held open by its lock.
	held []vfs.File
}

// Prepare writes the directory of a claim: fence and first segment written with zeros,
// claim.json flocked, everything fsynced. It returns the errors of CheckIdentity, and creates nothing then. On
// a full disk it removes the reserve and tries again: without a primary the reserve is of no use.
func (v *Volume) Prepare(ctx context.Context) (*Prepared, error) {
	if err := v.CheckIdentity(); err != nil {
		return nil, fmt.Errorf("prepare a claim: %w", err)
	}
	p, err := v.prepare(ctx)
	if vfs.IsFull(err) {
		if rmErr := v.fs.Remove(v.reservePath()); rmErr == nil {
			p, err = v.prepare(ctx)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("prepare a claim: %w", err)
	}
	return p, nil
}

func (v *Volume) reservePath() string {
	return layout.ServersDir + "/" + layout.ServerPrefix(v.opt.Server) + "reserve"
}

// KeepReserve creates the reserve file unless it exists.
func (v *Volume) KeepReserve() error {
	if _, err := v.fs.Lstat(v.reservePath()); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := vfs.CreateZeros(v.fs, v.reservePath(), layout.ReserveSize)
	if err != nil {
		return errors.Join(fmt.Errorf("make the reserve: %w", err), vfs.IgnoreMissing(v.fs.Remove(v.reservePath())))
	}
	return f.Close()
}

func (v *Volume) prepare(context.Context) (_ *Prepared, err error) {
	p := &Prepared{v: v}
	if p.nonce, err = v.newNonce(); err != nil {
		return nil, err
	}
	p.path = layout.ServersDir + "/" + layout.ServerPrefix(v.opt.Server) + hex.EncodeToString(p.nonce[:]) + layout.ClaimSuffix
	if err := v.fs.Mkdir(p.path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Discard())
		}
	}()
	fence, err := epochdir.CreateFence(v.fs, p.path, nil, nil)
	if err != nil {
		return nil, err
	}
	p.held = append(p.held, fence)
	content, err := json.Marshal(epochdir.Claim{
		Cluster: v.cluster.ID, Server: v.opt.Server, Nonce: hex.EncodeToString(p.nonce[:]),
		Address: v.opt.Address, Prepared: time.Now().UTC(),
	})
	if err != nil {
		return nil, err
	}
	if err := vfs.CreateFile(v.fs, p.path+"/"+layout.ClaimName, append(content, '\n')); err != nil {
		return nil, err
	}
	if p.lock, err = v.fs.TryLock(p.path + "/" + layout.ClaimName); err != nil {
		return nil, err
	}
	next, err := vfs.CreateZeros(v.fs, p.path+"/"+wal.NextName, v.opt.FirstSegment)
	if err != nil {
		return nil, err
	}
	p.held = append(p.held, next)
	if err := v.fs.SyncDir(p.path); err != nil {
		return nil, err
	}
	return p, v.fs.SyncDir(layout.ServersDir)
}

// Discard removes a prepared claim that will not be used. It renames the directory
// first, so that a directory that is removed in part never has the name of a claim.
func (p *Prepared) Discard() error {
	err := p.closeHeld()
	trash := strings.TrimSuffix(p.path, layout.ClaimSuffix) + layout.TrashSuffix
	if renameErr := p.v.fs.Rename(p.path, trash); renameErr != nil {
		err = errors.Join(err, renameErr)
	} else {
		err = errors.Join(err, vfs.RemoveTree(p.v.fs, trash))
	}
	if p.lock != nil {
		err = errors.Join(err, p.lock.Unlock())
	}
	return err
}

// track adds the calls on the held files and the lock to the pending calls of the term.
func (p *Prepared) track(c *pendingCalls) {
	for i, f := range p.held {
		p.held[i] = trackedFile{f, c, p.path}
	}
	p.lock = trackedLock{p.lock, c, p.path}
}

// closeHeld closes the files in held.
func (p *Prepared) closeHeld() (err error) {
	if p == nil {
		return nil // the term of a recovery
	}
	for _, f := range p.held {
		err = errors.Join(err, f.Close())
	}
	p.held = nil
	return err
}

// RemoveLeftovers removes prepared claims and trash that earlier processes of
// this server left, and the directories of unfinished recoveries: a recovery that is only paused then
// fails. Call it before the first Prepare, with the guard held.
func (v *Volume) RemoveLeftovers() error {
	entries, err := v.fs.ReadDir(layout.ServersDir)
	if err != nil {
		return err
	}
	errs := []error{RemoveUnfinishedRecoveries(v.fs)}
	for _, x := range entries {
		name := layout.ServersDir + "/" + x.Name
		switch {
		case x.Name == layout.ServerPrefix(v.opt.Server)+"probe", isTemporary(x, layout.ServerPrefix(v.opt.Server)+"probe"): // an older version's
			errs = append(errs, v.fs.Remove(name))
		case !strings.HasPrefix(x.Name, layout.ServerPrefix(v.opt.Server)) || x.Type != vfs.TypeDir:
		case strings.HasSuffix(x.Name, layout.ClaimSuffix):
			errs = append(errs, (&Prepared{v: v, path: name}).Discard())
		case strings.HasSuffix(x.Name, layout.TrashSuffix):
			errs = append(errs, vfs.RemoveTree(v.fs, name))
		}
	}
	return errors.Join(errs...)
}

// Claim begins a term: it renames the prepared directory to the next free number in
// epochs/. It returns an error that wraps ErrOvertaken if a higher number was taken before this one was
// visible. The prepared claim is used up, except with ErrNotClaimed.
//
// If the process was paused and other terms began meanwhile, the rename finds their numbers
// taken and takes a higher one: the claim then ends a healthy term, but destroys nothing.
func (v *Volume) Claim(ctx context.Context, p *Prepared) (*Term, error) {
	e, err := v.takeNumber(p)
	switch {
	case errors.Is(err, ErrNotClaimed):
		return nil, fmt.Errorf("claim: %w", err)
	case err != nil:
		return nil, errors.Join(fmt.Errorf("claim: %w", err), p.closeHeld(), p.lock.Unlock())
	}
	w := v.tracked()
	p.track(w.calls)
	r := &Term{v: w, epoch: e, nonce: p.nonce, path: layout.EpochDir(e), lock: p.lock, prepared: p}
	r.life, r.end = context.WithCancelCause(context.Background())
	if err := r.v.confirmClaim(r); err != nil {
		return nil, errors.Join(fmt.Errorf("claim epoch %d: %w", e, err), r.Release())
	}
	return r, nil
}

// Confirm returns the term of epoch e, whose directory a recovery made with this nonce. It returns an
// error that wraps ErrOvertaken if there is a higher epoch.
func (v *Volume) Confirm(e cluster.Epoch, nonce epochdir.Nonce) (*Term, error) {
	r := &Term{v: v, epoch: e, nonce: nonce, path: layout.EpochDir(e)}
	r.life, r.end = context.WithCancelCause(context.Background())
	if err := v.confirmClaim(r); err != nil {
		return nil, errors.Join(err, r.Release())
	}
	return r, nil
}

// takeNumber renames the prepared directory to the first free number above all taken ones.
func (v *Volume) takeNumber(p *Prepared) (cluster.Epoch, error) {
	taken, err := epochdir.List(v.fs)
	if err == nil && len(taken) == 0 {
		err = fmt.Errorf("%w: epochs/ is empty", ErrDamaged)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNotClaimed, err)
	}
	first := taken[len(taken)-1] + 1
	for e := first; ; e++ {
		err := v.fs.Rename(p.path, layout.EpochDir(e))
		if err == nil {
			return e, nil
		}
		// The rename may have happened although it returned an error: at this number or, where
		// the read after an earlier try failed, at an earlier one.
		for tried := e; tried >= first; tried-- {
			if epochdir.HoldsNonce(v.fs, tried, p.nonce) {
				return tried, nil
			}
		}
		if !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
			return 0, err
		}
	}
}

// confirmClaim makes the name durable, then verifies that it leads to this claim and is the highest.
func (v *Volume) confirmClaim(r *Term) (err error) {
	if err := v.fs.SyncDir(layout.EpochsDir); err != nil {
		return err
	}
	if !epochdir.HoldsNonce(v.fs, r.epoch, r.nonce) {
		return fmt.Errorf("%w: claim.json does not carry my nonce", ErrDamaged)
	}
	taken, err := epochdir.List(v.fs)
	if err != nil {
		return err
	}
	if last := taken[len(taken)-1]; last > r.epoch {
		return fmt.Errorf("%w: epoch %d", ErrOvertaken, last)
	}
	var info vfs.Info
	// Opened for writing, although a check only reads: see Prepared.held.
	r.fence, info, err = epochdir.OpenFence(v.fs, r.epoch, vfs.FlagWrite)
	r.fenceInode = info.Inode
	return err
}

// RemoveUnfinishedRecoveries removes the directories of recoveries that did not finish. It
// renames each one first, so that a directory that is removed in part never gets the number of an epoch. Several
// servers may call it at the same time.
func RemoveUnfinishedRecoveries(fsys vfs.FS) error {
	entries, err := fsys.ReadDir(layout.ServersDir)
	if err != nil {
		return err
	}
	for _, x := range entries {
		if !strings.HasPrefix(x.Name, layout.RecoverPrefix) || x.Type != vfs.TypeDir {
			continue
		}
		name := layout.ServersDir + "/" + x.Name
		trash := strings.TrimSuffix(strings.TrimSuffix(name, layout.TmpSuffix), layout.TrashSuffix) + layout.TrashSuffix
		if name != trash {
			if err := vfs.IgnoreMissing(fsys.Rename(name, trash)); err != nil {
				return err
			}
		}
		if err := vfs.IgnoreMissing(vfs.RemoveTree(fsys, trash)); err != nil {
			return err
		}
	}
	return nil
}
