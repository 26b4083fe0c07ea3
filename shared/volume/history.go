// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// HistoryPath is where a file of the history lies on the volume.
func HistoryPath(f history.File) string { return layout.HistoryDir + "/" + f.Name() }

// listHistory lists the files of the history, oldest first.
func listHistory(fsys vfs.FS) ([]history.File, error) {
	entries, err := fsys.ReadDir(layout.HistoryDir)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", layout.HistoryDir, err)
	}
	var all []history.File
	for _, x := range entries {
		if f, ok := history.ParseName(x.Name); ok && x.Type == vfs.TypeFile {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, history.File.Compare)
	return all, nil
}

const (
	// historyPiece is how much of a file is read at a time.
	historyPiece = 256 << 10
	// historyLine is more than any line has.
	historyLine = 128 << 10
)

// readHistory hands out the lines of a file, in order, without their ends. One that is
// not complete, as it is being written, is left out.
func readHistory(ctx context.Context, fsys vfs.FS, file history.File, line func([]byte) (more bool)) error {
	return readHistoryFrom(ctx, fsys, file, 0, line)
}

// readHistoryFrom is readHistory from an offset on, a multiple of BlockSize, where a line may
// have begun before.
func readHistoryFrom(ctx context.Context, fsys vfs.FS, file history.File, off int64, line func([]byte) (more bool)) (err error) {
	f, err := fsys.Open(HistoryPath(file), vfs.FlagDirect)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	piece := vfs.AlignedBuffer(historyPiece)
	var rest []byte
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		n, err := f.ReadAt(piece, off)
		off += int64(n)
		b := piece[:n]
		for {
			i := bytes.IndexByte(b, '\n')
			if i < 0 {
				break
			}
			if len(rest) > 0 {
				rest = append(rest, b[:i]...)
				if !line(rest) {
					return nil
				}
				rest = rest[:0]
			} else if !line(b[:i]) {
				return nil
			}
			b = b[i+1:]
		}
		if rest = append(rest, b...); len(rest) > historyLine {
			rest = rest[:historyLine] // a line of nobody's: it does not parse
		}
		switch {
		case errors.Is(err, io.EOF) || err == nil && n < len(piece):
			return nil
		case err != nil:
			return fmt.Errorf("read %s: %w", HistoryPath(file), err)
		}
	}
}

// History is what a search of the files found.
type History struct {
	history.Past
	// Kept is where the oldest file begins: what ended at this LSN or before is not
	// kept any more. 0: everything is kept, or nobody could look.
	Kept cluster.LSN
	// Stopped says that the time was over before all was read, see From.
	Stopped bool
}

// History searches the files for grants that ended, newest first, until ctx ends. What a
// server has in memory comes with it; nothing behind upTo is told.
func (v *Volume) History(ctx context.Context, q history.Query, recent history.Recent, upTo cluster.LSN) (History, error) {
	return searchHistory(ctx, v.fs, v.cluster.ID, q, recent, upTo)
}

func searchHistory(ctx context.Context, fsys vfs.FS, id cluster.ID, q history.Query, recent history.Recent, upTo cluster.LSN) (h History, err error) {
	s := history.Select(id.String(), q, recent, upTo)
	files, err := listHistory(fsys)
	if err != nil {
		h.Past = s.Past()
		return h, err
	}
	nothing := min(recent.From, upTo) // what is kept without any file
	h.Kept = keptHistory(ctx, fsys, id, files, nothing)
	for i, f := range slices.Backward(files) {
		if s.Enough() {
			break
		}
		scan := s.Scan()
		err := readHistory(ctx, fsys, f, func(b []byte) bool { scan.Line(b); return true })
		if errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile, and all older ones before it
			h.Kept = keptHistory(ctx, fsys, id, files[i+1:], nothing)
			break
		}
		if ctx.Err() != nil {
			s.GiveUp()
			h.Stopped = true
			break
		}
		if err == nil {
			err = scan.Close()
		}
		if err != nil {
			s.GiveUp()
			h.Past = s.Past()
			return h, fmt.Errorf("%s: %w", HistoryPath(f), err)
		}
	}
	h.Past = s.Past()
	return h, nil
}

// keptHistory is where the oldest of these files begins, or nothing where none does. 0 if one
// could not be read: not to have looked does not say that something is gone.
func keptHistory(ctx context.Context, fsys vfs.FS, id cluster.ID, files []history.File, nothing cluster.LSN) cluster.LSN {
	for _, f := range files {
		head, ok, err := historyHead(ctx, fsys, f, id)
		switch {
		case ok:
			return head.After
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return 0
		}
	}
	return nothing
}

// historyHead reads the first line of a file.
func historyHead(ctx context.Context, fsys vfs.FS, f history.File, id cluster.ID) (head history.Head, ok bool, err error) {
	err = readHistory(ctx, fsys, f, func(b []byte) bool {
		l, err := history.ParseLine(b)
		head, ok = l.Head, err == nil && l.Kind == history.KindHead && l.Head.Cluster == id.String()
		return false
	})
	return head, ok, err
}

