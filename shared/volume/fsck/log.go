// SPDX-License-Identifier: Apache-2.0

package fsck

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/inspect"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// readLog scans the newest started term as a claimant would, and then again from its
// oldest checkpoint on, to compare the others with the replay.
func (k *fsck) readLog() {
	e := k.newest
	dir := layout.EpochDir(e.Epoch)
	a, err := k.v.ReadTerm(k.ctx, e.Epoch, *e.Start)
	if k.sawNewer(dir, err) {
		return
	}
	if err != nil {
		k.logError(SeverityError, "log-damaged", dir, adviceRecover, err)
		return
	}
	k.adoption = a
	r := k.report
	r.Base, r.LSN, r.Records = a.Base, a.End.LSN, a.Records
	r.Locks, r.Clients = a.Table.LockCount(), a.Table.ClientCount()
	if err := a.Table.Check(); err != nil {
		k.error("table-damaged", dir, adviceRecover, "the table breaks an invariant: %v", err)
	}
	k.replay(e)
	if k.deep == nil {
		return
	}
	for _, seg := range k.deep.segments {
		k.segment(dir, seg)
	}
}

// logError reports an error of a scan with the place that it names.
func (k *fsck) logError(s Severity, code, path, advice string, err error) {
	f := Finding{Severity: s, Code: code, Path: path, Problem: err.Error(), Advice: advice}
	if damage, ok := errors.AsType[*wal.ScanError](err); ok {
		f.Offset = damage.Offset
		if damage.File != "" {
			f.Path = path + "/" + damage.File
		}
		f.LSN, _ = wal.ParseSegmentName(damage.File)
	}
	k.add(f)
}

// replay reads the whole log and compares each checkpoint
// with the replayed table at its LSN: all checkpoints if the log reaches back to its beginning,
// else all but the oldest.
func (k *fsck) replay(e *epochdir.State) {
	dir := layout.EpochDir(e.Epoch)
	all, err := checkpoint.List(k.fs, dir)
	if err != nil {
		k.error("log-damaged", dir, adviceRecover, "%v", err)
		return
	}
	slices.Reverse(all)
	_, err = k.fs.Lstat(dir + "/" + wal.SegmentName(1))
	whole := err == nil
	good := map[cluster.LSN]*checkpoint.Base{}
	first := checkpoint.Empty()
	for _, lsn := range all {
		b, err := checkpoint.Read(k.fs, k.v.Cluster().ID, dir, lsn, true)
		if k.sawNewer(dir, err) {
			return
		}
		if err != nil {
			k.add(Finding{
				Severity: SeverityWarning, Code: "checkpoint-damaged", Path: dir + "/" + layout.CheckpointDir(lsn), LSN: lsn,
				Problem: err.Error(), Advice: "hand the primary role over (holdfast handover) and have it written again; until then the log reaches further back",
			})
			continue
		}
		if len(good) == 0 && !whole {
			first = b
		}
		good[lsn] = b
	}
	a := &volume.Adoption{Table: first.Table, Redo: slices.Clone(first.Pending)}
	at, apply := first.At, a.Replay()
	log, err := wal.Scan(k.dir(dir), wal.ScanOptions{
		Cluster: k.v.Cluster().ID, FeatureLevel: volume.FeatureLevel, MaxEpoch: e.Epoch, From: at, AtLeast: e.Start.End,
	}, func(lsn cluster.LSN, x wal.Entry, f wal.FrameHeader) error {
		at = wal.Position{LSN: lsn, Chain: at.Chain.Next(x.Header)}
		if err := apply(lsn, x, f); err != nil {
			return err
		}
		if b := good[lsn]; b != nil && (b.At != at || !sameState(b.Table, a.Table)) {
			k.add(Finding{
				Severity: SeverityError, Code: "checkpoint-differs", Path: dir + "/" + layout.CheckpointDir(lsn), LSN: lsn,
				Problem: "it is not what the log before it makes", Advice: adviceRecover,
			})
		}
		return nil
	})
	if k.sawNewer(dir, err) {
		return
	}
	if err != nil {
		// A claimant reads from a later checkpoint and succeeds.
		k.logError(SeverityWarning, "log-behind-base", dir, "nothing is lost: the newest checkpoint stands; the next one ends this", err)
		k.deep = &deepRead{k.adoption.Redo, k.adoption.Segments()}
		return
	}
	k.deep = &deepRead{a.Redo, log.Segments}
}

