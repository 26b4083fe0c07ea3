// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"fmt"
	"math"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// file is one protected file.
type file struct {
	FileState
	name    cluster.FileName
	changed cluster.LSN // while an export was under way
}

// FileState is the state of one bound file.
type FileState struct {
	Lock       cluster.LockName
	Inode      uint64
	Generation cluster.Generation
	// Start is the size when the file was bound, End the offset of the next append.
	Start, End int64
	// Of the last append of this generation, for verification; Length 0 if there was none.
	LastOffset int64
	LastLength int64
	LastCRC    uint32
	// LastLSN is that of the last Bind, Rotate or Append.
	LastLSN     cluster.LSN
	Quarantined bool
	Reason      string // of the quarantine
	// Since is the LSN of the Bind or Rotate that began this generation; 0 where an older
	// binary applied it.
	Since  cluster.LSN
	Sealed bool // nothing is appended to this generation any more
	// Lost are the appends of generations that were rotated away while they were
	// quarantined, the newest first.
	Lost lostList
}

// mostLost is how many quarantined generations of a file are distinguished. Each took an operator.
const mostLost = 4

// lostList is of one file, the newest first.
type lostList [mostLost]LostAppends

// LostAppends are the appends to a quarantined generation of a file of which it is not known
// whether their bytes are in it: those with LSNs after After and before Until.
type LostAppends struct {
	Generation cluster.Generation `json:"generation"`
	// Oldest, if not 0, is an earlier generation: all from there on are meant, the healthy ones
	// included, because more were quarantined than are distinguished.
	Oldest cluster.Generation `json:"oldest,omitempty"`
	After  cluster.LSN        `json:"after"`
	Until  cluster.LSN        `json:"until"`
}

func (l LostAppends) none() bool { return l == LostAppends{} }

// first returns the first generation that is meant.
func (l LostAppends) first() cluster.Generation {
	if l.Oldest != 0 {
		return l.Oldest
	}
	return l.Generation
}

func (l LostAppends) has(rc *receipt) bool {
	g := rc.file.generation
	return g >= l.first() && g <= l.Generation && rc.lsn > l.After && rc.lsn < l.Until
}

// push inserts x as the newest. If the list is full the two oldest become one or, for a record
// of an older binary, the oldest is forgotten.
func (l *lostList) push(x LostAppends, remember bool) {
	if oldest := l[mostLost-1]; remember && !oldest.none() {
		both := &l[mostLost-2]
		both.Oldest, both.After = oldest.first(), oldest.After
	}
	copy(l[1:], l[:])
	l[0] = x
}

// inOrder reports whether the entries descend and are older than this generation and this record.
func (l *lostList) inOrder(generation cluster.Generation, before cluster.LSN) bool {
	for i, x := range l {
		if x.none() {
			return !slices.ContainsFunc(l[i:], func(x LostAppends) bool { return !x.none() })
		}
		if x.first() == 0 || x.first() > x.Generation || x.Generation >= generation || x.After >= x.Until || x.Until > before {
			return false
		}
		generation, before = x.first(), x.After
	}
	return true
}

// why returns why it is not known whether an append is in its file; "" if it is there.
func (l *lostList) why(rc *receipt) string {
	if !slices.ContainsFunc(l[:], func(x LostAppends) bool { return x.has(rc) }) {
		return ""
	}
	return fmt.Sprintf("generation %d of the file was quarantined and rotated away: look there for what was appended", rc.file.generation)
}

func (l *lostList) export() []LostAppends {
	return slices.DeleteFunc(slices.Clone(l[:]), LostAppends.none)
}

func importLost(name cluster.FileName, all []LostAppends) (l lostList, err error) {
	if n := len(all); copy(l[:], all) < n {
		err = fmt.Errorf("file %q has %d generations of lost appends", name, n)
	}
	return l, err
}

func (l *lostList) appendTo(b []byte) []byte {
	for _, x := range l {
		if x.none() {
			break
		}
		b = appendNumbers(append(b, 'l'), uint64(x.Generation), uint64(x.After), uint64(x.Until))
		if x.Oldest != 0 {
			b = appendNumbers(append(b, 'o'), uint64(x.Oldest))
		}
	}
	return b
}

// lost returns why it is not known whether an append is in its file; "" if it is, or will be.
func (t *Table) lost(rc *receipt) string {
	if f := t.files[rc.file.name]; f != nil {
		if f.Quarantined && rc.file.generation == f.Generation && rc.lsn > f.Since {
			return f.Reason
		}
		if why := f.Lost.why(rc); why != "" {
			return why
		}
	}
	return t.past.lostOf(rc)
}

func (t *Table) bind(r *Record) {
	t.forgetUse(r.Inode)
	f := &file{name: r.File, FileState: FileState{
		Lock: r.Lock, Inode: r.Inode, Generation: r.Generation,
		Start: r.Offset, End: r.Offset, LastLSN: r.LSN, Since: r.LSN,
	}}
	t.addFile(f)
}

