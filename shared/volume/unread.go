// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/wal"
)

// Unread names what a warm takeover adopted and read no more of than its edges.
type Unread struct {
	// Bases are where the adopted checkpoints stand, newest first.
	Bases []wal.Position
	// From and UpTo bound the records in adopted segments; UpTo is 0 where there are none.
	From wal.Position
	UpTo cluster.LSN
}

// VerifyUnread reads what was adopted unread, before a cold takeover comes to need
// it: the error says what is damaged, with file and offset, and damaged which of the
// checkpoints. It calls rest now and then, and changes nothing. It ends with the reign.
func (r *Reign) VerifyUnread(u *Unread, rest func()) (damaged []cluster.LSN, err error) {
	resting := r.resting(rest)
	for _, at := range u.Bases {
		if cerr := r.verifyCheckpoint(at.LSN, resting); cerr != nil {
			damaged, err = append(damaged, at.LSN), errors.Join(err, cerr)
		}
	}
	return damaged, errors.Join(err, r.verifyLog(u, resting))
}

// verifyLog reads the adopted segments. Those behind the first of this reign's own,
// which proves that the last of them is closed, are being written and not looked at.
func (r *Reign) verifyLog(u *Unread, rest func() error) error {
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
	_, err := wal.Scan(&pacedDir{hidingDir{*r.dir(), u.UpTo + 2}, rest}, opt, func(_ cluster.LSN, e wal.Entry, _ wal.FrameHeader) error {
		if unpaid += len(e.Header) + len(e.Data); unpaid < pieceSize {
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

// pacedDir is a hidingDir whose files are read in pieces, with a rest behind each.
type pacedDir struct {
	hidingDir
	rest func() error
}

// Open opens for reading.
func (d *pacedDir) Open(name string) (wal.File, error) {
	f, err := d.hidingDir.Open(name)
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
		m, err = f.File.ReadAt(b[n:min(len(b), n+pieceSize)], off+int64(n))
		n += m
		if err == nil && n < len(b) {
			err = f.rest()
		}
	}
	return n, err
}

// verifyCheckpoint verifies the sums of the reign's own checkpoint at lsn.
func (r *Reign) verifyCheckpoint(lsn cluster.LSN, rest func() error) error {
	name := r.path + "/" + checkpointDir(lsn) + "/"
	receipts, err := verifyFile(r.v.fs, name+requestsName, "{", rest)
	if err != nil {
		return err
	}
	if _, err := verifyFile(r.v.fs, name+stateName, "", rest); err != nil {
		return err
	}
	h, err := viewHead(r.v.fs, name+stateName)
	if err == nil && uint32(h.ReceiptsC) != receipts {
		err = fmt.Errorf("%s is not the one that %s names", requestsName, stateName)
	}
	return err
}

// verifyFile compares the sum in the last line of a file, which begins with prefix,
// with that of all before it.
func verifyFile(fsys FS, name, prefix string, rest func() error) (uint32, error) {
	f, err := fsys.Open(name, FlagRead)
	if err != nil {
		return 0, err
	}
	sum, err := sumFile(f, prefix, rest)
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return sum, errors.Join(err, f.Close())
}

func sumFile(f File, prefix string, rest func() error) (uint32, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	last := func(sum uint32) string { return fmt.Sprintf("%s\"crc32c\":\"%08x\"}\n", prefix, sum) }
	body := max(0, info.Size-int64(len(last(0))))
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	if err := copyPieces(h, io.NewSectionReader(f, 0, body), rest); err != nil {
		return 0, err
	}
	tail, err := io.ReadAll(io.NewSectionReader(f, body, info.Size-body))
	if err == nil && string(tail) != last(h.Sum32()) {
		err = errSum
	}
	return h.Sum32(), err
}

// resting calls rest, and ends what rests when the reign has ended.
func (r *Reign) resting(rest func()) func() error {
	return func() error {
		rest()
		return r.Err()
	}
}

func copyPieces(w io.Writer, f io.ReaderAt, rest func() error) error {
	buf := make([]byte, pieceSize)
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
