// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"io/fs"

	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/wal"
)

// resume is a scan that begins at the warm table, so that its time does not grow with
// the number of locks: it reads the first lines of the newest two bases, and the log from
// the segment of the table's position on. As in every scan, the log must have
// the table's chain value at that position. It covers the usual
// case: the base is older than the table, and no file may lack an append
// between the two. After an error, warm.At is still the position of the warm table.
//
// The newest base is not verified here. So whatever a cold takeover would need if it is
// damaged is adopted with it: the base before it, or the beginning of the log, and all
// segments from there on.
func (v *Volume) resume(path string, src Source, warm *WarmState) (*Adoption, error) {
	if warm.Table.LSN() != warm.At.LSN {
		return nil, errCold
	}
	all, err := checkpoint.List(v.fs, path)
	if err != nil {
		return nil, err
	}
	a := &Adoption{Source: src, Table: warm.Table, Ends: warm.Ends, Warm: true, Unread: &UnverifiedLog{}}
	for _, lsn := range all[:min(2, len(all))] {
		b, err := checkpoint.ReadEdge(v.fs, v.cluster.ID, path, lsn)
		if err != nil {
			return nil, err
		}
		if len(a.bases) == 0 {
			if b.Pending {
				return nil, errCold
			}
			a.Base, a.BaseBytes = lsn, b.Size
		}
		a.bases = append(a.bases, lsn)
		a.Unread.Bases = append(a.Unread.Bases, b.At)
	}
	if a.Unread.From, err = v.fallback(path, a.Unread.Bases); err != nil {
		return nil, err
	}
	if a.Base > warm.At.LSN {
		return nil, errCold
	}
	for _, f := range warm.Table.Files() {
		if f.LastLSN > a.Base {
			return nil, errCold // the file may lack this append, whose data is in the log
		}
	}
	s := &scanner{a: a, base: a.Unread.From, warm: warm, at: warm.At}
	if err := s.scan(v, path, warm.At); err != nil {
		return nil, err
	}
	if a.log.Linkable > 0 {
		a.Unread.UpTo = a.log.Relog.LSN
	}
	return a, nil
}

// fallback returns the position at which the adopted log has to begin, so that a takeover can do without the newest
// of the bases: that of the base before it, or LSN 0 if the log reaches back to its beginning.
func (v *Volume) fallback(path string, bases []wal.Position) (from wal.Position, err error) {
	switch len(bases) {
	case 0:
		return from, nil
	case 1:
		_, err := v.fs.Lstat(path + "/" + wal.SegmentName(1))
		if errors.Is(err, fs.ErrNotExist) {
			return bases[0], nil
		}
		return from, err
	}
	return bases[1], nil
}
