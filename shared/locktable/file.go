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
	// Lost are of the generations that were rotated away while they were quarantined, the
	// newest first.
	Lost lostList
}

// mostLost is how many quarantined generations of a file are told apart. Each took an operator.
const mostLost = 4

// lostList is of one file, the newest first.
type lostList [mostLost]LostAppends

// LostAppends are those to a generation of a file that was quarantined: nobody knows whether
// their bytes are in it. Theirs are the LSNs after After and before Until.
type LostAppends struct {
	Generation cluster.Generation `json:"generation"`
	// Oldest, if not 0, is a generation before: these are all from there on, the healthy ones
	// among them too, because more were quarantined than are told apart.
	Oldest cluster.Generation `json:"oldest,omitempty"`
	After  cluster.LSN        `json:"after"`
	Until  cluster.LSN        `json:"until"`
}

func (l LostAppends) none() bool { return l == LostAppends{} }

// first is the first generation.
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

// push puts the newest one in. Where there is no room the two oldest become one; a record of
// an older binary forgets the oldest.
func (l *lostList) push(x LostAppends, remember bool) {
	if oldest := l[mostLost-1]; remember && !oldest.none() {
		both := &l[mostLost-2]
		both.Oldest, both.After = oldest.first(), oldest.After
	}
	copy(l[1:], l[:])
	l[0] = x
}

// inOrder says that what is remembered of quarantined generations makes sense: they are older
// than a generation and a record.
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

// why says why it is not known whether an append is in its file; "" if it is there.
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

// lost says why it is not known whether an append is in its file; "" if it is there, or
// on its way.
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
