// SPDX-License-Identifier: Apache-2.0

// Package index keeps, for each append to a protected file, where its bytes are, their sum and which request
// wrote them, in side files that are derived from the log.
//
// A primary writes them after the check, in files of its own, and no state is made from them. What a crash
// took of them the next primary writes again from the log that it adopts; where that was removed already there
// is a gap. So the index may lack appends: what it does not have proves nothing. The epochs in the names of
// its files show that their terms began (package volume, witness.go). Servers never remove it; anyone may.
package index

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/sidelog"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// fileSize is the size in bytes from which on the next file is begun.
const fileSize = 8 << 20

// Dir returns the directory of the index on a volume.
func Dir(fsys vfs.FS) sidelog.Dir {
	return sidelog.Dir{FS: fsys, Path: layout.IndexDir, Suffix: ".idx", Optional: true}
}

// Writer writes the index of one term. It belongs to one goroutine.
type Writer struct {
	files *sidelog.Writer
	buf   []byte
}

// NewWriter returns the writer of the index of the term of epoch e. It touches nothing yet. may is
// asked before each write: its error, once the term has ended, refuses it.
func NewWriter(fsys vfs.FS, e cluster.Epoch, may func() error) *Writer {
	return &Writer{files: sidelog.NewWriter(Dir(fsys), e, 0, may)}
}

// Write writes entries of records that were committed and checked, in blocks that Decode takes. After an
// error those that were not written are lost, and the next ones go to another file.
func (w *Writer) Write(entries []Entry) error {
	for block := range slices.Chunk(entries, blockEntries) {
		err := w.files.Begin(fileSize)
		if err == nil {
			w.buf = appendBlock(w.buf[:0], block)
			err = w.files.Append(w.buf)
		}
		if err != nil {
			// What stands behind the last whole block is not known: nothing is written there.
			return errors.Join(err, w.Close())
		}
	}
	return nil
}

// Sync makes what was written durable. After an error the next entries go to another file.
func (w *Writer) Sync() error {
	if err := w.files.Sync(); err != nil {
		return errors.Join(err, w.Close())
	}
	return nil
}

// Close closes the file. A later Write begins another one.
func (w *Writer) Close() error { return w.files.Close() }

// Read visits all entries that can be read, epoch by epoch, and in each in the order
// in which they were written. An append may come more than once.
func Read(ctx context.Context, fsys vfs.FS, visit func(*Entry) error) error {
	names, err := Dir(fsys).List()
	if err != nil {
		return err
	}
	for _, x := range names {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := read(fsys, x, visit); err != nil {
			return err
		}
	}
	return nil
}

// read visits the entries of one file; none of one that was removed meanwhile.
func read(fsys vfs.FS, x sidelog.Name, visit func(*Entry) error) error {
	b, err := vfs.ReadFile(fsys, Dir(fsys).File(x), vfs.FlagRead)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for len(b) > 0 {
		block, rest, err := Decode(b)
		if err != nil {
			break // a tail that was not written to its end, or not yet
		}
		for i := range block {
			if err := visit(&block[i]); err != nil {
				return err
			}
		}
		b = rest
	}
	return nil
}

// Remove removes the index, as when an older state of the volume goes on: what it
// tells of what came later is not so any more.
func Remove(fsys vfs.FS) error {
	names, err := Dir(fsys).List()
	for _, x := range names {
		err = errors.Join(err, Dir(fsys).Remove(x))
	}
	return err
}
