// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"fmt"

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
	// Lost is of the last generation that was rotated away while it was quarantined.
	Lost LostAppends
}

// LostAppends are those to a generation of a file that was quarantined: nobody knows whether
// their bytes are in it. Theirs are the LSNs after After and before Until.
type LostAppends struct{ After, Until cluster.LSN }

// lost says why it is not known whether an append is in its file; "" if it is there, or
// on its way.
func (f *file) lost(rc *receipt) string {
	switch {
	case f.Quarantined && rc.file.generation == f.Generation && rc.lsn > f.Since:
		return f.Reason
	case rc.lsn > f.Lost.After && rc.lsn < f.Lost.Until:
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
		lost = LostAppends{After: f.Since, Until: r.LSN}
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
