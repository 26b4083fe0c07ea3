// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"fmt"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// FileState is what the table knows of one protected file.
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
	// Lost are of the last generations that were rotated away while they were quarantined,
	// the newest first.
	Lost [mostLost]LostAppends
}

// mostLost is how many quarantined generations of a file are remembered. Each took an operator.
const mostLost = 4

// LostAppends are those to a generation of a file that was quarantined: nobody knows whether
// their bytes are in it. Theirs are the LSNs after After and before Until.
type LostAppends struct {
	Generation cluster.Generation `json:"generation"`
	After      cluster.LSN        `json:"after"`
	Until      cluster.LSN        `json:"until"`
}

func (l LostAppends) none() bool { return l == LostAppends{} }

func (l LostAppends) has(rc *receipt) bool {
	return rc.file.generation == l.Generation && rc.lsn > l.After && rc.lsn < l.Until
}

// lostInOrder says that what is remembered of quarantined generations makes sense.
func (f *file) lostInOrder() bool {
	generation, before := f.Generation, f.Since
	for i, l := range f.Lost {
		if l.none() {
			return !slices.ContainsFunc(f.Lost[i:], func(l LostAppends) bool { return !l.none() })
		}
		if l.Generation == 0 || l.Generation >= generation || l.After >= l.Until || l.Until > before {
			return false
		}
		generation, before = l.Generation, l.After
	}
	return true
}

// lost says why it is not known whether an append is in its file; "" if it is there, or
// on its way.
func (f *file) lost(rc *receipt) string {
	switch {
	case f.Quarantined && rc.file.generation == f.Generation && rc.lsn > f.Since:
		return f.Reason
	case slices.ContainsFunc(f.Lost[:], func(l LostAppends) bool { return l.has(rc) }):
		return fmt.Sprintf("generation %d of the file was quarantined and rotated away: look there for what was appended", rc.file.generation)
	}
	return ""
}

func (t *Table) bind(r *Record) {
	f := &file{name: r.File, FileState: FileState{
		Lock: r.Lock, Inode: r.Inode, Generation: r.Generation,
		Start: r.Offset, End: r.Offset, LastLSN: r.LSN, Since: r.LSN,
	}}
	t.addFile(f)
}

// addFile puts f into the table and under its lock.
func (t *Table) addFile(f *file) {
	f.changed = t.stamp()
	t.files[f.name] = f
	t.fileNames.insert(f.name)
	t.inodes[f.Inode] = f.name
	l := t.ownRow(t.lockFor(f.Lock))
	if l.files == nil {
		l.files = new(sorted[cluster.FileName])
	}
	l.files.insert(f.name)
	t.hash += t.sum(f.appendTo)
}

func (t *Table) unbind(f *file) {
	t.changesFile(f)
	t.hash -= t.sum(f.appendTo)
	delete(t.files, f.name)
	t.fileNames.remove(f.name)
	delete(t.inodes, f.Inode)
	l := t.locks.get(f.Lock)
	l.files.remove(f.name)
	if l.files.len() == 0 {
		l.files = nil
		t.tidyRow(l)
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
	lost := f.Lost
	if f.Quarantined {
		copy(lost[1:], f.Lost[:])
		lost[0] = LostAppends{Generation: f.Generation, After: f.Since, Until: r.LSN}
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
