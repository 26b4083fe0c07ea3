// SPDX-License-Identifier: Apache-2.0

// Package inspect compares single parts of a volume with the log, for package fsck, which
// reports differences, and package recovery, which decides by them.
package inspect

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
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// FileProblem describes what is wrong with a protected file. Code is the code of a finding of fsck, Offset is in
// bytes, and LSN is the LSN of the append concerned, 0 if there is none.
type FileProblem struct {
	Code   string
	Offset int64
	LSN    cluster.LSN
	Text   string
}

// FileCheck compares one protected file with the table, with the appends that
// the log still has, and with the receipts that the table has.
type FileCheck struct {
	fs    vfs.FS
	Name  cluster.FileName
	State locktable.FileState
	// redo are the appends that the log has, in order of offset.
	redo []locktable.Record
	// receipts are of appends to this generation, under this binding.
	receipts []*locktable.ReceiptState
	// Written is the offset up to which the file was written when the base was
	// written. Bytes after it may be missing or zero: a takeover writes them.
	Written int64
	// SizeBefore is the file's size in bytes before the log was read, which must not exceed the end in the log. A running
	// primary makes the file longer meanwhile.
	SizeBefore int64
	// AtRest is true if no primary is running: the present size is used as SizeBefore.
	AtRest bool
	// AnyInode accepts a file with another inode, which a restored file has.
	AnyInode bool

	// The results of Run.
	Info     vfs.Info
	Compared int64 // number of bytes that were compared with the log or a CRC
	Pending  Pending
	Problem  *FileProblem // nil if nothing is wrong
}

// Pending describes bytes of appends that are in the log and not in the file, where they are cut off or zero.
// A takeover writes them.
type Pending struct {
	Bytes int64
	From  int64       // offset of the first one
	LSN   cluster.LSN // of the append with the first one
}

func (p *Pending) add(rec *locktable.Record, off, n int64) {
	if p.Bytes == 0 {
		p.From, p.LSN = off, rec.LSN
	}
	p.Bytes += n
}

// Run returns what is wrong, nil if nothing is, or an error of the filesystem. It reads past every
// cache, but names and sizes may come from a cache, so on a
// network filesystem it tries again before it returns a problem.
func (c *FileCheck) Run(ctx context.Context) (*FileProblem, error) {
	for try := 1; ; try++ {
		p, err := c.once()
		c.Problem = p
		if p == nil || err != nil || try == vfs.Retries || !c.fs.Kind().Network {
			return p, err
		}
		if err := vfs.Pause(ctx, vfs.RetryPause); err != nil {
			return nil, err
		}
	}
}

func (c *FileCheck) once() (problem *FileProblem, err error) {
	path := volume.ProtectedPath(c.Name)
	if c.Info, err = c.fs.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return &FileProblem{Code: "file-missing", Text: "it is not there"}, nil
	}
	if err != nil {
		return nil, err
	}
	if p := c.identity(); p != nil {
		return p, nil
	}
	f, err := c.fs.Open(path, vfs.FlagRead|vfs.FlagDirect)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if info, err := f.Stat(); err != nil || info.Size > c.Info.Size {
		c.Info.Size = max(c.Info.Size, info.Size)
		if err != nil {
			return nil, err
		}
	}
	if c.AtRest {
		c.SizeBefore = c.Info.Size
	}
	if p := c.size(); p != nil {
		return p, nil
	}
	c.Compared, c.Pending = 0, Pending{}
	return c.content(vfs.DirectReader{File: f})
}

func (c *FileCheck) identity() *FileProblem {
	switch {
	case c.Info.Type != vfs.TypeFile:
		return &FileProblem{Code: "file-type", Text: "not a regular file"}
	case c.Info.Inode != c.State.Inode && !c.AnyInode:
		return &FileProblem{Code: "file-inode", LSN: c.State.LastLSN, Text: fmt.Sprintf("inode %d, the log says %d: the file was replaced", c.Info.Inode, c.State.Inode)}
	case c.Info.Nlink != 1:
		return &FileProblem{Code: "file-links", Text: fmt.Sprintf("%d hard links: it must have one name only", c.Info.Nlink)}
	}
	return nil
}

func (c *FileCheck) size() *FileProblem {
	switch {
	case c.Info.Size < c.Written:
		return &FileProblem{Code: "file-short", Offset: c.Info.Size, LSN: c.State.LastLSN, Text: fmt.Sprintf(
			"%d bytes, the log says %d to %d: bytes that were written are gone", c.Info.Size, c.Written, c.State.End)}
	case c.SizeBefore > c.State.End:
		return &FileProblem{Code: "file-long", Offset: c.State.End, Text: fmt.Sprintf(
			"%d bytes, the log says %d to %d: foreign bytes behind the last append", c.SizeBefore, c.Written, c.State.End)}
	}
	return nil
}

