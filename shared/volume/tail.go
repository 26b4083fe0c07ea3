// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"slices"

	"github.com/holdfast-lock/holdfast/wal"
)

// TailFrame is a frame of the adopted log, without append data.
type TailFrame struct {
	Before wal.Position
	Bytes  []byte
}

// Tail returns the last frames of the segment that was open, of about limit bytes. They
// are the frames that the older reign wrote, so replicas that it fed usually stand at the
// end of one of them. It is called behind Adopt and WriteStart: then what
// they say is this reign's.
func (a *Adoption) Tail(limit int) []TailFrame {
	var tail []TailFrame
	end := len(a.relog)
	for i := len(a.frames) - 1; i >= 0 && limit > 0; i-- {
		before := a.log.Relog
		if i > 0 {
			before = wal.Position{LSN: a.frames[i-1].Last(), Chain: a.frames[i-1].Chain}
		}
		from := int(before.LSN - a.log.Relog.LSN)
		f := a.frames[i]
		f.First, f.Elided = before.LSN+1, true // the first one may have begun before
		b := wal.AppendFrame(nil, f, a.relog[from:end])
		tail = append(tail, TailFrame{before, b})
		limit -= len(b)
		end = from
	}
	slices.Reverse(tail)
	return tail
}
