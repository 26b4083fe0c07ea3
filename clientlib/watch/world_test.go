// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/fronttest"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	hub "github.com/holdfast-lock/holdfast/shared/watch"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
	"github.com/holdfast-lock/holdfast/wal"
)

// tables are servers that apply one log of random requests, each behind the first by
// as much as the test likes, and serve it as the product does.
type tables struct {
	rng     *rand.Rand
	servers []*tableServer // the first one is primary
	ids     cluster.RequestID
	mu      sync.Mutex
	// history is what a mirror may show, by LSN.
	history map[cluster.LSN]map[clientlib.LockName]LockState
	happens map[locktable.Kind]int
}

// tableServer is one of them.
type tableServer struct {
	serving.Backend // of what nobody asks for
	id              cluster.ServerID
	addr            string
	hub             *hub.Hub
	feed            *hub.Feed
	watched         atomic.Int32 // how often somebody began to watch
	mu              sync.Mutex
	table           *locktable.Table
	at              wal.Position
	late            [][]locktable.Record
}

func newTables(t *testing.T, seed uint64, n int) *tables {
	x := &tables{
		rng: rand.New(rand.NewPCG(seed, 7)), history: map[cluster.LSN]map[clientlib.LockName]LockState{0: {}}, happens: map[locktable.Kind]int{},
	}
	for i := range n {
		s := &tableServer{id: cluster.ServerID(i + 1), hub: hub.New(time.Minute), table: locktable.New()}
		s.feed = s.hub.Feed(true)
		s.feed.Begin(s.at, 1)
		s.feed.Alive()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s.addr = l.Addr().String()
		port := fronttest.Serve(l, service.New(s, service.Options{}))
		ctx, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { s.hub.Run(ctx) }) //nolint:errcheck // it is stopped
		t.Cleanup(func() { port.Close(); stop(); running.Wait() })
		x.servers = append(x.servers, s)
	}
	return x
}

func (s *tableServer) Hub() *hub.Hub {
	s.watched.Add(1)
	return s.hub
}

func (s *tableServer) Read(_ context.Context, f func(serving.View)) (serving.Reading, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(serving.View{Table: s.table})
	return serving.Reading{Status: cluster.StatusOK, LSN: s.at.LSN, Epoch: 1, Local: s.id > 1}, nil
}

func (s *tableServer) Primary() (cluster.Member, cluster.Epoch, bool) {
	return cluster.Member{}, 1, false
}

func (s *tableServer) Timing() cluster.Timing { return cluster.DefaultTiming() }

func (s *tableServer) Status() serving.ClusterStatus {
	role := "replica"
	if s.id == 1 {
		role = "primary"
	}
	m := cluster.Member{ID: s.id, Client: s.addr}
	return serving.ClusterStatus{Server: s.id, Epoch: 1, Servers: []serving.ServerStatus{{Member: m, Role: role, Epoch: 1}}}
}

// apply takes records in, each noted, and tells them.
func (s *tableServer) apply(recs []locktable.Record, note func(*locktable.Record)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.at
	var entries []wal.Entry
	for i := range recs {
		if err := s.table.Apply(&recs[i]); err != nil {
			panic(err)
		}
		note(&recs[i])
		h := recs[i].AppendHeader(nil)
		entries = append(entries, wal.Entry{Header: h})
		s.at = wal.Position{LSN: recs[i].LSN, Chain: s.at.Chain.Next(h)}
	}
	s.feed.Frames(before, s.at, 1, wal.AppendFrame(nil, wal.FrameHeader{
		Kind: wal.FrameRecords, Elided: true, Epoch: 1, First: before.LSN + 1, Count: len(entries), Chain: s.at.Chain,
	}, entries), nil)
}

// catchUp applies what is late.
func (s *tableServer) catchUp() {
	for _, recs := range s.late {
		s.apply(recs, func(*locktable.Record) {})
	}
	s.late = nil
}

