// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/primary/primarytest"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/watch"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
	"github.com/holdfast-lock/holdfast/wal"
)

// fedReplica is a replica whose pushes the test makes.
type fedReplica struct {
	backend
	t     *testing.T
	feed  *watch.Feed
	table *locktable.Table // guarded by mu, like all below
	at    wal.Position
	ids   cluster.RequestID
	// reading is called before each read, with mu held.
	reading func()
	// also are pushed the same.
	also []*fedReplica
}

func newFedReplica(t *testing.T) *fedReplica {
	r := &fedReplica{t: t, table: locktable.New(), reading: func() {}}
	r.self, r.members, r.backend.term, r.epoch = 2, primarytest.Members(), 1, 7
	r.hub = watch.New(primarytest.Timing().StorageTimeout)
	r.feed = r.hub.Feed(true)
	r.feed.Begin(r.at, 7)
	r.feed.Alive()
	return r
}

// run runs the hub.
func (r *fedReplica) run() *fedReplica {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.hub.Run(ctx) //nolint:errcheck // it is stopped
	}()
	r.t.Cleanup(func() { stop(); <-done })
	return r
}

func (r *fedReplica) Read(_ context.Context, f func(serving.View)) (serving.Reading, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reading()
	f(serving.View{Table: r.table})
	return serving.Reading{Status: cluster.StatusOK, LSN: r.at.LSN, Epoch: 7, Local: true}, nil
}

// ask decides a request as a primary does and pushes what comes of it.
func (r *fedReplica) ask(q locktable.Request) locktable.Outcome {
	r.ids++
	if q.ID = r.ids; q.Op == locktable.OpCancel {
		q.ID = 0
	}
	recs, d := r.table.Decide(&q, 7, locktable.FileFacts{Inode: uint64(r.ids)}, nil)
	r.push(recs)
	return d.Outcome
}

func (r *fedReplica) push(recs []locktable.Record) {
	if len(recs) == 0 {
		return
	}
	for _, o := range r.also {
		o.mu.Lock()
		o.push(recs)
		o.mu.Unlock()
	}
	before := r.at
	var entries []wal.Entry
	for i := range recs {
		recs[i].Time = 1_700_000_000_000 + int64(recs[i].LSN)
		if err := r.table.Apply(&recs[i]); err != nil {
			r.t.Fatal(err)
		}
		h := recs[i].AppendHeader(nil)
		entries = append(entries, wal.Entry{Header: h})
		r.at = wal.Position{LSN: recs[i].LSN, Chain: r.at.Chain.Next(h)}
	}
	r.feed.Frames(before, r.at, 7, wal.AppendFrame(nil, wal.FrameHeader{
		Kind: wal.FrameRecords, Elided: true, Epoch: 7, First: before.LSN + 1, Count: len(entries), Chain: r.at.Chain,
	}, entries), nil)
}

// grants takes locks, each under a client of its own.
func (r *fedReplica) grants(names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		out := r.ask(locktable.Request{Op: locktable.OpAcquire, Client: cluster.ClientID("c" + fmt.Sprint(r.ids)), Lock: cluster.LockName(name), TTL: time.Minute})
		if out.Status != cluster.StatusOK {
			r.t.Fatalf("grant %s: %v", name, out)
		}
	}
}

