// SPDX-License-Identifier: Apache-2.0

// Package inspect compares single parts of a volume with what the log says of them, for package fsck, which
// reports what differs, and package recovery, which decides by it.
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

// FileProblem is what is wrong with a protected file. Code is that of a finding of fsck; Offset is in
// bytes, and LSN that of the append concerned, 0 if none is.
type FileProblem struct {
	Code   string
	Offset int64
	LSN    cluster.LSN
	Text   string
}

// Error implements error.
func (p *FileProblem) Error() string { return p.Text }

// FileCheck compares one protected file with the table, with the appends that
// the log still has and with the receipts that are kept.
type FileCheck struct {
	fs    vfs.FS
	Name  cluster.FileName
	State locktable.FileState
	// redo are the appends that the log has, in order of offset.
	redo []locktable.Record
	// receipts are of appends to this generation, under this binding.
	receipts []*locktable.ReceiptState
	// Written is the offset up to which the file was written when the base was
	// made. Bytes behind it may be missing or zero: a takeover writes them.
	Written int64
	// SizeBefore is the file's size before the log was read. A primary at work
	// makes it longer meanwhile, so only this one must not pass the log's end.
	SizeBefore int64
	// AtRest is true while no primary is at work: the size that is found counts.
	AtRest bool
	// AnyInode accepts a file with another inode: a restored one.
	AnyInode bool

	Info     vfs.Info
	Compared int64 // bytes that were compared with the log or a sum
	Pending  Pending
	Problem  *FileProblem
}

// Pending are bytes of appends that the log has and the file lacks, cut off or zero, and that
// a takeover writes.
type Pending struct {
	Bytes int64
	From  int64       // the first one's offset
	LSN   cluster.LSN // of the append that it belongs to
}

func (p *Pending) add(rec *locktable.Record, off, n int64) {
	if p.Bytes == 0 {
		p.From, p.LSN = off, rec.LSN
	}
	p.Bytes += n
}

// Run returns what is wrong, or an error of the filesystem. What is read past every
// cache may still be judged by a name or a size that a cache remembers, so on a
// network filesystem it looks again before it says that something is wrong.
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

// content compares bytes: with the log where it has them, else with the CRCs of
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

// appended compares one append with the bytes that are there. What is cut off lies behind
// what was written, or the file would be too short.
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

// sum compares bytes with a CRC that is remembered.
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

// NewFileChecks makes the check of every bound file that is not quarantined.
// deep are all appends that the log has; redo, those a takeover would write.
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
			// Where an older binary unbound it, a file that is bound anew begins with its generation again.
			if c := all[rc.File]; c != nil && rc.Generation == c.State.Generation && rc.LSN > c.State.Since {
				c.receipts = append(c.receipts, rc)
			}
		}
	}
	return all
}

// HasPosition reports whether the log of epoch e has the position at, and up to where it was read.
func HasPosition(fsys vfs.FS, v *volume.Volume, e cluster.Epoch, at wal.Position) (met bool, end wal.Position, err error) {
	path := layout.EpochDir(e)
	b, err := v.Base(path)
	if err != nil {
		return false, end, err
	}
	end = b.At
	met = end == at || at.LSN < end.LSN // what lies below a base is not there any more
	_, err = wal.Scan(&epochdir.Dir{FS: fsys, Path: path}, wal.ScanOptions{
		Cluster: v.Cluster().ID, FeatureLevel: volume.FeatureLevel, MaxEpoch: e, From: end,
	}, func(lsn cluster.LSN, x wal.Entry, _ wal.FrameHeader) error {
		end = wal.Position{LSN: lsn, Chain: end.Chain.Next(x.Header)}
		met = met || end == at
		return nil
	})
	return met, end, err
}
