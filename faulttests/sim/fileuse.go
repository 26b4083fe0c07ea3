// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"context"
	"fmt"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/index"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// expect is an offset to append at: mostly where the file was heard to end.
func (w *wanderer) expect(file cluster.FileName) *int64 {
	at := w.sums[file]
	if w.rng.IntN(4) == 0 {
		at = int64(w.rng.IntN(5000))
	}
	return &at
}

// expected checks an answer to an append against the offset that it expected: it went
// there or nowhere.
func (w *wanderer) expected(q *locktable.Request, out locktable.Outcome) {
	if w.sums == nil {
		w.sums = map[cluster.FileName]int64{}
	}
	switch out.Status {
	case cluster.StatusOK:
		if q.At != nil && out.Offset != *q.At {
			w.scenario.Ledger.violation("I5: %s/%d expected offset %d of %s and was appended at %d", q.Client, w.next, *q.At, q.File, out.Offset)
		}
		w.sums[q.File] = out.Offset + out.Length
	case cluster.StatusOffsetMismatch:
		if q.At == nil || out.Offset == *q.At {
			w.scenario.Ledger.violation("I5: %s/%d to %s was refused at the offset %d that it expected", q.Client, w.next, q.File, out.Offset)
		}
		w.sums[q.File] = out.Offset
		w.scenario.Ledger.refuse(q.Data)
	case cluster.StatusFileSealed:
		w.scenario.Ledger.refuse(q.Data)
	}
}

// seal seals the present generation; a rotation begins the next one.
func (w *wanderer) seal(ctx context.Context, file cluster.FileName) {
	if out := w.held(ctx, locktable.Request{Op: locktable.OpSeal, File: file}); out.Status == cluster.StatusOK && w.rng.IntN(2) == 0 {
		w.rotate(ctx, file)
	}
}

// readFile reads a protected file as far as a primary tells: every append that was
// acknowledged before is there, and what is told is there at once.
func (w *wanderer) readFile(ctx context.Context, file cluster.FileName) {
	acks, outages := w.scenario.Ledger.Acks(), w.world.outages.Load()
	var state locktable.FileState
	var bound bool
	high := w.scenario.Ledger.High()
	out := w.until(ctx, func(ctx context.Context, r *Term) (locktable.Outcome, error) {
		return r.hear("where a file ends", func(p *primary.Primary) (out locktable.Outcome, err error) {
			state, bound, out, err = p.File(ctx, file)
			return out, err
		})
	})
	if out.Status != cluster.StatusOK {
		return
	}
	if out.LSN < high {
		w.scenario.Ledger.violation("I9: a file was told at LSN %d after %d was acknowledged", out.LSN, high)
	}
	host := w.scenario.Disk.Host(readHost, volumetest.ProfileLocal())
	before, err := host.Lstat(volume.ProtectedPath(file))
	if !bound || err != nil || before.Inode != state.Inode {
		return
	}
	content, err := w.scenario.Disk.ReadFile(volume.ProtectedPath(file))
	after, again := host.Lstat(volume.ProtectedPath(file))
	if err != nil || again != nil || after.Inode != state.Inode || w.world.outages.Load() != outages {
		return // it was moved meanwhile, or a power loss took what the log has
	}
	if int64(len(content)) < state.End {
		w.scenario.Ledger.violation("I5: %s was told to end at %d when it had %d bytes", file, state.End, len(content))
		return
	}
	for _, a := range acks {
		if a.Request.Op != locktable.OpAppend || a.Request.File != file || a.Outcome.Generation != state.Generation || a.Outcome.LSN <= state.Since {
			continue
		}
		end := a.Outcome.Offset + a.Outcome.Length
		if end > state.End || !bytes.Equal(content[a.Outcome.Offset:end], a.Request.Data) {
			w.scenario.Ledger.violation("I5: %s was told to end at %d, without what %s/%d was told to have appended at %d", file, state.End, a.Request.Client, a.Request.ID, a.Outcome.Offset)
		}
	}
}

// readHost is the host of readers, which is no server's.
const readHost = 91

