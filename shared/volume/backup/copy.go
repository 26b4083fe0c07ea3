// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// protected is a protected file that was copied as this state of the table says.
type protected struct {
	state locktable.FileState
	file  File
}

// copyProtected copies the protected files of the state that were not copied as they are there. It returns the names
// that do not lead to the bound inode; their entries say so.
func (r *run) copyProtected(ctx context.Context) (moved []cluster.FileName, err error) {
	for name, p := range r.copies {
		if f, ok := r.state.Table.File(name); ok && f == p.state && p.file.Problem == "" {
			r.advance(f.End)
			continue
		}
		delete(r.copies, name)
		if p.file.SHA256 != "" {
			if err := r.to.Remove(p.file.Path); err != nil {
				return nil, err
			}
		}
	}
	for name, f := range r.state.Table.Files() {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if _, done := r.copies[name]; done {
			continue
		}
		p := protected{state: f}
		p.file, err = r.copyFile(name, f)
		if errors.Is(err, errNotThere) {
			moved = append(moved, name)
			err = nil
		}
		if err != nil {
			return nil, err
		}
		p.file.Lock, p.file.Generation = f.Lock, f.Generation
		if f.Quarantined {
			p.file.Quarantined = f.Reason
			if f.Reason == "" {
				p.file.Quarantined = "it is quarantined"
			}
		}
		r.copies[name] = p
	}
	return moved, nil
}

// errNotThere means that the name of a protected file does not lead to the inode that the log names.
var errNotThere = errors.New("the name does not lead to the protected file")

// copyFile copies one protected file. With errNotThere the File has the problem and no copy.
func (r *run) copyFile(name cluster.FileName, state locktable.FileState) (_ File, err error) {
	at := volume.ProtectedPath(name)
	if info, err := r.from.Lstat(at); err == nil && info.Type != vfs.TypeFile {
		return File{Path: at, Problem: "it is not a regular file"}, errNotThere
	}
	if state.Quarantined { // the log does not say what it holds
		f, err := r.copyWhole(at)
		if errors.Is(err, fs.ErrNotExist) {
			return File{Path: at}, nil
		}
		return f, err
	}
	f, err := r.from.Open(at, vfs.FlagRead|vfs.FlagDirect)
	if errors.Is(err, fs.ErrNotExist) {
		return File{Path: at, Problem: "it is not there"}, errNotThere
	}
	if err != nil {
		return File{}, fmt.Errorf("read %s: %w", at, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return File{}, fmt.Errorf("read %s: %w", at, err)
	}
	if info.Inode != state.Inode {
		return File{Path: at, Problem: fmt.Sprintf("it has inode %d, the log says %d: the file was replaced", info.Inode, state.Inode)}, errNotThere
	}
	c := &content{file: vfs.DirectReader{File: f}, size: info.Size, end: state.End, advance: r.advance}
	written := state.End
	for i := range r.state.Redo {
		if rec := &r.state.Redo[i]; rec.File == name && rec.Generation == state.Generation {
			c.redo = append(c.redo, rec)
			written = min(written, rec.Offset)
		}
	}
	out, err := r.write(at, c)
	if err != nil {
		return File{}, err
	}
	if info, err = f.Stat(); err != nil {
		return File{}, fmt.Errorf("read %s: %w", at, err)
	}
	if c.size = min(c.size, info.Size); c.size < written {
		out.Problem = fmt.Sprintf("it has %d bytes, the log says %d to %d: bytes that were written are gone", c.size, written, state.End)
	}
	return out, nil
}

func (r *run) advance(n int64) {
	r.done += n
	r.opt.Progress(r.done, r.total)
}

// content is what a protected file holds up to end, as the log says: the bytes of the file, and over them those of
// appends that it may lack.
type content struct {
	file    io.ReaderAt
	size    int64 // of the file, in bytes; after it there are zeros
	end     int64
	redo    []*locktable.Record
	advance func(int64)
}

// ReadAt implements io.ReaderAt.
func (c *content) ReadAt(b []byte, off int64) (int, error) {
	n := int(max(0, min(int64(len(b)), c.end-off)))
	clear(b[:n])
	if there := min(int64(n), c.size-off); there > 0 {
		if _, err := c.file.ReadAt(b[:there], off); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
	}
	for _, rec := range c.redo {
		from, to := max(rec.Offset, off), min(rec.Offset+int64(len(rec.Data)), off+int64(n))
		if from < to {
			copy(b[from-off:to-off], rec.Data[from-rec.Offset:])
		}
	}
	c.advance(int64(n))
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// create makes a file, with the directories above it, and makes its content durable. It returns its size in bytes and its
// sum.
func create(to vfs.FS, name string, private bool, fill func(io.Writer) error) (n int64, sum string, err error) {
	if err := mkdirs(to, path.Dir(name), private); err != nil {
		return 0, "", err
	}
	flag := vfs.FlagCreate
	if private {
		flag |= vfs.FlagPrivate
	}
	f, err := to.Open(name, flag)
	if err != nil {
		return 0, "", fmt.Errorf("create %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out, h := io.NewOffsetWriter(f, 0), sha256.New()
	if err := fill(io.MultiWriter(vfs.InPieces(out, f.Sync), h)); err != nil {
		return 0, "", fmt.Errorf("copy to %s: %w", name, err)
	}
	if n, err = out.Seek(0, io.SeekCurrent); err == nil {
		err = f.Sync()
	}
	if err != nil {
		return 0, "", fmt.Errorf("copy to %s: %w", name, err)
	}
	return n, hex.EncodeToString(h.Sum(nil)), nil
}

// mkdirs makes a directory and those above it.
func mkdirs(to vfs.FS, dir string, private bool) error {
	if dir == "." {
		return nil
	}
	if err := mkdirs(to, path.Dir(dir), private); err != nil {
		return err
	}
	mkdir := to.Mkdir
	if private {
		mkdir = to.MkdirPrivate
	}
	if err := mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// syncDirs makes the names in a directory and below it durable.
func syncDirs(to vfs.FS, dir string) error {
	entries, err := to.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, x := range entries {
		if x.Type == vfs.TypeDir {
			if err := syncDirs(to, path.Join(dir, x.Name)); err != nil {
				return err
			}
		}
	}
	return to.SyncDir(dir)
}
