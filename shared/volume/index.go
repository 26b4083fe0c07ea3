// SPDX-License-Identifier: Apache-2.0

package volume

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
)

// The index says of each append to a protected file where it went, its sum, and whose it
// was. It is derived: a primary writes it behind the check, in files of its own, and
// no state is made from it; the epochs in its names are witnesses (witness.go). What a crash
// took of it is written again by the next primary from the log that it adopts; where that was removed already there is a gap. So the index may lack
// appends, and what it does not tell says nothing. Servers never remove it; anybody may.

const (
	indexDir    = "index"
	indexSuffix = ".idx"
	// indexFile is the size in bytes from which on the next file is begun.
	indexFile = 8 << 20
)

func indexName(e cluster.Epoch, n int) string {
	return fmt.Sprintf("%s/%010d-%06d%s", indexDir, uint64(e), n, indexSuffix)
}

func parseIndexName(name string) (e cluster.Epoch, n int, ok bool) {
	stem, found := strings.CutSuffix(name, indexSuffix)
	epoch, number, cut := strings.Cut(stem, "-")
	if !found || !cut {
		return 0, 0, false
	}
	e, ok = parseEpoch(epoch)
	n, err := strconv.Atoi(number)
	return e, n, ok && err == nil && indexName(e, n) == indexDir+"/"+name
}

// IndexWriter writes the index of one reign. It belongs to one goroutine.
type IndexWriter struct {
	r   *Reign
	f   File
	n   int // of the file
	at  int64
	buf []byte
}

// IndexWriter makes the writer of this reign's index. It touches nothing yet.
func (r *Reign) IndexWriter() *IndexWriter { return &IndexWriter{r: r} }

// Write writes entries of records that were committed and checked, as one block. After an
// error they are lost, and the next ones go to another file.
func (w *IndexWriter) Write(entries []IndexEntry) error {
	if err := w.r.Err(); err != nil || len(entries) == 0 {
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
	w.buf = appendIndexBlock(w.buf[:0], entries)
	if err := w.r.Err(); err != nil { // it may have ended while the file was made
		return err
	}
	if _, err := w.f.WriteAt(w.buf, w.at); err != nil {
		// What stands at w.at is not known: nothing is written behind it.
		return errors.Join(fmt.Errorf("write the index: %w", err), w.Close())
	}
	w.at += int64(len(w.buf))
	return nil
}

func (w *IndexWriter) create() error {
	fsys := w.r.v.fs
	if err := fsys.Mkdir(indexDir); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make %s: %w", indexDir, err)
	}
	w.n++
	f, err := fsys.Open(indexName(w.r.epoch, w.n), FlagCreate)
	if err != nil {
		return fmt.Errorf("create an index: %w", err)
	}
	w.f, w.at = f, 0
	return nil
}

// Sync makes what was written durable, names included.
func (w *IndexWriter) Sync() error {
	if w.f == nil {
		return nil
	}
	err := errors.Join(w.f.Datasync(), w.r.v.fs.SyncDir(indexDir), w.r.v.fs.SyncDir("."))
	if err != nil {
		return errors.Join(fmt.Errorf("sync the index: %w", err), w.Close())
	}
	return nil
}

// Close closes the file. A later Write begins another one.
func (w *IndexWriter) Close() error {
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
func listIndex(fsys FS) ([]indexed, error) {
	entries, err := fsys.ReadDir(indexDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // nothing was appended since there are indexes
	}
	var names []indexed
	for _, x := range entries {
		if e, n, ok := parseIndexName(x.Name); ok {
			names = append(names, indexed{e, n})
		}
	}
	slices.SortFunc(names, func(a, b indexed) int {
		return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.n, b.n))
	})
	return names, err
}

// ReadIndex visits all entries that can be read, epoch by epoch, and in each in the order
// in which they were written. An append may come more than once.
func ReadIndex(ctx context.Context, fsys FS, visit func(*IndexEntry) error) error {
	names, err := listIndex(fsys)
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
func (x indexed) read(fsys FS, visit func(*IndexEntry) error) error {
	b, err := readFile(fsys, indexName(x.epoch, x.n), FlagRead)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for len(b) > 0 {
		block, rest, err := DecodeIndex(b)
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

// RemoveIndex removes the index, as when an older state of the volume goes on: what it
// tells of what came later is not so any more.
func RemoveIndex(fsys FS) error {
	entries, err := fsys.ReadDir(indexDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, x := range entries {
		if _, _, ok := parseIndexName(x.Name); ok && err == nil {
			err = ignoreMissing(fsys.Remove(indexDir + "/" + x.Name))
		}
	}
	return err
}
