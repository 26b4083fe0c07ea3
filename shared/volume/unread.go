// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// UnverifiedLog is what a warm takeover adopted without reading all of it.
type UnverifiedLog struct {
	// Bases are the positions of the adopted checkpoints, newest first.
	Bases []wal.Position
	// From and UpTo bound the records in adopted segments; UpTo is 0 if there are none.
	From wal.Position
	UpTo cluster.LSN
}

// VerifyUnread reads what was adopted without being read, before a cold takeover needs
// it. It returns the LSNs of damaged checkpoints, and an error that names what is damaged, with file and
// offset. It calls rest after each piece of vfs.PieceSize bytes, changes nothing, and stops when the term ends.
func (r *Term) VerifyUnread(u *UnverifiedLog, rest func()) (damaged []cluster.LSN, err error) {
	resting := r.resting(rest)
	for _, at := range u.Bases {
		if cerr := checkpoint.Verify(r.v.fs, r.path, at.LSN, resting); cerr != nil {
			damaged, err = append(damaged, at.LSN), errors.Join(err, cerr)
		}
	}
	return damaged, errors.Join(err, r.verifyLog(u, resting))
}

// verifyLog reads the adopted segments, and this term's first own one, which proves that the last adopted one is
// closed. It does not read later segments, which are being written.
func (r *Term) verifyLog(u *UnverifiedLog, rest func() error) error {
	if u.UpTo == 0 {
		return nil
	}
	opt := wal.ScanOptions{
		Cluster: r.v.cluster.ID, FeatureLevel: FeatureLevel, MaxEpoch: r.epoch, From: u.From, UpTo: u.UpTo,
	}
	if len(u.Bases) > 0 && u.Bases[0].LSN <= u.UpTo {
		opt.AtLeast = u.Bases[0]
	}
	unpaid := 0
	_, err := wal.Scan(&pacedDir{epochdir.HidingDir{Dir: *r.dir(), Before: u.UpTo + 2}, rest}, opt, func(_ cluster.LSN, e wal.Entry, _ wal.FrameHeader) error {
		if unpaid += len(e.Header) + len(e.Data); unpaid < vfs.PieceSize {
			return nil
		}
		unpaid = 0
		return rest()
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", r.path, err)
	}
	return err
}

// pacedDir is a HidingDir whose files are read in pieces, with a call of rest after each.
type pacedDir struct {
	epochdir.HidingDir
	rest func() error
}

// Open opens for reading.
func (d *pacedDir) Open(name string) (wal.File, error) {
	f, err := d.HidingDir.Open(name)
	if err != nil {
		return nil, err
	}
	return pacedFile{f, d.rest}, nil
}

type pacedFile struct {
	wal.File
	rest func() error
}

// ReadAt implements io.ReaderAt.
func (f pacedFile) ReadAt(b []byte, off int64) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = f.File.ReadAt(b[n:min(len(b), n+vfs.PieceSize)], off+int64(n))
		n += m
		if err == nil && n < len(b) {
			err = f.rest()
		}
	}
	return n, err
}

// resting returns a function that calls rest and then returns what Err returns.
func (r *Term) resting(rest func()) func() error {
	return func() error {
		rest()
		return r.Err()
	}
}
