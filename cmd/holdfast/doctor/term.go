// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// trialTerm is a server of a volume that was made for the trial. It uses the product's own claim,
// fence, check, scan and log, only smaller.
type trialTerm struct {
	fs    vfs.FS
	vol   *volume.Volume
	term  *volume.Term
	src   volume.Source
	table *locktable.Table // of the term, once it has adopted
	log   *wal.Log
	next  cluster.RequestID
}

// trialSegment is the size of the log segments, in bytes. A thousand records fit.
const trialSegment = 256 << 10

// trialMembers returns two members whose addresses are never used.
func trialMembers() cluster.Members {
	return cluster.Members{
		{ID: 1, Client: "doctor:1", Peer: "doctor:3"},
		{ID: 2, Client: "doctor:4", Peer: "doctor:6"},
	}
}

func (h *localAgent) actInTerm(ctx context.Context, c call, r *reply) error {
	switch c.Op {
	case opInit:
		info, err := volume.Init(ctx, h.fs, trialMembers(), rand.Reader)
		r.Data = info.ID[:]
		return err
	case opOpen:
		return h.openTrial(c.Number, r)
	case opWarmCaches:
		return h.warmCaches()
	}
	if h.term == nil {
		return fmt.Errorf("%s: the volume is not open", c.Op)
	}
	return h.term.act(ctx, c, r)
}

func (h *localAgent) openTrial(server uint64, r *reply) error {
	if h.term != nil || server > uint64(len(trialMembers())) {
		return fmt.Errorf("server %d: open already, or not one of two", server)
	}
	v, err := volume.Open(h.fs, volume.Options{
		Server: cluster.ServerID(server), Address: "doctor", Random: rand.Reader, FirstSegment: trialSegment, Segment: trialSegment,
	})
	if err != nil {
		return err
	}
	h.term = &trialTerm{fs: h.fs, vol: v}
	id := v.Cluster().ID
	r.Data = id[:]
	return nil
}

// warmCaches reads everything that the newest term wrote through the caches of this
// mount, so that they hold it. No server does that; a user with ls and cat does.
func (h *localAgent) warmCaches() error {
	const epochs = "epochs"
	all, err := h.fs.ReadDir(epochs)
	if err != nil || len(all) == 0 {
		return err
	}
	dir := epochs + "/" + all[len(all)-1].Name
	inside, err := h.fs.ReadDir(dir)
	if err != nil {
		return missingIsFine(err)
	}
	for _, x := range inside {
		if err := h.prime(dir + "/" + x.Name); err != nil {
			return err
		}
	}
	return nil
}

func (t *trialTerm) act(ctx context.Context, c call, r *reply) (err error) {
	if c.Op == opClaim {
		r.Number, err = t.claim(ctx)
		return err
	}
	if t.term == nil {
		return fmt.Errorf("%s: nothing was claimed", c.Op)
	}
	switch c.Op {
	case opFence:
		t.src, err = t.term.FenceOlder(ctx)
		r.Number = uint64(t.src.Epoch)
	case opAdopt:
		r.Number, err = t.adopt(ctx)
	case opAppend:
		r.Number, err = t.append()
	case opCheck:
		err = t.term.Check()
	case opEnd:
		err = t.end()
	}
	return err
}

func (t *trialTerm) claim(ctx context.Context) (uint64, error) {
	if t.term != nil {
		return 0, errors.New("the former term has not ended")
	}
	p, err := t.vol.Prepare(ctx)
	if err != nil {
		return 0, err
	}
	if t.term, err = t.vol.Claim(ctx, p); errors.Is(err, volume.ErrNotClaimed) {
		err = errors.Join(err, p.Discard())
	}
	if err != nil {
		return 0, err
	}
	return uint64(t.term.Epoch()), nil
}

// adopt does what a primary does between setting fences and serving. It returns the LSN of START.
func (t *trialTerm) adopt(ctx context.Context) (uint64, error) {
	a, err := t.term.Scan(ctx, t.src, nil)
	if err != nil {
		return 0, err
	}
	if t.log, err = t.term.Adopt(a); err != nil {
		return 0, err
	}
	t.table = a.Table
	return uint64(a.End.LSN), t.term.WriteStart(a.End)
}

// append logs one record as one durable frame.
func (t *trialTerm) append() (uint64, error) {
	if t.log == nil {
		return 0, errors.New("append: nothing was adopted")
	}
	t.next++
	q := locktable.Request{
		Op: locktable.OpAcquire, Client: cluster.ClientID(fmt.Sprintf("doctor-%d", t.term.Epoch())), ID: t.next,
		Lock: cluster.LockName(fmt.Sprintf("trial/%d/%d", t.term.Epoch(), t.next)), TTL: time.Minute,
	}
	recs, _ := t.table.Decide(&q, t.term.Epoch(), locktable.FileFacts{}, nil)
	var b wal.Batch
	b.Reset(t.log.Position())
	for i := range recs {
		if err := t.table.Apply(&recs[i]); err != nil {
			return 0, err
		}
		b.Add(recs[i].AppendHeader(nil), recs[i].Data)
	}
	err := t.log.Append(&b)
	if errors.Is(err, wal.ErrFull) {
		if err = t.log.PrepareNext(t.term.Context()); err == nil {
			err = t.log.Append(&b)
		}
	}
	return uint64(t.log.Position().LSN), err
}

func (t *trialTerm) end() error {
	var err error
	if t.log != nil {
		err = t.log.Close()
	}
	if t.term != nil {
		err = errors.Join(err, t.term.Release())
	}
	t.log, t.table, t.term = nil, nil, nil
	return err
}

func (t *trialTerm) close() error { return errors.Join(t.end(), t.vol.Close()) }
