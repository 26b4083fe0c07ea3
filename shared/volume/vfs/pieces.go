// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"errors"
	"io"
)

// PieceSize is how much of a large file is written before it is synced.
const PieceSize = 256 << 10

// InPieces returns a writer to w that calls sync after every PieceSize bytes: one sync of a whole
// large file would hold up those of the log. The last piece is left to the caller.
func InPieces(w io.Writer, sync func() error) io.Writer { return &inPieces{w: w, sync: sync} }

type inPieces struct {
	w        io.Writer
	sync     func() error
	unsynced int
}

// Write implements io.Writer.
func (p *inPieces) Write(b []byte) (int, error) {
	if p.unsynced >= PieceSize {
		if err := p.sync(); err != nil {
			return 0, err
		}
		p.unsynced = 0
	}
	n, err := p.w.Write(b)
	p.unsynced += n
	return n, err
}

// CopyFile copies a file and makes the copy durable, in pieces: a call that takes long looks like
// one that hangs, and another server takes over from a takeover that hangs.
func CopyFile(fsys FS, from, to string) (err error) {
	src, err := fsys.Open(from, FlagRead)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	f, err := fsys.Open(to, FlagCreate)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := InPieces(io.NewOffsetWriter(f, 0), f.Sync)
	if err := CopyPieces(w, src, func() error { return nil }); err != nil {
		return err
	}
	return f.Sync()
}

// CopyPieces copies f to w, PieceSize bytes at a time, and calls rest between. Its error ends the copy.
func CopyPieces(w io.Writer, f io.ReaderAt, rest func() error) error {
	buf := make([]byte, PieceSize)
	for off := int64(0); ; {
		n, err := f.ReadAt(buf, off)
		off += int64(n)
		if _, werr := w.Write(buf[:n]); werr != nil {
			return werr
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := rest(); err != nil {
			return err
		}
	}
}