// snapshot catches up without telling how.
func (s *tableServer) snapshot() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, recs := range s.late {
		for i := range recs {
			if err := s.table.Apply(&recs[i]); err != nil {
				panic(err)
			}
			s.at = wal.Position{LSN: recs[i].LSN, Chain: s.at.Chain.Next(recs[i].AppendHeader(nil))}
		}
	}
	s.late = nil
	s.feed.Begin(s.at, 1)
}

// lsn is where the first server stands.
func (x *tables) lsn() cluster.LSN { return x.servers[0].at.LSN }

// commit has everybody apply records, some later.
func (x *tables) commit(recs []locktable.Record) {
	if len(recs) == 0 {
		return
	}
	for i := range recs {
		recs[i].Time = 1_700_000_000_000 + int64(recs[i].LSN)
	}
	first := x.servers[0]
	first.apply(recs, func(r *locktable.Record) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.history[r.LSN] = statesOf(first.table)
		x.happens[r.Kind]++
	})
	for _, s := range x.servers[1:] {
		if s.late = append(s.late, slices.Clone(recs)); x.rng.IntN(3) > 0 {
			s.catchUp()
		}
	}
}

// statesOf is a table as a mirror of the prefix p/ shows it.
func statesOf(table *locktable.Table) map[clientlib.LockName]LockState {
	all := map[clientlib.LockName]LockState{}
	for v := range table.Locks("p/", "") {
		l := LockState{Name: v.Name, QueueLength: v.QueueLength, FileCount: v.FileCount}
		if g := v.Grant; g.Token != 0 {
			l.TTL, l.GrantEpoch, l.Request, l.Metadata = g.TTL, g.Epoch, g.Request, g.Metadata
			l.Holder = clientlib.HolderInfo{
				Client: g.Client, Token: g.Token, Host: g.Holder.Host, PID: int64(g.Holder.PID), Command: g.Holder.Command, Since: wire.Moment(g.Since),
				Mode: wire.ModeWord(pb.Mode(g.Mode)), Holders: uint32(v.Holders),
			}
			if a := g.Ask; a != nil {
				l.Ask = clientlib.Ask{Actor: a.Actor, Reason: a.Reason, Grace: a.Grace}
			}
			l.others = othersOf(table, &g)
		}
		all[v.Name] = l
	}
	return all
}

// othersOf are the holders of a lock beside the first one.
func othersOf(table *locktable.Table, first *locktable.Grant) string {
	var all []Sharer
	for g := range table.Grants(first.Lock) {
		if g.Token == first.Token {
			continue
		}
		x := Sharer{TTL: g.TTL, GrantEpoch: g.Epoch, Request: g.Request, Metadata: g.Metadata, HolderInfo: clientlib.HolderInfo{
			Client: g.Client, Token: g.Token, Host: g.Holder.Host, PID: int64(g.Holder.PID), Command: g.Holder.Command, Since: wire.Moment(g.Since),
			Mode: wire.ModeWord(pb.Mode(g.Mode)),
		}}
		if a := g.Ask; a != nil {
			x.Ask = clientlib.Ask{Actor: a.Actor, Reason: a.Reason, Grace: a.Grace}
		}
		all = append(all, x)
	}
	return sharersText(all)
}

// ask has the table decide a request.
func (x *tables) ask(q locktable.Request) {
	x.ids++
	if q.ID = x.ids; q.Op == locktable.OpCancel {
		q.ID = 0
	}
	recs, _ := x.servers[0].table.Decide(&q, 1, locktable.FileFacts{Inode: uint64(x.ids)}, nil)
	x.commit(recs)
}