// watchFor begins a watch over gRPC that ends with the test.
func watchFor(t *testing.T, c pb.LockServiceClient, q *pb.WatchRequest) grpc.ServerStreamingClient[pb.WatchResponse] {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	s, err := c.Watch(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func recv(t *testing.T, s grpc.ServerStreamingClient[pb.WatchResponse]) *pb.WatchResponse {
	t.Helper()
	r, err := s.Recv()
	if err != nil {
		t.Fatalf("recv: %v", err)
	}
	return r
}

// told reads events until there are n, and says what they are.
func told(t *testing.T, s grpc.ServerStreamingClient[pb.WatchResponse], n int) (words string) {
	t.Helper()
	for last := uint64(0); n > 0; {
		r := recv(t, s)
		if r.Status != pb.Status_STATUS_OK || r.Reset_ != nil {
			t.Fatalf("not events: %v", r)
		}
		for _, e := range r.Events {
			if e.Lsn <= last || e.Lsn > r.Lsn || e.UnixMs == 0 {
				t.Errorf("event %v after LSN %d, in a message up to %d", e, last, r.Lsn)
			}
			last = e.Lsn
			words += fmt.Sprintf(" %v:%s", locktable.Kind(e.Kind), e.Lock)
			n--
		}
	}
	return words
}

func TestWatchOverAPrimary(t *testing.T) {
	b := startPrimary(t)
	c := dialGRPC(t, b)
	ctx := t.Context()
	acquire := func(lock string) *pb.Answer {
		t.Helper()
		a, err := c.Acquire(ctx, &pb.AcquireRequest{Lock: lock, TtlMs: 30000})
		if err != nil || a.Status != pb.Status_STATUS_OK {
			t.Fatalf("acquire: %v %v", a, err)
		}
		return a
	}
	held := acquire("p/held")
	s := watchFor(t, c, &pb.WatchRequest{Target: &pb.WatchRequest_Prefix{Prefix: "p/"}})
	r := recv(t, s)
	if x := r.Reset_; x == nil || x.Part != 0 || !x.Last || x.Reason != "" || len(x.Locks) != 1 || x.Locks[0].Grant.GetToken() != held.Token || r.Lsn < held.Lsn {
		t.Fatalf("reset: %v", r)
	}
	begun := r.Lsn
	acquire("q")
	l := acquire("p/l")
	if _, err := c.FileAppend(ctx, &pb.FileAppendRequest{Lock: "p/l", Token: l.Token, File: "f", Data: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Release(ctx, &pb.ReleaseRequest{Lock: "p/l", Token: l.Token}); err != nil {
		t.Fatal(err)
	}
	if got, want := told(t, s, 3), " grant:p/l bind:p/l release:p/l"; got != want {
		t.Errorf("told%s, want%s", got, want)
	}
	one := watchFor(t, c, &pb.WatchRequest{
		Target: &pb.WatchRequest_Lock{Lock: "p/l"}, AfterLsn: proto.Uint64(begun), Kinds: []pb.EventKind{pb.EventKind_EVENT_KIND_APPEND},
	})
	if got := told(t, one, 1); got != " append:p/l" {
		t.Errorf("resumed: told%s", got)
	}
	free := watchFor(t, c, &pb.WatchRequest{Target: &pb.WatchRequest_Lock{Lock: "nobody/has/it"}})
	if x := recv(t, free).Reset_; x == nil || len(x.Locks) != 0 || !x.Last {
		t.Errorf("reset of a free lock: %v", x)
	}
	b.elect(2, 9)
	b.p.End(errors.New("enough"))
	for _, s := range []grpc.ServerStreamingClient[pb.WatchResponse]{s, one, free} {
		if r := recv(t, s); r.Status != pb.Status_STATUS_SECONDARY_MODE || r.Primary.GetClient() != "h2:1" || r.Lsn != uint64(b.p.LSN()) {
			t.Errorf("the end: %v", r)
		}
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("after the end: %v", err)
		}
	}
	if r := recv(t, watchFor(t, c, &pb.WatchRequest{})); r.Status != pb.Status_STATUS_SECONDARY_MODE {
		t.Errorf("a watch afterwards: %v", r)
	}
}

func TestWatchRefuses(t *testing.T) {
	c := dialGRPC(t, newFedReplica(t))
	for name, q := range map[string]*pb.WatchRequest{
		"no lock":       {Target: &pb.WatchRequest_Lock{}},
		"unclean lock":  {Target: &pb.WatchRequest_Lock{Lock: "a//b"}},
		"long prefix":   {Target: &pb.WatchRequest_Prefix{Prefix: strings.Repeat("x", 513)}},
		"unknown kind":  {Kinds: []pb.EventKind{99}},
		"no kind":       {Kinds: []pb.EventKind{pb.EventKind_EVENT_KIND_NONE}},
		"negative kind": {Kinds: []pb.EventKind{-1}},
	} {
		if r := recv(t, watchFor(t, c, q)); r.Status != pb.Status_STATUS_INVALID_ARGUMENT || r.Message == "" {
			t.Errorf("%s: %v", name, r)
		}
	}
}

// TestResetOfALargeTable changes the table at every page, and at random.
func TestResetOfALargeTable(t *testing.T) {
	for seed := range uint64(6) {
		r := newFedReplica(t).run()
		rng := rand.New(rand.NewPCG(seed, 3))
		var names []string
		for i := range 3*service.ResetPage + 17 {
			names = append(names, fmt.Sprintf("p/%04d", 2*i))
		}
		r.grants(names...)
		change := func() {
			for range 40 {
				r.change(rng)
			}
		}
		r.mu.Lock()
		change()
		r.reading = change
		r.mu.Unlock()
		s := watchFor(t, dialGRPC(t, r), &pb.WatchRequest{Target: &pb.WatchRequest_Prefix{Prefix: "p/"}})
		var got []*pb.Lock
		lsn := uint64(0)
		for part := uint32(0); ; part++ {
			m := recv(t, s)
			if m.Status != pb.Status_STATUS_OK || m.Reset_.GetPart() != part {
				t.Fatalf("part %d: %v", part, m)
			}
			got = append(got, m.Reset_.Locks...)
			if lsn = m.Lsn; m.Reset_.Last {
				break
			}
		}
		r.mu.Lock()
		want := locksOf(r.table)
		at := r.at.LSN
		change()
		after := locksOf(r.table)
		r.mu.Unlock()
		if lsn != uint64(at) {
			t.Fatalf("the reset is of LSN %d, the last reading was of %d", lsn, at)
		}
		if diff := differ(got, want); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
		if slices.EqualFunc(want, after, func(a, b *pb.Lock) bool { return proto.Equal(a, b) }) {
			t.Error("nothing changed")
		}
	}
}

// change asks for something, on names that are and on names that are not in the table.
func (r *fedReplica) change(rng *rand.Rand) {
	name := cluster.LockName(fmt.Sprintf("p/%04d", rng.IntN(6*service.ResetPage+40)))
	if rng.IntN(3) == 0 {
		name = "p/0004" // a crowd
	}
	client := cluster.ClientID(fmt.Sprintf("d%d", r.ids))
	l, held := r.table.Lock(name)
	q := locktable.Request{Client: client, Lock: name, Token: l.Grant.Token}
	for g := range r.table.Grants(name) { // of any of those who hold it
		if q.Token = g.Token; rng.IntN(2) == 0 {
			break
		}
	}
	switch n := rng.IntN(12); {
	case !held || n < 4:
		q = locktable.Request{Op: locktable.OpAcquire, Client: client, Lock: name, TTL: time.Minute, Wait: time.Hour, Holder: locktable.Holder{Host: "h"}}
		q.Metadata, q.Mode = fmt.Sprint(rng.IntN(3)), locktable.Mode(rng.IntN(2))
	case n == 4 && rng.IntN(3) == 0:
		q.Op = locktable.OpDowngrade
	case n == 4 && rng.IntN(2) == 0:
		q.Op, q.TTL = locktable.OpExtend, time.Duration(1+rng.IntN(3))*time.Minute
	case n == 4:
		q.Op, q.File = locktable.OpBind, cluster.FileName(fmt.Sprintf("f%d", r.ids))
	case n == 5 && l.FileCount > 0:
		q.Op, q.File = locktable.OpUnbind, r.table.FilesOf(name)[0]
	case n == 6:
		r.push(r.table.DecideExpire(name, q.Token, "", 7, nil))
		return
	case n == 7 && l.QueueLength > 0:
		for w := range r.table.Waiters(name) {
			r.push(r.table.DecideWaitTimeout(w.Client, w.Request, 7, nil))
			return
		}
	case n == 8 && l.QueueLength > 0:
		for w := range r.table.Waiters(name) {
			q = locktable.Request{Op: locktable.OpCancel, Client: w.Client, Target: w.Request}
		}
	case n == 9:
		q.Op = locktable.OpBreak
	case n == 10:
		q.Op, q.Metadata = locktable.OpMetadata, fmt.Sprint(r.ids)
	case n == 11:
		q.Op, q.Actor, q.Reason, q.Grace = locktable.OpBreak, "me", fmt.Sprint(r.ids), time.Minute
	default:
		q.Op = locktable.OpRelease
	}
	r.ask(q)
}

// locksOf is a table as a reset of a replica tells it.
func locksOf(table *locktable.Table) (all []*pb.Lock) {
	for v := range table.Locks("p/", "") {
		l := convert.FromView(&v, convert.RemainingUnknown, false)
		for g := range table.Grants(v.Name) {
			if g.Token != v.Grant.Token {
				l.SharedHolders = append(l.SharedHolders, convert.FromGrant(&g, convert.RemainingUnknown, false))
			}
		}
		all = append(all, l)
	}
	return all
}

func differ(got, want []*pb.Lock) string {
	for i := range min(len(got), len(want)) {
		if !proto.Equal(got[i], want[i]) {
			return fmt.Sprintf("lock %d is %v, want %v", i, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		return fmt.Sprintf("%d locks, want %d", len(got), len(want))
	}
	return ""
}

// Whoever resumes behind the end of a volume comes from another one, or mistyped.
func TestAWatchBehindTheEndIsAReset(t *testing.T) {
	c := dialGRPC(t, startPrimary(t))
	a, err := c.Acquire(t.Context(), &pb.AcquireRequest{Lock: "l", TtlMs: 30000})
	if err != nil || a.Status != pb.Status_STATUS_OK {
		t.Fatalf("acquire: %v %v", a, err)
	}
	r := recv(t, watchFor(t, c, &pb.WatchRequest{AfterLsn: proto.Uint64(1000)}))
	if x := r.Reset_; x == nil || !strings.Contains(x.Reason, "this volume ends at LSN") || len(x.Locks) != 1 || r.Lsn != a.Lsn {
		t.Errorf("told %v", r)
	}
}

func TestAGapIsAResetWithAReason(t *testing.T) {
	r := newFedReplica(t).run()
	r.grants("a")
	c := dialGRPC(t, r)
	s := watchFor(t, c, &pb.WatchRequest{AfterLsn: proto.Uint64(0)})
	if got := told(t, s, 1); got != " grant:a" {
		t.Fatalf("told%s", got)
	}
	r.mu.Lock()
	r.at = wal.Position{LSN: 50, Chain: 1} // a snapshot came
	r.feed.Begin(r.at, 8)
	r.mu.Unlock()
	m := recv(t, s)
	if m.Reset_ == nil || !m.Reset_.Last || m.Lsn != 50 || !strings.Contains(m.Reset_.Reason, "LSN 1 and LSN 50") || len(m.Reset_.Locks) != 1 {
		t.Errorf("behind the gap: %v", m)
	}
	m = recv(t, watchFor(t, c, &pb.WatchRequest{AfterLsn: proto.Uint64(1)}))
	if m.Reset_ == nil || !strings.Contains(m.Reset_.Reason, "LSN 1") || m.Lsn != 50 {
		t.Errorf("resumed before the gap: %v", m)
	}
	m = recv(t, watchFor(t, c, &pb.WatchRequest{AfterLsn: proto.Uint64(50), BookmarkMs: 1}))
	if m.Reset_ != nil || m.Lsn != 50 || m.Status != pb.Status_STATUS_OK {
		t.Errorf("resumed behind it: %v", m)
	}
	r.feed.End("over")
	if m := recv(t, s); m.Status != pb.Status_STATUS_SECONDARY_MODE || m.Primary.GetClient() != "h1:1" {
		t.Errorf("the end: %v", m)
	}
}

// A client that does not read is cut, and reads why when it reads again.
func TestASlowClientIsCut(t *testing.T) {
	r := newFedReplica(t).run()
	c := dialGRPC(t, r)
	slow := watchFor(t, c, &pb.WatchRequest{AfterLsn: proto.Uint64(0)})
	quick := watchFor(t, c, &pb.WatchRequest{AfterLsn: proto.Uint64(0)})
	const rounds, each = 18, 1000
	for i := range rounds {
		var names []string
		for j := range each {
			names = append(names, fmt.Sprintf("%d/%d", i, j))
		}
		r.grants(names...)
		told(t, quick, each)
	}
	last, n := uint64(0), 0
	for {
		m := recv(t, slow)
		if n += len(m.Events); m.Status == pb.Status_STATUS_OK {
			last = m.Lsn
			continue
		}
		if m.Status != pb.Status_STATUS_CANCELLED || m.Lsn != last || n != int(last) || !strings.Contains(m.Message, "behind") {
			t.Errorf("after %d events up to %d: %v", n, last, m)
		}
		break
	}
	if n == 0 || n == rounds*each {
		t.Errorf("the slow one got %d of %d events", n, rounds*each)
	}
	again := watchFor(t, c, &pb.WatchRequest{AfterLsn: proto.Uint64(last)})
	told(t, again, rounds*each-n)
}

func TestBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFedReplica(t)
		ctx, stop := context.WithCancel(t.Context())
		hub := make(chan error, 1)
		go func() { hub <- r.hub.Run(ctx) }()
		go func() {
			for ctx.Err() == nil {
				time.Sleep(time.Second)
				r.feed.Alive()
			}
		}()
		began := time.Now()
		var got []string
		done := make(chan error, 1)
		q := &pb.WatchRequest{Target: &pb.WatchRequest_Lock{Lock: "a"}, AfterLsn: proto.Uint64(0), BookmarkMs: 2000}
		go func() {
			done <- service.New(r, service.Options{}).Watch(ctx, q, nil, func(m *pb.WatchResponse) error {
				got = append(got, fmt.Sprintf("%v: %d events up to %d", time.Since(began), len(m.Events), m.Lsn))
				return nil
			})
		}()
		time.Sleep(2500 * time.Millisecond)
		r.grants("other")
		time.Sleep(2 * time.Second)
		r.grants("a")
		time.Sleep(2 * time.Second)
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		<-hub
		time.Sleep(time.Second)
		want := "[2s: 0 events up to 0 4s: 0 events up to 1 4.5s: 1 events up to 2 6s: 0 events up to 2]"
		if fmt.Sprint(got) != want {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}