// HistoryFiles lists the files of the history, oldest first.
func (r *Term) HistoryFiles() ([]history.File, error) { return listHistory(r.v.fs) }

// HistoryHead reads the first line of a file, and its size in bytes.
func (r *Term) HistoryHead(f history.File) (head history.Head, size int64, err error) {
	info, err := r.v.fs.Lstat(HistoryPath(f))
	if err != nil {
		return head, 0, err
	}
	head, _, _ = historyHead(r.life, r.v.fs, f, r.v.cluster.ID)
	return head, info.Size, nil
}

// HistoryTail says up to where the newest of these files tell what ended.
func (r *Term) HistoryTail(files []history.File) (cluster.LSN, error) {
	for _, f := range slices.Backward(files) {
		scan := history.NewTail(r.v.cluster.ID.String())
		err := readHistory(r.life, r.v.fs, f, func(b []byte) bool { scan.Line(b); return true })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		if tail, ok := scan.Tail(); ok {
			// Whoever wrote it may have had no time to sync it: what follows rests on it.
			return tail, r.syncHistory(f)
		}
	}
	return 0, nil
}

// HistoryReach is the highest LSN of which the end of the history tells, 0 where nobody knows
// one. It was committed and checked: a log that ends before it has lost something.
func (r *Term) HistoryReach(ctx context.Context) cluster.LSN { return r.v.historyReach(ctx) }

func (v *Volume) historyReach(ctx context.Context) cluster.LSN {
	w, _ := v.historyWitness(ctx, 0)
	return w.LSN
}

// historyWitness is what the newest file of an epoch from from on tells; false where none does.
func (v *Volume) historyWitness(ctx context.Context, from cluster.Epoch) (w Witness, ok bool) {
	files, err := listHistory(v.fs)
	if err != nil {
		return w, false
	}
	for len(files) > 0 && files[0].Epoch < from {
		files = files[1:]
	}
	for _, f := range slices.Backward(files) {
		head, ok, err := historyHead(ctx, v.fs, f, v.cluster.ID)
		info, statErr := v.fs.Lstat(HistoryPath(f))
		if err != nil || !ok || statErr != nil {
			continue
		}
		off := max(0, info.Size-historyLine) / vfs.BlockSize * vfs.BlockSize
		whole := off == 0
		var reach history.Reach
		err = readHistoryFrom(ctx, v.fs, f, off, func(b []byte) bool {
			if whole {
				reach.Line(b)
			}
			whole = true // the first one may be the end of a line
			return true
		})
		if err == nil {
			return Witness{Path: HistoryPath(f), Epoch: f.Epoch, LSN: max(head.After, reach.LSN()), Odd: reach.Odd()}, true
		}
	}
	return w, false
}

func (r *Term) syncHistory(f history.File) error {
	x, err := r.v.fs.Open(HistoryPath(f), vfs.FlagRead)
	if err != nil {
		return err
	}
	return errors.Join(x.Sync(), x.Close())
}

// HistoryFile is a file of this term's own. It belongs to one goroutine.
type HistoryFile struct {
	r        *Term
	name     string
	f        vfs.File
	Size     int64 // of what was written
	unsynced int
}

// CreateHistory makes the term's n-th file.
func (r *Term) CreateHistory(n uint32) (*HistoryFile, error) {
	if err := r.Err(); err != nil {
		return nil, err
	}
	name := HistoryPath(history.File{Epoch: r.epoch, N: n})
	f, err := r.v.fs.Open(name, vfs.FlagCreate|vfs.FlagDsync)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	if err := r.v.fs.SyncDir(layout.HistoryDir); err != nil {
		return nil, errors.Join(fmt.Errorf("create %s: %w", name, err), f.Close())
	}
	return &HistoryFile{r: r, name: name, f: f}, nil
}

// Append writes at the end. After an error the same bytes may be written again, to the
// same place. Large files are synced in pieces, since one sync of all of it would hold
// up those of the log.
func (h *HistoryFile) Append(b []byte) error {
	if err := h.r.Err(); err != nil {
		return err
	}
	if _, err := h.f.WriteAt(b, h.Size); err != nil {
		return fmt.Errorf("write %s: %w", h.name, err)
	}
	h.Size += int64(len(b))
	if h.unsynced += len(b); h.unsynced < vfs.PieceSize {
		return nil
	}
	return h.sync()
}

func (h *HistoryFile) sync() error {
	h.unsynced = 0
	if err := h.f.Datasync(); err != nil {
		return fmt.Errorf("sync %s: %w", h.name, err)
	}
	return nil
}

// Close ends the file. What the term wrote before its end is not synced then.
func (h *HistoryFile) Close() error {
	var err error
	if h.r.Err() == nil && h.unsynced > 0 {
		err = h.sync()
	}
	return errors.Join(err, h.f.Close())
}

// RemoveHistory removes a file that nobody wants to keep. The caller checks before.
func (r *Term) RemoveHistory(f history.File) error {
	if err := r.Err(); err != nil {
		return err
	}
	return vfs.IgnoreMissing(r.v.fs.Remove(HistoryPath(f)))
}