// sameState reports whether a checkpoint's table equals the replayed one. An older binary, which did
// not keep all of a table, may have written the checkpoint.
func sameState(written, replayed *locktable.Table) bool {
	if written.Hash() == replayed.Hash() {
		return true
	}
	for _, f := range written.Files() {
		if f.Since != 0 { // a present binary wrote it
			return false
		}
	}
	return written.OlderHash() == replayed.OlderHash()
}

// segment checks the bytes that a scan passes over: after the end and between frames.
func (k *fsck) segment(dir string, seg wal.SegmentInfo) {
	name := dir + "/" + seg.Name
	b, err := vfs.ReadFile(k.fs, name, vfs.FlagRead)
	if err != nil || len(b) < wal.BlockSize {
		return // it was removed since the scan
	}
	if seg.Header.Size != 0 && !vfs.AllZero(b[wal.SegmentHeaderSize:wal.BlockSize]) {
		k.info("padding", name, adviceLeave, "there is something between its header and its first frame")
	}
	off, padding := wal.BlockSize, 0
	for seg.Header.Size != 0 && off < len(b) {
		f, _, n, err := wal.DecodeFrame(b[off:])
		if err != nil {
			break
		}
		end := min(len(b), (off+n+wal.BlockSize-1)/wal.BlockSize*wal.BlockSize)
		if !vfs.AllZero(b[off+n : end]) {
			padding++
		}
		off = end
		if f.Kind == wal.FrameClose {
			break
		}
	}
	if padding > 0 {
		k.info("padding", name, adviceLeave, "%d frames are followed by something else than zeros", padding)
	}
	if off < len(b) && !vfs.AllZero(b[off:]) {
		k.add(Finding{
			Severity: SeverityInfo, Code: "torn-tail", Path: name, Offset: int64(off), LSN: seg.Last + 1,
			Problem: fmt.Sprintf("there are bytes behind the end of the log, LSN %d: a frame that was never acknowledged", seg.Last), Advice: adviceLeave,
		})
	}
}

// adopted compares START with the log that the term adopted, which
// is kept until a later term adopts from this one.
func (k *fsck) adopted() {
	e := k.newest
	if e.Epoch == 0 || e.ClaimErr == nil && e.Claim.Recovered != nil {
		return // it adopted nothing, or a recovery made it
	}
	var from *epochdir.State
	for i := range k.epochs {
		if s := &k.epochs[i]; s.Epoch < e.Epoch && (s.Start != nil || s.Unknown()) {
			from = s
		}
	}
	if from == nil || from.Unknown() {
		return // the adopted term is not known
	}
	dir := layout.EpochDir(from.Epoch)
	has, at, err := inspect.HasPosition(k.fs, k.v, from.Epoch, e.Start.End)
	switch {
	case k.sawNewer(dir, err):
	case err != nil:
		k.logError(SeverityWarning, "adopted-log", dir, adviceLeave, err)
	case !has && at.LSN < e.Start.End.LSN:
		// A power loss took what its writer had not synced. The term that adopted it
		// had written it again, durably, before its own START.
		k.info("adopted-tail", dir, adviceLeave, "the log ends at LSN %d; epoch %d adopted it up to LSN %d, and has the rest in its own", at.LSN, e.Epoch, e.Start.End.LSN)
	case !has:
		k.add(Finding{
			Severity: SeverityError, Code: "start-differs", Path: layout.EpochDir(e.Epoch) + "/" + layout.FenceName, Offset: layout.FenceSpacing, LSN: e.Start.End.LSN, Advice: adviceRecover,
			Problem: fmt.Sprintf("START says that the log of epoch %d was adopted up to LSN %d, chain value %016x; that log has no such place", from.Epoch, e.Start.End.LSN, uint64(e.Start.End.Chain)),
		})
	}
}

// dir gives package wal access to a directory, for reading.
func (k *fsck) dir(path string) *epochdir.Dir {
	return &epochdir.Dir{FS: k.fs, Path: path, Gate: func() error { return epochdir.ErrReadOnly }}
}