// step does something at random, about a few locks below p/ and one elsewhere.
func (x *tables) step() {
	table := x.servers[0].table
	name := clientlib.LockName(fmt.Sprintf("p/%d", x.rng.IntN(6)))
	if x.rng.IntN(8) == 0 {
		name = "elsewhere"
	}
	client := cluster.ClientID(fmt.Sprintf("c%d", x.rng.IntN(40)))
	l, _ := table.Lock(name)
	q := locktable.Request{Client: client, Lock: name, Token: l.Grant.Token}
	for g := range table.Grants(name) { // of any who holds it
		if q.Token = g.Token; x.rng.IntN(2) == 0 {
			break
		}
	}
	switch n := x.rng.IntN(37); {
	case n < 12 || l.Grant.Token == 0:
		q.Op, q.Token, q.TTL, q.Wait = locktable.OpAcquire, 0, time.Duration(1+x.rng.IntN(9))*time.Second, locktable.WaitForever
		q.Holder = locktable.Holder{Host: fmt.Sprintf("h%d", x.rng.IntN(3)), PID: x.rng.IntN(5), Command: "x"}
		q.Metadata, q.Mode = fmt.Sprint(x.rng.IntN(3)), locktable.Mode(x.rng.IntN(2))
	case n == 32 || n == 33:
		q.Op = locktable.OpDowngrade
	case n == 35 || n == 36:
		q.Op, q.TTL = locktable.OpExtend, time.Duration(5+x.rng.IntN(9))*time.Second
	case n < 20:
		q.Op = locktable.OpRelease
	case n == 20:
		x.commit(table.DecideExpire(name, q.Token, "", 1, nil))
		return
	case n == 21:
		q.Op, q.Actor, q.Reason = locktable.OpBreak, "me", "test"
	case n == 22:
		q.Op, q.File = locktable.OpBind, cluster.FileName(fmt.Sprintf("f%d", x.ids))
	case n == 23:
		q.Op, q.File, q.Data, q.CRC = locktable.OpAppend, cluster.FileName(fmt.Sprintf("f%d", x.ids)), []byte("x"), 0x9dd4f2a2
	case n == 24 && l.FileCount > 0:
		q.Op, q.File = locktable.OpUnbind, table.FilesOf(name)[0]
	case n == 25 && l.FileCount > 0:
		q.Op, q.File = locktable.OpRotate, table.FilesOf(name)[0]
	case n == 34 && l.FileCount > 0:
		q.Op, q.File = locktable.OpSeal, table.FilesOf(name)[0]
	case n == 26 && l.FileCount > 0:
		x.commit(table.DecideQuarantine(table.FilesOf(name)[0], "test", 1, nil))
		return
	case n == 27 && x.rng.IntN(8) == 0:
		x.commit(table.DecideForceClear(1, nil))
		return
	case n == 28:
		x.commit(table.DecideTerm(1, 1, nil))
		return
	case n == 30:
		q.Op, q.Metadata = locktable.OpMetadata, fmt.Sprint(x.ids)
	case n == 31:
		q.Op, q.Actor, q.Reason, q.Grace = locktable.OpBreak, "me", fmt.Sprint(x.ids), time.Minute
	case l.QueueLength > 0:
		x.leaves(name)
		return
	default: // a tombstone
		q.Op, q.Target = locktable.OpCancel, x.ids+1000
	}
	x.ask(q)
}

// leaves has somebody leave a queue.
func (x *tables) leaves(name clientlib.LockName) {
	table := x.servers[0].table
	all := slices.Collect(table.Waiters(name))
	w := all[x.rng.IntN(len(all))]
	if x.rng.IntN(2) == 0 {
		x.commit(table.DecideWaitTimeout(w.Client, w.Request, 1, nil))
		return
	}
	x.ask(locktable.Request{Op: locktable.OpCancel, Client: w.Client, Target: w.Request})
}

// at is what a mirror shows at an LSN.
func (x *tables) at(lsn cluster.LSN) (map[clientlib.LockName]LockState, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	all, ok := x.history[lsn]
	return all, ok
}

// client asks these servers.
func (x *tables) client(t *testing.T) *clientlib.Client {
	o := clientlib.Options{}
	for _, s := range x.servers {
		o.Endpoints = append(o.Endpoints, s.addr)
	}
	c, err := clientlib.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // it cannot fail
	return c
}
