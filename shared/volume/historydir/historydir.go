// SPDX-License-Identifier: Apache-2.0

// Package historydir reads, searches and writes the files of the history of grants that ended, below history/ on the
// volume. Package history has the format of their lines, package sidelog has their names.
// A Dir may be used by several goroutines.
package historydir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/sidelog"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Dir is the history on one volume.
type Dir struct {
	FS      vfs.FS
	Cluster cluster.ID // files of any other are skipped
}

func (d Dir) files() sidelog.Dir {
	return sidelog.Dir{FS: d.FS, Path: layout.HistoryDir, Suffix: ".jsonl"}
}

// Path returns the path of a file on the volume.
func Path(f sidelog.Name) string { return Dir{}.files().File(f) }

// Files lists the files, oldest first.
func (d Dir) Files() ([]sidelog.Name, error) { return d.files().List() }

// Writer returns the writer of the term of epoch e. It touches nothing yet. may is asked before each change: its
// error, once the term has ended, refuses it.
func (d Dir) Writer(e cluster.Epoch, may func() error) *sidelog.Writer {
	return sidelog.NewWriter(d.files(), e, vfs.FlagDsync, may)
}

// maxLine is more than any line has, in bytes.
const maxLine = 128 << 10

// read calls line with the lines of a file, see sidelog.Lines.
func (d Dir) read(ctx context.Context, file sidelog.Name, off int64, line func([]byte) (more bool)) error {
	return sidelog.Lines(ctx, d.FS, Path(file), off, maxLine, line)
}

// Result is what a search found.
type Result struct {
	history.Past
	// Kept is where the oldest file begins: what ended at this LSN or before is not
	// kept any more. 0: everything is kept, or it is not known.
	Kept cluster.LSN
	// Stopped is set if the time was over before all was read, see From.
	Stopped bool
}

// Search searches the files for grants that ended, newest first, until ctx ends. What a server has in memory,
// recent, comes with it; nothing after upTo does. With an error, the result is what was found before.
func (d Dir) Search(ctx context.Context, q history.Query, recent history.Recent, upTo cluster.LSN) (r Result, err error) {
	s := history.Select(d.Cluster.String(), q, recent, upTo)
	defer func() { r.Past = s.Past() }()
	files, err := d.Files()
	if err != nil {
		return r, err
	}
	nothing := min(recent.From, upTo) // what is kept without any file
	r.Kept = d.kept(ctx, files, nothing)
	for i, f := range slices.Backward(files) {
		if s.Enough() {
			break
		}
		scan := s.Scan()
		err := d.read(ctx, f, 0, func(b []byte) bool { scan.Line(b); return true })
		if errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile, and all older ones before it
			r.Kept = d.kept(ctx, files[i+1:], nothing)
			break
		}
		if ctx.Err() != nil {
			s.GiveUp()
			r.Stopped = true
			break
		}
		if err == nil {
			err = scan.Close()
		}
		if err != nil {
			s.GiveUp()
			return r, fmt.Errorf("%s: %w", Path(f), err)
		}
	}
	return r, nil
}

// kept returns where the oldest of these files begins, or nothing where none does. It returns 0 if one could not be
// read: that does not mean that something is gone.
func (d Dir) kept(ctx context.Context, files []sidelog.Name, nothing cluster.LSN) cluster.LSN {
	for _, f := range files {
		head, ok, err := d.head(ctx, f)
		switch {
		case ok:
			return head.After
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return 0
		}
	}
	return nothing
}

// head reads the first line of a file; ok reports whether it is a head of this cluster.
func (d Dir) head(ctx context.Context, f sidelog.Name) (head history.Head, ok bool, err error) {
	err = d.read(ctx, f, 0, func(b []byte) bool {
		l, err := history.ParseLine(b)
		head, ok = l.Head, err == nil && l.Kind == history.KindHead && l.Head.Cluster == d.Cluster.String()
		return false
	})
	return head, ok, err
}

// Head reads the first line of a file, and its size in bytes.
func (d Dir) Head(ctx context.Context, f sidelog.Name) (head history.Head, size int64, err error) {
	info, err := d.FS.Lstat(Path(f))
	if err != nil {
		return head, 0, err
	}
	head, _, _ = d.head(ctx, f)
	return head, info.Size, nil
}

// Tail returns the LSN up to which the newest of these files have what ended, 0 if none shows one.
func (d Dir) Tail(ctx context.Context, files []sidelog.Name) (cluster.LSN, error) {
	for _, f := range slices.Backward(files) {
		scan := history.NewTail(d.Cluster.String())
		err := d.read(ctx, f, 0, func(b []byte) bool { scan.Line(b); return true })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		if tail, ok := scan.Tail(); ok {
			// The term that wrote it may have had no time to sync it: what follows rests on it.
			return tail, d.sync(f)
		}
	}
	return 0, nil
}

func (d Dir) sync(f sidelog.Name) error {
	x, err := d.FS.Open(Path(f), vfs.FlagRead)
	if err != nil {
		return err
	}
	return errors.Join(x.Sync(), x.Close())
}

// Reach is how far a file of the history goes.
type Reach struct {
	File sidelog.Name
	LSN  cluster.LSN // the highest that its end names: it was committed and checked
	Odd  int         // how many lines near its end are damaged
}

// Reach reads the end of the newest file of an epoch from from on; false if there is none that can be read.
func (d Dir) Reach(ctx context.Context, from cluster.Epoch) (r Reach, ok bool) {
	files, err := d.Files()
	if err != nil {
		return r, false
	}
	for _, f := range slices.Backward(files) {
		if f.Epoch < from {
			break
		}
		head, ok, err := d.head(ctx, f)
		info, statErr := d.FS.Lstat(Path(f))
		if err != nil || !ok || statErr != nil {
			continue
		}
		off := max(0, info.Size-maxLine) / vfs.BlockSize * vfs.BlockSize
		whole := off == 0
		var reach history.Reach
		err = d.read(ctx, f, off, func(b []byte) bool {
			if whole {
				reach.Line(b)
			}
			whole = true // the first one may be the end of a line
			return true
		})
		if err == nil {
			return Reach{File: f, LSN: max(head.After, reach.LSN()), Odd: reach.Odd()}, true
		}
	}
	return r, false
}
