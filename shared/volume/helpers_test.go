// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

func members() cluster.Members {
	return cluster.Members{
		{ID: 1, Client: "h1:1", Peer: "h1:3"},
		{ID: 2, Client: "h2:1", Peer: "h2:3"},
		{ID: 3, Client: "h3:1", Peer: "h3:3"},
	}
}

// host is a process on a local filesystem.
func host(d *volumetest.Disk, id cluster.ServerID) *volumetest.Host {
	return d.Host(int(id), volumetest.ProfileLocal())
}

func initialise(h *volumetest.Host) (volume.Cluster, error) {
	return volume.Init(context.Background(), h, members(), rand.Reader)
}

// newDisk is an initialised volume.
func newDisk(t *testing.T) *volumetest.Disk {
	t.Helper()
	d := volumetest.New(1)
	if _, err := initialise(host(d, 9)); err != nil {
		t.Fatalf("init: %v", err)
	}
	return d
}

func open(h *volumetest.Host, id cluster.ServerID) (*volume.Volume, error) {
	return volume.Open(h, volume.Options{Server: id, Random: rand.Reader, FirstSegment: 32 << 10, Segment: 32 << 10})
}

// server is one server's process, up to its claim.
type server struct {
	t    *testing.T
	host *volumetest.Host
	vol  *volume.Volume
}

func start(t *testing.T, d *volumetest.Disk, id cluster.ServerID) *server {
	t.Helper()
	return startOn(t, host(d, id), id)
}

// startStale starts a server that is told that the filesystem shows stale data.
func startStale(t *testing.T, d *volumetest.Disk, id cluster.ServerID) *server {
	t.Helper()
	h := host(d, id)
	v, err := volume.Open(h, volume.Options{Server: id, Random: rand.Reader, FirstSegment: 32 << 10, Segment: 32 << 10, Staleness: time.Second})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return &server{t: t, host: h, vol: v}
}

// startOn starts a server on this host.
func startOn(t *testing.T, h *volumetest.Host, id cluster.ServerID) *server {
	t.Helper()
	v, err := open(h, id)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return &server{t: t, host: h, vol: v}
}

func (s *server) prepare() *volume.Prepared {
	s.t.Helper()
	p, err := s.vol.Prepare(context.Background())
	if err != nil {
		s.t.Fatalf("prepare: %v", err)
	}
	return p
}

func (s *server) claim() *volume.Term {
	s.t.Helper()
	r, err := s.vol.Claim(context.Background(), s.prepare())
	if err != nil {
		s.t.Fatalf("claim: %v", err)
	}
	return r
}

// term is one that has started: it can log and checkpoint.
type term struct {
	t     *testing.T
	host  *volumetest.Host
	r     *volume.Term
	src   volume.Source
	a     *volume.Adoption
	log   *wal.Log
	table *locktable.Table
	vol   *volume.Volume
	next  cluster.RequestID
}

// takeOver does what a primary does before it serves.
func (s *server) takeOver(r *volume.Term, warm *volume.WarmState) (*term, error) {
	ctx := context.Background()
	src, err := r.FenceOlder(ctx)
	if err != nil {
		return nil, err
	}
	a, err := r.Scan(ctx, src, warm)
	if err != nil {
		return nil, err
	}
	log, err := r.Adopt(a)
	if err != nil {
		return nil, err
	}
	if err := r.WriteStart(a.End); err != nil {
		return nil, err
	}
	return &term{t: s.t, host: s.host, r: r, src: src, a: a, log: log, table: a.Table, vol: s.vol, next: 1}, nil
}

// begin starts a server and takes over.
func begin(t *testing.T, d *volumetest.Disk, id cluster.ServerID) *term {
	t.Helper()
	s := start(t, d, id)
	x, err := s.takeOver(s.claim(), nil)
	if err != nil {
		t.Fatalf("takeover: %v", err)
	}
	return x
}

// kill ends the process as kill -9 does.
func (x *term) kill() { x.host.Kill() }

// do logs a request of a client of this term's own.
func (x *term) do(q locktable.Request, facts locktable.FileFacts) locktable.Outcome {
	x.t.Helper()
	if q.ID == 0 {
		q.ID = x.next
		x.next++
	}
	if q.Client == "" {
		q.Client = cluster.ClientID(fmt.Sprintf("c%d", x.r.Epoch()))
	}
	recs, d := x.table.Decide(&q, x.r.Epoch(), facts, nil)
	x.apply(recs)
	return d.Outcome
}

// apply logs and applies records as one batch.
func (x *term) apply(recs []locktable.Record) {
	x.t.Helper()
	x.makeRoom()
	var b wal.Batch
	b.Reset(x.log.Position())
	for i := range recs {
		if err := x.table.Apply(&recs[i]); err != nil {
			x.t.Fatal(err)
		}
		b.Add(recs[i].AppendHeader(nil), recs[i].Data)
	}
	if b.Len() > 0 {
		if err := x.log.Append(&b); err != nil {
			x.t.Fatalf("append: %v", err)
		}
	}
}

// makeRoom makes the next segment ready.
func (x *term) makeRoom() {
	x.t.Helper()
	if !x.log.NextReady() {
		if err := x.log.PrepareNext(context.Background()); err != nil {
			x.t.Fatalf("prepare the next segment: %v", err)
		}
	}
}

// fill takes n locks, in as many frames, so that the log rotates.
func (x *term) fill(n int) {
	x.t.Helper()
	for range n {
		q := locktable.Request{Op: locktable.OpAcquire, Lock: cluster.LockName(fmt.Sprintf("e%d/%d", x.r.Epoch(), x.next)), TTL: time.Minute}
		if out := x.do(q, locktable.FileFacts{}); out.Status != cluster.StatusOK {
			x.t.Fatalf("acquire: %v %s", out.Status, out.Message)
		}
	}
}

func (x *term) checkpoint() {
	x.t.Helper()
	if _, err := x.r.WriteCheckpoint(x.snapshot().Export()); err != nil {
		x.t.Fatalf("checkpoint: %v", err)
	}
}

func (x *term) snapshot() checkpoint.Snapshot {
	return checkpoint.Snapshot{Cluster: x.r.Cluster(), Epoch: x.r.Epoch(), At: x.log.Position(), Table: x.table.Clone()}
}

// usable fails the test unless a server can take over and finds this much.
func usable(t *testing.T, d *volumetest.Disk, hash uint64) {
	t.Helper()
	x := begin(t, d, 3)
	if x.table.Hash() != hash {
		t.Errorf("the table that was adopted is another one")
	}
	x.kill()
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// tried are the calls of a recovery that a test goes through: all, and a third under -short.
func tried(all []volumetest.Call) (calls []volumetest.Call) {
	step := 1
	if testing.Short() {
		step = 3
	}
	for i := 0; i < len(all); i += step {
		calls = append(calls, all[i])
	}
	return calls
}
