// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// harm writes into a file from outside, or takes it away, and maybe leaves another one in its
// place. The next append is committed, if the service has no reason to check the file before, but
// is in no file. No answer may ever acknowledge it: not while the file is quarantined, not after a
// rotation, and not after the file is unbound and bound again.
func (w *wanderer) harm(ctx context.Context, file cluster.FileName) {
	outages := w.world.outages.Load()
	last := w.appendOnce(ctx, file)
	if last.Status != cluster.StatusOK {
		return
	}
	end := last.Offset + last.Length
	mend, err := w.damage(file, end)
	if vfs.IsFull(err) {
		return
	}
	var out locktable.Outcome
	if err == nil {
		out = w.appendOnce(ctx, file)
	}
	lost := w.past[len(w.past)-1].q
	if out.Committed && w.rng.IntN(2) == 0 {
		w.beside(ctx, lost, locktable.OpUnbind)
	}
	if err == nil {
		err = mend()
	}
	if err != nil {
		w.scenario.Ledger.violation("somebody cannot harm %s: %v", file, err)
	}
	if w.world.outages.Load() != outages {
		w.scenario.Ledger.spoil(generation{file, last.Generation}) // what only the log has never comes into a file that was taken away
	}
	if out.Status != cluster.StatusFileQuarantined || !out.Committed {
		w.held(ctx, locktable.Request{Op: locktable.OpRotate, File: file})
		return
	}
	w.beside(ctx, lost, locktable.OpRotate)
	if w.rng.IntN(2) == 0 {
		w.beside(ctx, lost, locktable.OpUnbind)
		w.beside(ctx, lost, locktable.OpBind)
	}
}

// damage damages a file that ends there; mend leaves the name free, and what the file was
// durable among those that were moved away.
func (w *wanderer) damage(file cluster.FileName, end int64) (mend func() error, err error) {
	disk, path, foreign := w.scenario.Disk, volume.ProtectedPath(file), []byte("somebody else's\n")
	way := w.rng.IntN(4)
	if way > 1 {
		return func() error { _, err := w.move(file); return err }, disk.Write(path, end, foreign)
	}
	moved, err := w.move(file)
	if err != nil || way == 0 {
		return func() error { return disk.Write(moved, 0, nil) }, err
	}
	return func() error { return errors.Join(disk.Write(moved, 0, nil), disk.Remove(path)) }, disk.Write(path, 0, foreign)
}

// beside does something to the file of an append that was lost, without forgetting that, and asks
// for the append again.
func (w *wanderer) beside(ctx context.Context, lost locktable.Request, op locktable.Op) {
	w.next++
	w.ask(ctx, locktable.Request{
		Op: op, Client: w.id, ID: w.next, LowWater: lost.ID, Lock: w.lock, Token: w.token, File: lost.File, AdoptExisting: op == locktable.OpBind,
	})
	again := w.until(ctx, func(ctx context.Context, r *Term) (locktable.Outcome, error) { return ask(ctx, r, lost) })
	if ctx.Err() == nil && again.Status != cluster.StatusFileQuarantined {
		w.scenario.Ledger.violation("I5: %s/%d was told that its append is in no file, and after %v of it: %v at LSN %d, offset %d",
			lost.Client, lost.ID, op, again.Status, again.LSN, again.Offset)
	}
}
