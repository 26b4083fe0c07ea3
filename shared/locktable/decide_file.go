// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"fmt"
	"math"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// FileFacts is what a file's writer saw when it verified the file, before the
// request was admitted. The zero value means that it was not asked.
type FileFacts struct {
	Inode uint64
	Size  int64
	// Generation, if not 0, is the one that the facts are of: for OpRotate the
	// new one. Facts of another generation are out of date.
	Generation cluster.Generation
	// Made says that this server made the file itself and found no other in its place:
	// whatever had the inode's number before is gone, and so are those who could write to it.
	Made bool
	// Unchanged says that the file is empty and was not written, cut or moved since it was made,
	// by whomever. A file whose binding has ended was written, unless it was quarantined.
	Unchanged bool
}

// fresh says that no server that was paused has to be expected to write to the file, although
// one may to the file that had its inode's number when that was used up to there. An unchanged
// file does not tell so where its binding may have ended before anything was written: in what a
// recovery could not know, or in a quarantine.
func (t *Table) fresh(f *FileFacts, used int64) bool {
	return f.Made || f.Unchanged && f.Size == 0 && used < math.MaxInt64 && !t.mayLack()
}

// mayLack says that there are appends of which nobody knows whether they were written.
func (t *Table) mayLack() bool {
	if len(t.past.lost) > 0 {
		return true
	}
	for _, f := range t.files {
		if !f.Lost[0].none() {
			return true
		}
	}
	return false
}

// decideFile decides the operations that need the live, exclusive token of the file's lock.
func (t *Table) decideFile(q *Request, d *draft, r Record, facts FileFacts) Decision {
	if dec, ok := t.mustHold(q); !ok {
		return dec
	}
	if dec, ok := t.mustWrite(q); !ok {
		return dec
	}
	f := t.files[q.File]
	if f != nil && f.Lock != q.Lock {
		return refuse(q, cluster.StatusInvalidArgument, fmt.Sprintf("file %q is bound to lock %q", q.File, f.Lock))
	}
	r.Token, r.File = q.Token, q.File
	switch q.Op {
	case OpAppend:
		return t.decideAppend(q, d, r, f, facts)
	case OpBind:
		return t.decideBind(q, d, r, f, facts)
	}
	if f == nil {
		return refuse(q, cluster.StatusInvalidArgument, fmt.Sprintf("file %q is not bound to a lock", q.File))
	}
	switch q.Op {
	case OpUnbind:
		if f.Sealed { // bound anew it would be open again
			return refuse(q, cluster.StatusFileSealed, fmt.Sprintf("file %q is sealed: rotate it first, then unbind it", q.File))
		}
		if f.Quarantined { // its last appends may be in no file
			return refuse(q, cluster.StatusFileQuarantined, fmt.Sprintf("file %q: %s; rotate it first, then unbind it", q.File, f.Reason))
		}
		if t.past.full(f) {
			return refuse(q, cluster.StatusInvalidArgument,
				fmt.Sprintf("file %q was quarantined once, and so were %d files that are not bound any more, the most that are remembered: leave it bound", q.File, MaxLostFiles))
		}
		r.Kind, r.Remember = KindUnbind, t.level2(q)
		if !r.Remember && !f.Lost[0].none() { // its lost appends would be forgotten
			return refuse(q, cluster.StatusInvalidArgument,
				fmt.Sprintf("file %q was quarantined once, and a server of an older version would forget it: leave it bound until every server is upgraded", q.File))
		}
		return decided(d.add(r))
	case OpSeal:
		return t.decideSeal(q, d, r, f)
	}
	if dec, ok := t.checkFacts(q, facts, f.Generation+1); !ok {
		return dec
	}
	if facts.Size != 0 {
		return refuse(q, cluster.StatusStorageUnavailable, fmt.Sprintf("the new inode of file %q has %d bytes; try again", q.File, facts.Size))
	}
	r.Kind, r.Inode, r.Generation, r.Remember = KindRotate, facts.Inode, f.Generation+1, t.level2(q)
	if !r.Remember && f.Quarantined && !f.Lost[mostLost-1].none() { // the oldest of them would be forgotten
		return refuse(q, cluster.StatusFileQuarantined,
			fmt.Sprintf("file %q: %s; it was quarantined %d times before, and a server of an older version would forget the first: upgrade every server, then rotate it", q.File, f.Reason, mostLost))
	}
	return decided(d.add(r))
}

func (t *Table) decideAppend(q *Request, d *draft, r Record, f *file, facts FileFacts) Decision {
	if dec, ok := t.mayAppend(q, f); !ok {
		return dec
	}
	length := int64(len(q.Data))
	generation, offset := t.nextGeneration(), facts.Size
	if f != nil {
		generation, offset = f.Generation, f.End
	}
	switch {
	case f == nil:
		if dec, ok := t.mayBind(q, facts); !ok {
			return dec
		}
	case f.Quarantined:
		return refuse(q, cluster.StatusFileQuarantined, fmt.Sprintf("file %q: %s; rotate it to go on", q.File, f.Reason))
	case f.Sealed:
		dec := refuse(q, cluster.StatusFileSealed, fmt.Sprintf("file %q was sealed at offset %d; rotate it to go on", q.File, f.End))
		dec.Outcome.Generation, dec.Outcome.Offset = f.Generation, f.End
		return dec
	}
	if q.At != nil && *q.At != offset {
		return refuseAt(q, generation, offset, "ends at")
	}
	if offset+length < 0 {
		return refuse(q, cluster.StatusInvalidArgument, fmt.Sprintf("file %q is full: rotate it", q.File))
	}
	if f == nil {
		// The request belongs to the Append: one request, one receipt.
		d.add(Record{
			Kind: KindBind, Client: q.Client, Lock: q.Lock, Token: q.Token, File: q.File,
			Inode: facts.Inode, Generation: generation, Offset: offset,
		})
	}
	r.Kind, r.Generation, r.Offset = KindAppend, generation, offset
	r.Length, r.CRC, r.Data = length, q.CRC, q.Data
	return decided(d.add(r))
}

