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
	"github.com/holdfast-lock/holdfast/wal"
)

// ErrOvertaken says that a higher epoch was claimed meanwhile: this claim is
// burned and its claimant yields.
var ErrOvertaken = errors.New("a higher epoch was claimed meanwhile")

// Prepared is a complete, durable epoch directory waiting in servers/ for its
// number. That it could be made is the proof that this server can write.
type Prepared struct {
	v     *Volume
	nonce Nonce
	path  string
	lock  Lock
	// held are the fence and the segment, open for writing until the reign has opened them: an NFS
	// server then gives nobody a delegation of them, behind which a claimant would wait if that
	// machine dies. claim.json is held by its lock.
	held []File
}

// claimFile is the content of claim.json.
type claimFile struct {
	Cluster  ClusterID        `json:"cluster_id"`
	Server   cluster.ServerID `json:"server"`
	Nonce    string           `json:"nonce"`
	Address  string           `json:"address"`
	Prepared time.Time        `json:"prepared"`
	// Recovered says that an operator's recovery made this epoch.
	Recovered *recoveredNote `json:"recovered,omitempty"`
}

// Prepare makes a claim ready: fence and first segment written with zeros,
// claim.json flocked, everything fsynced. When the disk is full the reserve is
// given up first, since a cluster without a primary helps nobody.
func (v *Volume) Prepare(ctx context.Context) (*Prepared, error) {
	p, err := v.prepare(ctx)
	if IsFull(err) {
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
	return serversDir + "/" + serverPrefix(v.opt.Server) + "reserve"
}

// KeepReserve makes the reserve file unless it is there.
func (v *Volume) KeepReserve() error {
	if _, err := v.fs.Lstat(v.reservePath()); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := createZeros(v.fs, v.reservePath(), reserveSize)
	if err != nil {
		return errors.Join(fmt.Errorf("make the reserve: %w", err), ignoreMissing(v.fs.Remove(v.reservePath())))
	}
	return f.Close()
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (v *Volume) prepare(context.Context) (_ *Prepared, err error) {
	p := &Prepared{v: v}
	if p.nonce, err = v.newNonce(); err != nil {
		return nil, err
	}
	p.path = serversDir + "/" + serverPrefix(v.opt.Server) + hex.EncodeToString(p.nonce[:]) + claimSuffix
	if err := v.fs.Mkdir(p.path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Discard())
		}
	}()
	fence, err := prepareFence(v.fs, p.path, nil, nil)
	if err != nil {
		return nil, err
	}
	p.held = append(p.held, fence)
	content, err := json.Marshal(claimFile{
		Cluster: v.cluster.ID, Server: v.opt.Server, Nonce: hex.EncodeToString(p.nonce[:]),
		Address: v.opt.Address, Prepared: time.Now().UTC(),
	})
	if err != nil {
		return nil, err
	}
	if err := createFile(v.fs, p.path+"/"+claimName, append(content, '\n')); err != nil {
		return nil, err
	}
	if p.lock, err = v.fs.TryLock(p.path + "/" + claimName); err != nil {
		return nil, err
	}
	next, err := createZeros(v.fs, p.path+"/"+wal.NextName, v.opt.FirstSegment)
	if err != nil {
		return nil, err
	}
	p.held = append(p.held, next)
	if err := v.fs.SyncDir(p.path); err != nil {
		return nil, err
	}
	return p, v.fs.SyncDir(serversDir)
}

// Discard removes a prepared claim that will not be used. It is renamed away
// first, so that no half-removed directory is ever called a claim.
func (p *Prepared) Discard() error {
	err := p.letGo()
	trash := strings.TrimSuffix(p.path, claimSuffix) + trashSuffix
	if renameErr := p.v.fs.Rename(p.path, trash); renameErr != nil {
		err = errors.Join(err, renameErr)
	} else {
		err = errors.Join(err, removeTree(p.v.fs, trash))
	}
	if p.lock != nil {
		err = errors.Join(err, p.lock.Unlock())
	}
	return err
}

// letGo closes what is held.
func (p *Prepared) letGo() (err error) {
	if p == nil {
		return nil // a recovery's
	}
	for _, f := range p.held {
		err = errors.Join(err, f.Close())
	}
	p.held = nil
	return err
}