// content compares the bytes of the file with the appends in the log, and with the CRCs of
// the last append and of the receipts.
func (c *FileCheck) content(f io.ReaderAt) (*FileProblem, error) {
	for i := range c.redo {
		if p, err := c.appended(f, &c.redo[i]); p != nil || err != nil {
			return p, err
		}
	}
	last := &locktable.ReceiptState{Offset: c.State.LastOffset, Length: c.State.LastLength, CRC: c.State.LastCRC, LSN: c.State.LastLSN}
	for _, rc := range append([]*locktable.ReceiptState{last}, c.receipts...) {
		if rc.Length == 0 || rc.Offset+rc.Length > min(c.Written, c.Info.Size) {
			continue
		}
		if p, err := c.sum(f, rc); p != nil || err != nil {
			return p, err
		}
	}
	return nil, nil
}

// appended compares one append with the bytes in the file. Bytes that are cut off come after
// Written; size has refused a shorter file.
func (c *FileCheck) appended(f io.ReaderAt, rec *locktable.Record) (*FileProblem, error) {
	n := max(0, min(int64(len(rec.Data)), c.Info.Size-rec.Offset))
	if n > 0 {
		if p, err := c.compare(f, rec, n); p != nil || err != nil {
			return p, err
		}
	}
	if cut := int64(len(rec.Data)) - n; cut > 0 {
		c.Pending.add(rec, rec.Offset+n, cut)
	}
	return nil, nil
}

// compare compares the first n bytes of an append with the file.
func (c *FileCheck) compare(f io.ReaderAt, rec *locktable.Record, n int64) (*FileProblem, error) {
	there := make([]byte, n)
	if _, err := f.ReadAt(there, rec.Offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	c.Compared += n
	if bytes.Equal(there, rec.Data[:n]) {
		return nil, nil
	}
	for i, b := range there {
		at := rec.Offset + int64(i)
		switch {
		case b == rec.Data[i]:
		case b != 0:
			return &FileProblem{Code: "file-foreign", Offset: at, LSN: rec.LSN, Text: fmt.Sprintf("foreign bytes at offset %d, where LSN %d was appended", at, rec.LSN)}, nil
		case at < c.Written:
			return &FileProblem{Code: "file-hole", Offset: at, LSN: rec.LSN, Text: fmt.Sprintf("zeros at offset %d, where LSN %d was appended and written", at, rec.LSN)}, nil
		default:
			c.Pending.add(rec, at, 1)
		}
	}
	return nil, nil
}

// sum compares bytes with the CRC of a receipt.
func (c *FileCheck) sum(f io.ReaderAt, rc *locktable.ReceiptState) (*FileProblem, error) {
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	got, err := io.Copy(h, io.NewSectionReader(f, rc.Offset, rc.Length))
	if err != nil {
		return nil, err
	}
	c.Compared += got
	if got == rc.Length && h.Sum32() == rc.CRC {
		return nil, nil
	}
	return &FileProblem{Code: "file-foreign", Offset: rc.Offset, LSN: rc.LSN, Text: fmt.Sprintf(
		"the append of LSN %d, [%d:+%d], reads with CRC-32C %08x, its receipt says %08x", rc.LSN, rc.Offset, rc.Length, h.Sum32(), rc.CRC)}, nil
}

// NewFileChecks returns a check for every bound file that is not quarantined.
// deep are all appends in the log, redo those that a takeover would write.
func NewFileChecks(fsys vfs.FS, t *locktable.Table, deep, redo []locktable.Record) map[cluster.FileName]*FileCheck {
	all := map[cluster.FileName]*FileCheck{}
	for name, f := range t.Files() {
		if !f.Quarantined {
			all[name] = &FileCheck{fs: fsys, Name: name, State: f, Written: f.End}
		}
	}
	for i := range deep {
		if c := all[deep[i].File]; c != nil && deep[i].Generation == c.State.Generation {
			c.redo = append(c.redo, deep[i])
		}
	}
	for i := range redo {
		if c := all[redo[i].File]; c != nil && redo[i].Generation == c.State.Generation {
			c.Written = min(c.Written, redo[i].Offset)
		}
	}
	for e := range t.Export() {
		if rc := e.Receipt; rc != nil && rc.File != "" && rc.Kind == locktable.KindAppend {
			// A file that an older binary unbound, and that is bound again, begins with its first generation again.
			if c := all[rc.File]; c != nil && rc.Generation == c.State.Generation && rc.LSN > c.State.Since {
				c.receipts = append(c.receipts, rc)
			}
		}
	}
	return all
}

// HasPosition reports whether the log of epoch e has the position at, and returns the end of what was read of the log,
// also with an error.
func HasPosition(fsys vfs.FS, v *volume.Volume, e cluster.Epoch, at wal.Position) (has bool, end wal.Position, err error) {
	path := layout.EpochDir(e)
	b, err := v.Base(path)
	if err != nil {
		return false, end, err
	}
	end = b.At
	has = end == at || at.LSN < end.LSN // the log before a base may have been removed
	_, err = wal.Scan(&epochdir.Dir{FS: fsys, Path: path}, wal.ScanOptions{
		Cluster: v.Cluster().ID, FeatureLevel: volume.FeatureLevel, MaxEpoch: e, From: end,
	}, func(lsn cluster.LSN, x wal.Entry, _ wal.FrameHeader) error {
		end = wal.Position{LSN: lsn, Chain: end.Chain.Next(x.Header)}
		has = has || end == at
		return nil
	})
	return has, end, err
}