// verifyIndex checks that the index has each append as in the answer to its client.
func (s *Scenario) verifyIndex(disk *volumetest.Disk) (bad []string) {
	appends := map[cluster.LSN]Ack{}
	for _, a := range s.Ledger.Acks() {
		if a.Request.Op == locktable.OpAppend {
			appends[a.Outcome.LSN] = a
		}
	}
	err := index.Read(context.Background(), disk.Clone().Host(fsckHost, s.Profile), func(e *index.Entry) error {
		a, acked := appends[e.LSN]
		if acked && (e.File != a.Request.File || e.Generation != a.Outcome.Generation || e.Offset != a.Outcome.Offset || e.Length != a.Outcome.Length ||
			e.CRC != a.Outcome.CRC || e.Client != a.Request.Client || e.Request != a.Request.ID || e.Token != a.Request.Token) {
			bad = append(bad, fmt.Sprintf("I5: the index says %+v of what was acknowledged as %+v", *e, a.Outcome))
		}
		return nil
	})
	if err != nil {
		bad = append(bad, fmt.Sprintf("the index cannot be read: %v", err))
	}
	return bad
}

// verifySeals checks that nothing is appended to a generation after its seal.
func (s *Scenario) verifySeals() (bad []string) {
	sealed := map[generation]cluster.LSN{}
	for _, a := range s.Ledger.Acks() {
		if a.Request.Op == locktable.OpSeal {
			sealed[generation{a.Request.File, a.Outcome.Generation}] = a.Outcome.LSN
		}
	}
	for _, a := range s.Ledger.Acks() {
		g := generation{a.Request.File, a.Outcome.Generation}
		if at, ok := sealed[g]; ok && a.Request.Op == locktable.OpAppend && a.Outcome.LSN > at {
			bad = append(bad, fmt.Sprintf("I5: generation %d of %s was sealed at LSN %d and appended to at LSN %d", g.number, g.file, at, a.Outcome.LSN))
		}
	}
	return bad
}

// move moves a file away, all of it durable, and says where to.
func (w *wanderer) move(file cluster.FileName) (to string, err error) {
	disk, from := w.scenario.Disk, volume.ProtectedPath(file)
	to = fmt.Sprintf("%s/%d", volume.ProtectedPath(movedDir), w.world.moves.Add(1))
	if err := disk.Write(from, 0, nil); err != nil {
		return "", err
	}
	if err := disk.Mkdir(volume.ProtectedPath(movedDir)); err != nil {
		return "", err
	}
	return to, disk.Rename(from, to)
}

// recycle lets a file go, keeps a copy, empties it in place and goes on under its name, as some
// log rotations do. A server that is paused before a write may still do it there. So the
// service takes that inode for nothing, until the file is removed and it makes a new one.
func (w *wanderer) recycle(ctx context.Context, file cluster.FileName) {
	outages, disk, path := w.world.outages.Load(), w.scenario.Disk, volume.ProtectedPath(file)
	last := w.appendOnce(ctx, file)
	if last.Status != cluster.StatusOK || w.held(ctx, locktable.Request{Op: locktable.OpUnbind, File: file}).Status != cluster.StatusOK {
		return
	}
	content, err := disk.ReadFile(path)
	if err == nil {
		err = disk.Mkdir(volume.ProtectedPath(movedDir))
	}
	if err == nil {
		err = disk.Write(fmt.Sprintf("%s/%d", volume.ProtectedPath(movedDir), w.world.moves.Add(1)), 0, content)
	}
	if vfs.IsFull(err) {
		return // without a copy no file is emptied
	}
	if err == nil {
		err = disk.Truncate(path, 0)
	}
	if err != nil {
		w.scenario.Ledger.violation("the operator cannot empty %s: %v", file, err)
		return
	}
	if w.world.outages.Load() != outages {
		w.scenario.Ledger.spoil(generation{file, last.Generation})
	}
	w.emptied = true
	out := w.appendOnce(ctx, file)
	if out.Status == cluster.StatusOK && w.world.outages.Load() == outages {
		w.scenario.Ledger.violation("H16: %s was emptied in place and goes on at offset %d: below %d a server that sleeps may still write", file, out.Offset, last.Offset+last.Length)
	}
	if err := disk.Remove(path); err != nil {
		w.scenario.Ledger.violation("the operator cannot remove %s: %v", file, err)
	}
	w.appendOnce(ctx, file)
	w.emptied = false
}