// RemoveLeftovers removes prepared claims and trash that earlier processes of
// this server left, and what a recovery built and did not name: one that still sleeps
// finds nothing to name. Call it before the first Prepare, with the guard held.
func (v *Volume) RemoveLeftovers() error {
	entries, err := v.fs.ReadDir(serversDir)
	if err != nil {
		return err
	}
	errs := []error{removeUnfinishedRecoveries(v.fs)}
	for _, x := range entries {
		name := serversDir + "/" + x.Name
		switch {
		case x.Name == serverPrefix(v.opt.Server)+"probe", isTemporary(x, serverPrefix(v.opt.Server)+"probe"): // an older version's
			errs = append(errs, v.fs.Remove(name))
		case !strings.HasPrefix(x.Name, serverPrefix(v.opt.Server)) || x.Type != TypeDir:
		case strings.HasSuffix(x.Name, claimSuffix):
			errs = append(errs, (&Prepared{v: v, path: name}).Discard())
		case strings.HasSuffix(x.Name, trashSuffix):
			errs = append(errs, removeTree(v.fs, name))
		}
	}
	return errors.Join(errs...)
}

// Claim begins a reign: the prepared directory takes the next free number under
// epochs/. The claim is used up, whatever comes back. ErrOvertaken says that
// somebody took a higher number before this one was seen.
//
// Done an hour late, after two other reigns, the rename finds every number it
// knew taken and takes a fresh one: the caller then disturbs a healthy primary
// but can destroy nothing.
func (v *Volume) Claim(ctx context.Context, p *Prepared) (*Reign, error) {
	e, err := v.takeNumber(p)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("claim: %w", err), p.letGo(), p.lock.Unlock())
	}
	r := &Reign{v: v.watched(), epoch: e, nonce: p.nonce, path: epochDir(e), lock: p.lock, prepared: p}
	r.life, r.end = context.WithCancelCause(context.Background())
	if err := r.v.confirmClaim(r); err != nil {
		return nil, errors.Join(fmt.Errorf("claim epoch %d: %w", e, err), r.Release())
	}
	return r, nil
}

// takeNumber renames the prepared directory to the first number that is free.
func (v *Volume) takeNumber(p *Prepared) (cluster.Epoch, error) {
	taken, err := listEpochs(v.fs)
	if err != nil {
		return 0, err
	}
	if len(taken) == 0 {
		return 0, fmt.Errorf("%w: epochs/ is empty", ErrDamaged)
	}
	first := taken[len(taken)-1] + 1
	for e := first; ; e++ {
		err := v.fs.Rename(p.path, epochDir(e))
		if err == nil {
			return e, nil
		}
		// A reported failure may still have happened, at this number or, where
		// the report of an earlier try was lost, at one before.
		for tried := e; tried >= first; tried-- {
			if v.holdsNonce(tried, p.nonce) {
				return tried, nil
			}
		}
		if !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
			return 0, err
		}
	}
}

func (v *Volume) holdsNonce(e cluster.Epoch, nonce Nonce) bool {
	b, err := readFile(v.fs, epochDir(e)+"/"+claimName, FlagRead)
	if err != nil {
		return false
	}
	var c claimFile
	return json.Unmarshal(b, &c) == nil && c.Nonce == hex.EncodeToString(nonce[:])
}

// confirmClaim makes the name durable and then looks whether it is mine and the highest.
func (v *Volume) confirmClaim(r *Reign) (err error) {
	if err := v.fs.SyncDir(epochsDir); err != nil {
		return err
	}
	if !v.holdsNonce(r.epoch, r.nonce) {
		return fmt.Errorf("%w: claim.json does not carry my nonce", ErrDamaged)
	}
	taken, err := listEpochs(v.fs)
	if err != nil {
		return err
	}
	if last := taken[len(taken)-1]; last > r.epoch {
		return fmt.Errorf("%w: epoch %d", ErrOvertaken, last)
	}
	var info Info
	// For writing, though a check only reads: see Prepared.held.
	r.fence, info, err = openFence(v.fs, r.epoch, FlagWrite)
	r.fenceInode = info.Inode
	return err
}
