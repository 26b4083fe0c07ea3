// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// Base is a checkpoint that was read whole and verified: a scan of the log begins at it.
type Base struct {
	Snapshot       // its Table is nil if none was asked for
	Size     int64 // of its two files, in bytes; 0 for Empty
}

// Empty returns the state before the first record, at LSN 0.
func Empty() *Base { return &Base{Snapshot: Snapshot{Table: locktable.New()}} }

// Read reads and verifies the checkpoint at lsn in dir, the directory of a term. It restores the table
// if table is true. It returns an error if anything does not verify, one that wraps ErrDamaged if the
// checkpoint is of another cluster or LSN.
func Read(fsys vfs.FS, id cluster.ID, dir string, lsn cluster.LSN, table bool) (*Base, error) {
	d := newDecoder(table)
	if err := d.readFiles(fsys, dir, lsn, func() error { return nil }); err != nil {
		return nil, err
	}
	s, err := d.Close()
	if err != nil {
		return nil, fmt.Errorf("checkpoint %d: %w", lsn, err)
	}
	if s.At.LSN != lsn || s.Cluster != id {
		return nil, fmt.Errorf("%w: checkpoint %d is another one's", layout.ErrDamaged, lsn)
	}
	return &Base{Snapshot: s, Size: d.size}, nil
}

// Verify reads the checkpoint at lsn in dir, the directory of a term, and compares its sums. It restores
// no table. It calls rest after each piece of vfs.PieceSize bytes, whose error ends it.
func Verify(fsys vfs.FS, dir string, lsn cluster.LSN, rest func() error) error {
	return newDecoder(false).readFiles(fsys, dir, lsn, rest)
}

// readFiles decodes the two files of the checkpoint at lsn.
func (d *Decoder) readFiles(fsys vfs.FS, dir string, lsn cluster.LSN, rest func() error) error {
	for i, name := range []string{layout.RequestsName, layout.StateName} {
		name = dir + "/" + layout.CheckpointDir(lsn) + "/" + name
		if err := d.readFile(fsys, name, i+1, rest); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// readFile decodes file n of the stream.
func (d *Decoder) readFile(fsys vfs.FS, name string, n int, rest func() error) (err error) {
	f, err := fsys.Open(name, vfs.FlagRead)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := vfs.CopyPieces(d, f, rest); err != nil {
		return err
	}
	return d.endOfFile(n)
}

// ReadView reads and verifies a view, and returns its first line. It returns an error that wraps
// fs.ErrNotExist if there is no view.
func ReadView(fsys vfs.FS, name string) (Head, error) {
	d := newViewDecoder(path.Base(name))
	err := d.readFile(fsys, name, 1, func() error { return nil })
	return d.head, err
}

// ReadHead reads the first line of a view or of a file of a checkpoint. It verifies no sum.
func ReadHead(fsys vfs.FS, name string) (Head, error) {
	first, err := readFirst(fsys, name, nil)
	if err != nil {
		return Head{}, err
	}
	return decodeHead(first)
}

// firstBytes are enough for the first lines of a file.
const firstBytes = 4096

// readFirst returns the first bytes of a file, at most firstBytes. It adds the size of the file to size, unless that is
// nil.
func readFirst(fsys vfs.FS, name string, size *int64) (first []byte, err error) {
	f, err := fsys.Open(name, vfs.FlagRead)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if size != nil {
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		*size += info.Size
	}
	first = make([]byte, firstBytes)
	n, err := f.ReadAt(first, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return first[:n], err
}

// Edge is what the first lines of a checkpoint say.
type Edge struct {
	At      wal.Position // of the log, where it was taken
	Size    int64        // of both files, in bytes
	Pending bool         // it carries appends that files may lack
}

// ReadEdge reads the first lines of the checkpoint at lsn in dir, the directory of a term. It verifies no
// sum. It returns an error that wraps ErrDamaged if the checkpoint is of another cluster or LSN.
func ReadEdge(fsys vfs.FS, id cluster.ID, dir string, lsn cluster.LSN) (Edge, error) {
	dir += "/" + layout.CheckpointDir(lsn) + "/"
	var size int64
	if _, err := readFirst(fsys, dir+layout.RequestsName, &size); err != nil {
		return Edge{}, err
	}
	first, err := readFirst(fsys, dir+layout.StateName, &size)
	if err != nil {
		return Edge{}, err
	}
	h, err := decodeHead(first)
	if err != nil {
		return Edge{}, err
	}
	if h.LSN != lsn || h.Cluster != id {
		return Edge{}, fmt.Errorf("%w: checkpoint %d is another one's", layout.ErrDamaged, lsn)
	}
	_, after, _ := bytes.Cut(first, []byte("\n"))
	return Edge{At: h.Position(), Size: size, Pending: !bytes.HasPrefix(after, []byte(pendingLine+closeLine))}, nil
}
