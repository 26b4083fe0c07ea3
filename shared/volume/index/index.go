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
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

const (
	indexSuffix = ".idx"
	// indexFile is the size in bytes from which on the next file is begun.
	indexFile = 8 << 20
)

func fileName(e cluster.Epoch, n int) string {
	return fmt.Sprintf("%s/%010d-%06d%s", layout.IndexDir, uint64(e), n, indexSuffix)
}

// ParseName returns the epoch and the number of the index file of this name; false for any other name.
func ParseName(name string) (e cluster.Epoch, n int, ok bool) {
	stem, found := strings.CutSuffix(name, indexSuffix)
	epoch, number, cut := strings.Cut(stem, "-")
	if !found || !cut {
		return 0, 0, false
	}
	e, ok = layout.ParseEpoch(epoch)
	n, err := strconv.Atoi(number)
	return e, n, ok && err == nil && fileName(e, n) == layout.IndexDir+"/"+name
}

// Writer writes the index of one term. It belongs to one goroutine.
type Writer struct {
	fs    vfs.FS
	epoch cluster.Epoch
	may   func() error
	f     vfs.File // nil between files
	n     int      // of the file
	at    int64
	buf   []byte
}

// NewWriter returns the writer of the index of the term of epoch e. It touches nothing yet. may is
// asked before each write: its error, once the term has ended, refuses it.
func NewWriter(fsys vfs.FS, e cluster.Epoch, may func() error) *Writer {
	return &Writer{fs: fsys, epoch: e, may: may}
}

// Write writes entries of records that were committed and checked, in blocks that Decode takes. After an
// error those that were not written are lost, and the next ones go to another file.
func (w *Writer) Write(entries []Entry) error {
	for block := range slices.Chunk(entries, blockEntries) {
		if err := w.writeBlock(block); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) writeBlock(entries []Entry) error {
	if err := w.may(); err != nil {
		return err
	}
	if w.at >= indexFile {
		if err := errors.Join(w.Sync(), w.Close()); err != nil {
			return err
		}
	}
	if w.f == nil {
		if err := w.create(); err != nil {
			return err
		}
	}
	w.buf = appendBlock(w.buf[:0], entries)
	if err := w.may(); err != nil { // it may have ended while the file was made
		return err
	}
	if _, err := w.f.WriteAt(w.buf, w.at); err != nil {
		// What stands at w.at is not known: nothing is written behind it.
		return errors.Join(fmt.Errorf("write the index: %w", err), w.Close())
	}
	w.at += int64(len(w.buf))
	return nil
}

func (w *Writer) create() error {
	if err := w.fs.Mkdir(layout.IndexDir); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make %s: %w", layout.IndexDir, err)
	}
	w.n++
	f, err := w.fs.Open(fileName(w.epoch, w.n), vfs.FlagCreate)
	if err != nil {
		return fmt.Errorf("create an index: %w", err)
	}
	w.f, w.at = f, 0
	return nil
}

// Sync makes what was written durable, names included.
func (w *Writer) Sync() error {
	if w.f == nil {
		return nil
	}
	err := errors.Join(w.f.Datasync(), w.fs.SyncDir(layout.IndexDir), w.fs.SyncDir("."))
	if err != nil {
		return errors.Join(fmt.Errorf("sync the index: %w", err), w.Close())
	}
	return nil
}

// Close closes the file. A later Write begins another one.
func (w *Writer) Close() error {
	if w.f == nil {
		return nil
	}
	f := w.f
	w.f, w.at = nil, 0
	return f.Close()
}

// indexed names one file of the index.
type indexed struct {
	epoch cluster.Epoch
	n     int
}

// listIndex lists the files of the index, in the order in which they were written.
func list(fsys vfs.FS) ([]indexed, error) {
	entries, err := fsys.ReadDir(layout.IndexDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // nothing was appended since there are indexes
	}
	var names []indexed
	for _, x := range entries {
		if e, n, ok := ParseName(x.Name); ok {
			names = append(names, indexed{e, n})
		}
	}
	slices.SortFunc(names, func(a, b indexed) int {
		return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.n, b.n))
	})
	return names, err
}

// Read visits all entries that can be read, epoch by epoch, and in each in the order
// in which they were written. An append may come more than once.
func Read(ctx context.Context, fsys vfs.FS, visit func(*Entry) error) error {
	names, err := list(fsys)
	if err != nil {
		return err
	}
	for _, x := range names {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := x.read(fsys, visit); err != nil {
			return err
		}
	}
	return nil
}

// read visits the entries of one file; none of one that was removed meanwhile.
func (x indexed) read(fsys vfs.FS, visit func(*Entry) error) error {
	b, err := vfs.ReadFile(fsys, fileName(x.epoch, x.n), vfs.FlagRead)
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
	entries, err := fsys.ReadDir(layout.IndexDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, x := range entries {
		if _, _, ok := ParseName(x.Name); ok && err == nil {
			err = vfs.IgnoreMissing(fsys.Remove(layout.IndexDir + "/" + x.Name))
		}
	}
	return err
}
