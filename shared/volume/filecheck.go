// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// fileProblem is what is wrong with a protected file, or nil.
type fileProblem struct {
	code   string
	offset int64
	lsn    cluster.LSN
	text   string
}

func (p *fileProblem) Error() string { return p.text }

// fileCheck compares one protected file with the table, with the appends that
// the log still has and with the receipts that are kept.
type fileCheck struct {
	fs    FS
	name  cluster.FileName
	state locktable.FileState
	// redo are the appends that the log has, in order of offset.
	redo []locktable.Record
	// receipts are of appends to this generation, under this binding.
	receipts []*locktable.ReceiptState
	// written is the offset up to which the file was written when the base was
	// made. Bytes behind it may be missing or zero: a takeover writes them.
	written int64
	// sizeBefore is the file's size before the log was read. A primary at work
	// makes it longer meanwhile, so only this one must not pass the log's end.
	sizeBefore int64
	// atRest says that no primary is at work: the size that is found counts.
	atRest bool
	// anyInode accepts a file with another inode: a restored one.
	anyInode bool

	info     Info
	compared int64 // bytes
	problem  *fileProblem
}

// run returns what is wrong, or an error of the filesystem. What is read past every
// cache may still be judged by a name or a size that a cache remembers, so on a
// network filesystem it looks again before it says that something is wrong.
func (c *fileCheck) run(ctx context.Context) (*fileProblem, error) {
	for try := 1; ; try++ {
		p, err := c.once()
		c.problem = p
		if p == nil || err != nil || try == retries || !c.fs.Kind().Network {
			return p, err
		}
		if err := pause(ctx, retryPause); err != nil {
			return nil, err
		}
	}
}

func (c *fileCheck) once() (problem *fileProblem, err error) {
	path := ProtectedPath(c.name)
	if c.info, err = c.fs.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return &fileProblem{code: "file-missing", text: "it is not there"}, nil
	}
	if err != nil {
		return nil, err
	}
	if p := c.identity(); p != nil {
		return p, nil
	}
	f, err := c.fs.Open(path, FlagRead|FlagDirect)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if info, err := f.Stat(); err != nil || info.Size > c.info.Size {
		c.info.Size = max(c.info.Size, info.Size)
		if err != nil {
			return nil, err
		}
	}
	if c.atRest {
		c.sizeBefore = c.info.Size
	}
	if p := c.size(); p != nil {
		return p, nil
	}
	c.compared = 0
	return c.content(directReader{f})
}

func (c *fileCheck) identity() *fileProblem {
	switch {
	case c.info.Type != TypeFile:
		return &fileProblem{code: "file-type", text: "not a regular file"}
	case c.info.Inode != c.state.Inode && !c.anyInode:
		return &fileProblem{code: "file-inode", lsn: c.state.LastLSN, text: fmt.Sprintf("inode %d, the log says %d: the file was replaced", c.info.Inode, c.state.Inode)}
	case c.info.Nlink != 1:
		return &fileProblem{code: "file-links", text: fmt.Sprintf("%d hard links: it must have one name only", c.info.Nlink)}
	}
	return nil
}

func (c *fileCheck) size() *fileProblem {
	switch {
	case c.info.Size < c.written:
		return &fileProblem{code: "file-short", offset: c.info.Size, lsn: c.state.LastLSN, text: fmt.Sprintf(
			"%d bytes, the log says %d to %d: bytes that were written are gone", c.info.Size, c.written, c.state.End)}
	case c.sizeBefore > c.state.End:
		return &fileProblem{code: "file-long", offset: c.state.End, text: fmt.Sprintf(
			"%d bytes, the log says %d to %d: foreign bytes behind the last append", c.sizeBefore, c.written, c.state.End)}
	}
	return nil
}

// content compares bytes: with the log where it has them, else with the CRCs of
// the last append and of the receipts.
func (c *fileCheck) content(f io.ReaderAt) (*fileProblem, error) {
	for i := range c.redo {
		if p, err := c.appended(f, &c.redo[i]); p != nil || err != nil {
			return p, err
		}
	}
	last := &locktable.ReceiptState{Offset: c.state.LastOffset, Length: c.state.LastLength, CRC: c.state.LastCRC, LSN: c.state.LastLSN}
	for _, rc := range append([]*locktable.ReceiptState{last}, c.receipts...) {
		if rc.Length == 0 || rc.Offset+rc.Length > min(c.written, c.info.Size) {
			continue
		}
		if p, err := c.sum(f, rc); p != nil || err != nil {
			return p, err
		}
	}
	return nil, nil
}

// appended compares one append with the bytes that are there.
func (c *fileCheck) appended(f io.ReaderAt, rec *locktable.Record) (*fileProblem, error) {
	n := min(int64(len(rec.Data)), c.info.Size-rec.Offset)
	if n <= 0 {
		return nil, nil
	}
	there := make([]byte, n)
	if _, err := f.ReadAt(there, rec.Offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	c.compared += n
	if bytes.Equal(there, rec.Data[:n]) {
		return nil, nil
	}
	for i, b := range there {
		at := rec.Offset + int64(i)
		switch {
		case b == rec.Data[i]:
		case b != 0:
			return &fileProblem{code: "file-foreign", offset: at, lsn: rec.LSN, text: fmt.Sprintf("foreign bytes at offset %d, where LSN %d was appended", at, rec.LSN)}, nil
		case at < c.written:
			return &fileProblem{code: "file-hole", offset: at, lsn: rec.LSN, text: fmt.Sprintf("zeros at offset %d, where LSN %d was appended and written", at, rec.LSN)}, nil
		}
	}
	return nil, nil
}

// sum compares bytes with a CRC that is remembered.
func (c *fileCheck) sum(f io.ReaderAt, rc *locktable.ReceiptState) (*fileProblem, error) {
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	got, err := io.Copy(h, io.NewSectionReader(f, rc.Offset, rc.Length))
	if err != nil {
		return nil, err
	}
	c.compared += got
	if got == rc.Length && h.Sum32() == rc.CRC {
		return nil, nil
	}
	return &fileProblem{code: "file-foreign", offset: rc.Offset, lsn: rc.LSN, text: fmt.Sprintf(
		"the append of LSN %d, [%d:+%d], reads with CRC-32C %08x, its receipt says %08x", rc.LSN, rc.Offset, rc.Length, h.Sum32(), rc.CRC)}, nil
}

// newFileChecks makes the check of every bound file that is not quarantined.
// deep are all appends that the log has; redo, those a takeover would write.
func newFileChecks(fsys FS, t *locktable.Table, deep, redo []locktable.Record) map[cluster.FileName]*fileCheck {
	all := map[cluster.FileName]*fileCheck{}
	for name, f := range t.Files() {
		if !f.Quarantined {
			all[name] = &fileCheck{fs: fsys, name: name, state: f, written: f.End}
		}
	}
	for i := range deep {
		if c := all[deep[i].File]; c != nil && deep[i].Generation == c.state.Generation {
			c.redo = append(c.redo, deep[i])
		}
	}
	for i := range redo {
		if c := all[redo[i].File]; c != nil && redo[i].Generation == c.state.Generation {
			c.written = min(c.written, redo[i].Offset)
		}
	}
	for e := range t.Export() {
		if rc := e.Receipt; rc != nil && rc.File != "" && rc.Kind == locktable.KindAppend {
			// Where an older binary unbound it, a file that is bound anew begins with its generation again.
			if c := all[rc.File]; c != nil && rc.Generation == c.state.Generation && rc.LSN > c.state.Since {
				c.receipts = append(c.receipts, rc)
			}
		}
	}
	return all
}
