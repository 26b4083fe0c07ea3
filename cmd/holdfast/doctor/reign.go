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
	"github.com/holdfast-lock/holdfast/wal"
)

// trialReign is a server of a volume that was made for the trial: its claims,
// fences, checks, scans and log are the product's, only smaller.
type trialReign struct {
	fs    volume.FS
	vol   *volume.Volume
	reign *volume.Reign
	src   volume.Source
	table *locktable.Table // of the reign, once it has adopted
	log   *wal.Log
	next  cluster.RequestID
}

// trialSegment is the size of the log segments, in bytes. A thousand records fit.
const trialSegment = 256 << 10

// trialMembers are two servers that nobody will ever call.
func trialMembers() cluster.Members {
	return cluster.Members{
		{ID: 1, GRPC: "doctor:1", HTTP: "doctor:2", Peer: "doctor:3"},
		{ID: 2, GRPC: "doctor:4", HTTP: "doctor:5", Peer: "doctor:6"},
	}
}

func (h *localHand) reigning(ctx context.Context, c call, r *reply) error {
	switch c.Op {
	case opInit:
		info, err := volume.Init(ctx, h.fs, trialMembers(), rand.Reader)
		r.Data = info.ID[:]
		return err
	case opOpen:
		return h.openTrial(c.Number, r)
	case opSpoil:
		return h.spoil()
	}
	if h.reign == nil {
		return fmt.Errorf("%s: the volume is not open", c.Op)
	}
	return h.reign.act(ctx, c, r)
}

func (h *localHand) openTrial(server uint64, r *reply) error {
	if h.reign != nil || server > uint64(len(trialMembers())) {
		return fmt.Errorf("server %d: open already, or not one of two", server)
	}
	v, err := volume.Open(h.fs, volume.Options{
		Server: cluster.ServerID(server), Address: "doctor", Random: rand.Reader, FirstSegment: trialSegment, Segment: trialSegment,
	})
	if err != nil {
		return err
	}
	h.reign = &trialReign{fs: h.fs, vol: v}
	id := v.Cluster().ID
	r.Data = id[:]
	return nil
}

// spoil looks at all that the newest reign wrote, so that every cache of this
// mount holds it. No server does that; a person with ls and cat does.
func (h *localHand) spoil() error {
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

func (t *trialReign) act(ctx context.Context, c call, r *reply) (err error) {
	if c.Op == opClaim {
		r.Number, err = t.claim(ctx)
		return err
	}
	if t.reign == nil {
		return fmt.Errorf("%s: nothing was claimed", c.Op)
	}
	switch c.Op {
	case opFence:
		t.src, err = t.reign.FenceOlder(ctx)
		r.Number = uint64(t.src.Epoch)
	case opAdopt:
		r.Number, err = t.adopt(ctx)
	case opAppend:
		r.Number, err = t.append()
	case opCheck:
		err = t.reign.Check()
	case opEnd:
		err = t.end()
	}
	return err
}

func (t *trialReign) claim(ctx context.Context) (uint64, error) {
	if t.reign != nil {
		return 0, errors.New("the former reign has not ended")
	}
	p, err := t.vol.Prepare(ctx)
	if err != nil {
		return 0, err
	}
	if t.reign, err = t.vol.Claim(ctx, p); err != nil {
		return 0, err
	}
	return uint64(t.reign.Epoch()), nil
}

// adopt is what a primary does between its fences and its serving.
func (t *trialReign) adopt(ctx context.Context) (uint64, error) {
	a, err := t.reign.Scan(ctx, t.src, nil)
	if err != nil {
		return 0, err
	}
	if t.log, err = t.reign.Adopt(a); err != nil {
		return 0, err
	}
	t.table = a.Table
	return uint64(a.End.LSN), t.reign.WriteStart(a.End)
}

// append logs one record as one durable frame.
func (t *trialReign) append() (uint64, error) {
	if t.log == nil {
		return 0, errors.New("append: nothing was adopted")
	}
	t.next++
	q := locktable.Request{
		Op: locktable.OpAcquire, Client: cluster.ClientID(fmt.Sprintf("doctor-%d", t.reign.Epoch())), ID: t.next,
		Lock: cluster.LockName(fmt.Sprintf("trial/%d/%d", t.reign.Epoch(), t.next)), TTL: time.Minute,
	}
	recs, _ := t.table.Decide(&q, t.reign.Epoch(), locktable.FileFacts{}, nil)
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
		if err = t.log.PrepareNext(t.reign.Context()); err == nil {
			err = t.log.Append(&b)
		}
	}
	return uint64(t.log.Position().LSN), err
}

func (t *trialReign) end() error {
	var err error
	if t.log != nil {
		err = t.log.Close()
	}
	if t.reign != nil {
		err = errors.Join(err, t.reign.Release())
	}
	t.log, t.table, t.reign = nil, nil, nil
	return err
}

func (t *trialReign) close() error { return errors.Join(t.end(), t.vol.Close()) }