// addFile adds f to the table and to its lock.
func (t *Table) addFile(f *file) {
	f.changed = t.stamp()
	t.files[f.name] = f
	t.fileNames.insert(f.name)
	t.inodes[f.Inode] = f.name
	l := t.ownEntry(t.lockFor(f.Lock))
	if l.files == nil {
		l.files = new(sorted[cluster.FileName])
	}
	l.files.insert(f.name)
	t.hash += t.sum(f.appendTo)
}

func (t *Table) unbind(r *Record) {
	f := t.files[r.File]
	if r.Remember {
		t.rememberFile(f)
	}
	t.changesFile(f)
	t.hash -= t.sum(f.appendTo)
	delete(t.files, f.name)
	t.fileNames.remove(f.name)
	delete(t.inodes, f.Inode)
	l := t.locks.get(f.Lock)
	l.files.remove(f.name)
	if l.files.len() == 0 {
		l.files = nil
		t.tidyEntry(l)
	}
	t.owedOrVanish(l)
}

func (t *Table) append(r *Record) {
	f := t.files[r.File]
	t.changesFile(f)
	t.hash -= t.sum(f.appendTo)
	f.LastOffset, f.LastLength, f.LastCRC, f.LastLSN = r.Offset, r.Length, r.CRC, r.LSN
	f.End += r.Length
	t.hash += t.sum(f.appendTo)
}

func (t *Table) rotate(r *Record) {
	f := t.files[r.File]
	t.changesFile(f)
	t.hash -= t.sum(f.appendTo)
	delete(t.inodes, f.Inode)
	if r.Remember {
		t.rememberUse(f)
	}
	t.forgetUse(r.Inode)
	lost := f.Lost
	if f.Quarantined {
		lost.push(LostAppends{Generation: f.Generation, After: f.Since, Until: r.LSN}, r.Remember)
	}
	f.FileState = FileState{Lock: f.Lock, Inode: r.Inode, Generation: r.Generation, LastLSN: r.LSN, Since: r.LSN, Lost: lost}
	t.inodes[f.Inode] = f.name
	t.hash += t.sum(f.appendTo)
}

func (t *Table) quarantine(r *Record) {
	f := t.files[r.File]
	t.changesFile(f)
	t.hash -= t.sum(f.appendTo)
	f.Quarantined, f.Reason = true, r.Reason
	t.hash += t.sum(f.appendTo)
}

func (t *Table) seal(r *Record) {
	f := t.files[r.File]
	t.changesFile(f)
	t.hash -= t.sum(f.appendTo)
	f.Sealed = true
	t.hash += t.sum(f.appendTo)
}

// FileFacts is what a file's writer saw when it verified the file, before the
// request was admitted. The zero value means that the file was not verified.
type FileFacts struct {
	Inode uint64
	Size  int64
	// Generation, if not 0, is the generation that the facts are about, for OpRotate the
	// new one. Facts about another generation are out of date.
	Generation cluster.Generation
	// Made is set if this server made the file itself and found no other in its place: the
	// file that had the inode number before is gone, and no paused server can write to it.
	Made bool
	// Unchanged is set if the file is empty and was never written, truncated or moved since it
	// was made. A file whose binding has ended was written, unless it was quarantined.
	Unchanged bool
}

// fresh reports whether no paused server has to be expected to write to the file, although one
// may have written to an earlier file with its inode number, up to offset used. Unchanged does
// not prove that where a binding may have ended before anything was written: in what a recovery
// could not know, or in a quarantine.
func (t *Table) fresh(f *FileFacts, used int64) bool {
	return f.Made || f.Unchanged && f.Size == 0 && used < math.MaxInt64 && !t.mayLack()
}

// mayLack reports whether there are appends of which it is not known whether they were written.
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

// mayAppend refuses appends that are refused whatever the file holds.
func (t *Table) mayAppend(q *Request, f *file) (Decision, bool) {
	length := int64(len(q.Data))
	switch {
	case length == 0:
		return refuse(q, cluster.StatusInvalidArgument, "no data to append"), false
	case length > cluster.MaxAppend:
		return refuse(q, cluster.StatusTooLarge, fmt.Sprintf("%d bytes of data: one append carries at most %d", length, cluster.MaxAppend)), false
	case f == nil && q.At != nil && *q.At != 0 && !q.AdoptExisting:
		// Whatever the file holds: if it is not empty, the append is refused for that.
		return refuseAt(q, t.nextGeneration(), 0, "is not bound yet: its first append is at"), false
	}
	return Decision{}, true
}

// MayAppend reports whether the append has to be decided by the file's content. If not, it is
// refused without a look at the file.
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

// already answers a Bind or Seal that finds the file bound or sealed. It changes nothing, but
// the request was executed: after an Unbind or a Rotate, a late duplicate of it must do nothing.
// An anonymous client has no receipts, so there is nothing to log; and level 1 has no such record.
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

// checkFacts refuses to bind an inode of which the writer saw these facts, unless they admit it.
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
