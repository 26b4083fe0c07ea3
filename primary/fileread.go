// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// File is what the table knows of a protected file, told when every append that this
// state counts is in the file: whoever reads the bound inode up to State.End then reads
// nothing but appends that are committed and were checked. Of a file that cannot be
// trusted or written it is FILE_QUARANTINED or STORAGE_UNAVAILABLE.
func (p *Primary) File(ctx context.Context, name cluster.FileName) (state locktable.FileState, bound bool, out locktable.Outcome, err error) {
	var seen struct {
		state locktable.FileState
		bound bool
	}
	out, err = p.await(ctx, &call{kind: callFile, req: &locktable.Request{File: name}, read: func(v View) {
		seen.state, seen.bound = v.Table.File(name)
	}})
	if err != nil || out.Status != cluster.StatusOK {
		return locktable.FileState{}, false, out, err // the core loop may still be writing seen
	}
	return seen.state, seen.bound, out, nil
}

// tellFile answers a callFile behind the writes under way, as a repeat of an append is.
func (c *core) tellFile(x *call) {
	name := x.req.File
	out := locktable.Outcome{Status: cluster.StatusOK, LSN: c.table.LSN(), Epoch: c.p.Epoch(), File: name}
	if f, bound := c.table.File(name); bound && f.Quarantined {
		out.Status, out.Message = cluster.StatusFileQuarantined, f.Reason
		c.answer(x, out)
		return
	}
	if s, ok := c.slots[name]; ok {
		if f := s.writer.failing.Load(); f != nil {
			out.Status, out.Message = cluster.StatusStorageUnavailable, f.text
			c.answer(x, out)
			return
		}
	}
	x.read(c.view())
	c.cur.answers = append(c.cur.answers, answer{done: x.done, out: out, after: c.writing(name), inFile: true})
}