// mayAppend refuses what no look at the file would admit.
func (t *Table) mayAppend(q *Request, f *file) (Decision, bool) {
	length := int64(len(q.Data))
	switch {
	case length == 0:
		return refuse(q, cluster.StatusInvalidArgument, "no data to append"), false
	case length > cluster.MaxAppend:
		return refuse(q, cluster.StatusTooLarge, fmt.Sprintf("%d bytes of data: one append carries at most %d", length, cluster.MaxAppend)), false
	case f == nil && q.At != nil && *q.At != 0 && !q.AdoptExisting:
		// Whatever the file is: it has to be empty, or it is refused for that.
		return refuseAt(q, t.nextGeneration(), 0, "is not bound yet: its first append is at"), false
	}
	return Decision{}, true
}

// MayAppend reports whether it depends on the file whether an append to it is admitted: if
// not, the file need not be there.
func (t *Table) MayAppend(q *Request) bool {
	_, ok := t.mayAppend(q, t.files[q.File])
	return ok
}

func refuseAt(q *Request, generation cluster.Generation, offset int64, is string) Decision {
	dec := refuse(q, cluster.StatusOffsetMismatch, fmt.Sprintf("file %q %s offset %d, not at %d", q.File, is, offset, *q.At))
	dec.Outcome.Generation, dec.Outcome.Offset = generation, offset
	return dec
}

// decideSeal ends the present generation. A file that is quarantined has nothing to seal:
// its bytes are not known.
func (t *Table) decideSeal(q *Request, d *draft, r Record, f *file) Decision {
	switch {
	case f.Quarantined:
		return refuse(q, cluster.StatusFileQuarantined, fmt.Sprintf("file %q: %s; rotate it to go on", q.File, f.Reason))
	case f.Sealed:
		return t.already(q, d, r, f)
	}
	r.Kind, r.Generation, r.Offset = KindSeal, f.Generation, f.End
	return decided(d.add(r))
}

// already answers that what was asked for is so by now. It changes nothing, but the request
// was executed: behind an Unbind or a Rotate, a late duplicate of it must do nothing. Of an
// anonymous client nothing is kept, so there is nothing to log; and level 1 has no such record.
func (t *Table) already(q *Request, d *draft, r Record, f *file) Decision {
	r.Kind, r.Generation, r.Offset = KindAlready, f.Generation, f.End
	if q.Client.Anonymous() || !t.level2(q) {
		dec := decided(&r)
		dec.Outcome.LSN = f.LastLSN
		return dec
	}
	return decided(d.add(r))
}

func (t *Table) decideBind(q *Request, d *draft, r Record, f *file, facts FileFacts) Decision {
	if f != nil {
		return t.already(q, d, r, f)
	}
	if dec, ok := t.mayBind(q, facts); !ok {
		return dec
	}
	r.Kind, r.Inode, r.Generation, r.Offset = KindBind, facts.Inode, t.nextGeneration(), facts.Size
	return decided(d.add(r))
}

func (t *Table) mayBind(q *Request, facts FileFacts) (Decision, bool) {
	if dec, ok := t.checkFacts(q, facts, t.nextGeneration()); !ok {
		return dec, false
	}
	if facts.Size > 0 && !q.AdoptExisting {
		return refuse(q, cluster.StatusInvalidArgument,
			fmt.Sprintf("file %q exists and is not empty; use adopt_existing", q.File)), false
	}
	return Decision{}, true
}

// checkFacts checks what the writer saw of an inode that is to be bound.
func (t *Table) checkFacts(q *Request, facts FileFacts, generation cluster.Generation) (Decision, bool) {
	if facts.Inode == 0 || facts.Size < 0 || facts.Generation != 0 && facts.Generation != generation {
		return refuse(q, cluster.StatusStorageUnavailable,
			fmt.Sprintf("file %q was not verified for generation %d; try again", q.File, generation)), false
	}
	if other, ok := t.inodes[facts.Inode]; ok {
		return refuse(q, cluster.StatusInvalidArgument,
			fmt.Sprintf("file %q has the inode of file %q, which is bound: it is a link to that file, or that file is gone and its inode was given to this one. Move %q away and try again",
				q.File, other, q.File)), false
	}
	if used := t.past.usedUpTo(facts.Inode); facts.Size < used && !t.fresh(&facts, used) {
		return refuse(q, cluster.StatusInvalidArgument,
			fmt.Sprintf("file %q has %d bytes, and under a binding that ended its inode was written up to offset %d, or may have been: a server that was paused may still write there. Move the file away or remove it, so that the service makes a new one, or put a copy of it in its place under the same name",
				q.File, facts.Size, used)), false
	}
	return Decision{}, true
}
