// SPDX-License-Identifier: Apache-2.0

// Package sidelog names, lists and writes the files of side logs: logs that a primary derives from its own log
// and keeps in a directory of the volume, as the history of grants and the index of appends.
//
// A file is written by the primary of one epoch only, which is in its name, from its beginning to its end. What
// a file of a side log lacks proves nothing, and no state is made from what it has.
package sidelog

import (
	"cmp"
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

// Name identifies a file of one side log.
type Name struct {
	Epoch cluster.Epoch // of the term that wrote it
	N     uint32        // from 1, in the order in which the term wrote them
}

// Compare orders names as their files were written.
func (n Name) Compare(other Name) int {
	return cmp.Or(cmp.Compare(n.Epoch, other.Epoch), cmp.Compare(n.N, other.N))
}

// Dir is the directory of one side log.
type Dir struct {
	FS     vfs.FS
	Path   string // on the volume
	Suffix string // of the names of its files
	// Optional is set if the directory may be missing: it has no files then, and a Writer makes it.
	Optional bool
}

// File returns the path of a file on the volume.
func (d Dir) File(n Name) string {
	return fmt.Sprintf("%s/%010d-%06d%s", d.Path, uint64(n.Epoch), n.N, d.Suffix)
}

// Parse returns the Name of the file that is called name in the directory; false if it is none of the side log.
func (d Dir) Parse(name string) (Name, bool) {
	stem, _ := strings.CutSuffix(name, d.Suffix)
	epoch, number, _ := strings.Cut(stem, "-")
	e, ok := layout.ParseEpoch(epoch)
	n, err := strconv.ParseUint(number, 10, 32)
	x := Name{e, uint32(n)}
	return x, ok && err == nil && d.File(x) == d.Path+"/"+name
}

// List lists the files as they were written, the oldest first.
func (d Dir) List() (all []Name, err error) {
	entries, err := d.FS.ReadDir(d.Path)
	if d.Optional && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", d.Path, err)
	}
	for _, x := range entries {
		if n, ok := d.Parse(x.Name); ok && x.Type == vfs.TypeFile {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, Name.Compare)
	return all, nil
}

// Remove removes a file. It is no error if it is missing.
func (d Dir) Remove(n Name) error { return vfs.IgnoreMissing(d.FS.Remove(d.File(n))) }

// Writer writes the files of one term, one after another. It belongs to one goroutine.
type Writer struct {
	Output
	dir  Dir
	name Name // of the last file that was begun
}

// NewWriter returns the writer of the term of epoch e. It touches nothing yet. flag is how files are opened. may is
// asked before each change: its error, once the term has ended, refuses it.
func NewWriter(d Dir, e cluster.Epoch, flag vfs.Flag, may func() error) *Writer {
	return &Writer{Output: Output{fs: d.FS, flag: flag, may: may}, dir: d, name: Name{Epoch: e}}
}

// Begin has a file open that has less than limit bytes: it closes one that has more, and creates the next.
func (w *Writer) Begin(limit int64) error {
	if err := w.may(); err != nil {
		return err
	}
	if w.Open() && w.size < limit {
		return nil
	}
	if err := w.Close(); err != nil {
		return err
	}
	w.name.N++
	if w.dir.Optional {
		if err := MakeDir(w.fs.Mkdir, w.fs, w.dir.Path); err != nil {
			return fmt.Errorf("create %s: %w", w.dir.File(w.name), err)
		}
	}
	return w.Create(w.dir.File(w.name))
}

// Name returns that of the last file that was begun; its N is 0 before the first.
func (w *Writer) Name() Name { return w.name }

// Remove removes a file of any term. The caller checks the fence before.
func (w *Writer) Remove(n Name) error {
	if err := w.may(); err != nil {
		return err
	}
	return w.dir.Remove(n)
}
