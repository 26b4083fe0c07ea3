// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/clientlib/internal/watchtest"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// watchCluster serves a primary and two replicas, and makes a client of them.
func watchCluster(t *testing.T, o Options) (*watchtest.Log, []*watchtest.Server, *Client) {
	t.Helper()
	log, servers, endpoints := watchtest.Serve(t)
	o.Endpoints = endpoints
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // it cannot fail
	return log, servers, c
}

// puller pulls events with a limit of time.
func puller(t *testing.T, c *Client, o WatchOptions) func() (Event, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	next, stop := iter.Pull2(c.Watch(ctx, o))
	t.Cleanup(func() { cancel(); stop() })
	return func() (Event, error) {
		e, err, ok := next()
		if !ok {
			t.Fatal("the sequence has ended")
		}
		return e, err
	}
}

// expect pulls events and compares them.
func expect(t *testing.T, next func() (Event, error), want ...string) {
	t.Helper()
	for _, want := range want {
		e, err := next()
		if err != nil {
			t.Fatalf("%v, want %s", err, want)
		}
		got := fmt.Sprintf("%s %d %s", e.Kind, e.LSN, e.Lock)
		if x := e.Reset; x != nil {
			got = fmt.Sprintf("reset %d part %d last %v %s", e.LSN, x.Part, x.Last, x.Reason)
			if len(x.Locks) != 1 || x.Locks[0].Holder.Token != 5 {
				t.Errorf("locks: %+v", x.Locks)
			}
		}
		if strings.TrimSpace(got) != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestWatchGoesOnWhereItWas(t *testing.T) {
	log, servers, c := watchCluster(t, Options{})
	for c.servers.primary() == nil { // a busy machine may need more than one look
		c.servers.locate(t.Context())
	}
	log.Add("a")
	next := puller(t, c, WatchOptions{})
	expect(t, next, "reset 0 part 0 last false", "reset 1 part 1 last true")
	log.Add("b", "c")
	expect(t, next, "grant 2 b", "grant 3 c")
	if servers[0].Served() != 0 {
		t.Error("the primary was bothered while there are replicas")
	}
	for i := range 5 {
		lock := fmt.Sprintf("l%d", i)
		for _, s := range servers {
			s.CutAll()
		}
		log.Add(lock)
		expect(t, next, fmt.Sprintf("grant %d %s", 4+i, lock))
	}
	used := 0
	for _, s := range servers {
		s.Set(func() { s.Kept = 1 << 40 })
		if s.Served() > 0 {
			used++
		}
		s.CutAll()
	}
	if used < 2 {
		t.Errorf("%d servers were used", used)
	}
	expect(t, next, "reset 0 part 0 last false too old", "reset 8 part 1 last true too old")
	log.Add("z")
	expect(t, next, "grant 9 z")
}

// A watch that is cut off within a reset has half of another state. It asks for a whole one, and
// not for what came after the events that it had seen before.
func TestHalfAResetIsNotResumed(t *testing.T) {
	log, servers, c := watchCluster(t, Options{})
	log.Add("a", "b", "c")
	for _, s := range servers {
		s.Set(func() { s.Kept, s.Halves = 1<<40, 1 })
	}
	next := puller(t, c, WatchOptions{After: 1})
	for e, err := next(); ; e, err = next() {
		if err != nil || e.Reset == nil {
			t.Fatalf("got %+v, %v", e, err)
		}
		if e.Reset.Last {
			break
		}
	}
	resumed, asked := 0, 0
	for _, s := range servers {
		s.Set(func() {
			asked += len(s.Asks)
			for _, q := range s.Asks {
				if q.AfterLsn != nil {
					resumed++
				}
			}
		})
	}
	if resumed != 1 || asked < 2 {
		t.Errorf("of %d watches %d asked to go on: the first should, and none after half a reset", asked, resumed)
	}
}

func TestWatchResumes(t *testing.T) {
	log, servers, c := watchCluster(t, Options{})
	log.Add("a", "b", "c")
	expect(t, puller(t, c, WatchOptions{After: 1, Kinds: []EventKind{EventGrant, EventForceClear}, Lock: "x"}), "grant 2 b", "grant 3 c")
	expect(t, puller(t, c, WatchOptions{After: 3, Bookmark: time.Second, Prefix: "p/"}), "bookmark 3")
	for _, s := range servers {
		for _, q := range s.Asks {
			switch {
			case q.GetLock() == "x" && q.GetAfterLsn() == 1 && len(q.Kinds) == 2 && q.Kinds[1] == pb.EventKind_EVENT_KIND_FORCE_CLEAR:
			case q.GetPrefix() == "p/" && q.GetAfterLsn() == 3 && q.BookmarkMs == 1000 && len(q.Kinds) == 0:
			default:
				t.Errorf("asked %v", q)
			}
		}
	}
}

// The JSON of an event is that of the message that told it.
func TestEventsHaveTheirBodies(t *testing.T) {
	log, _, c := watchCluster(t, Options{})
	log.Add("a")
	next := puller(t, c, WatchOptions{Bookmark: time.Second})
	for _, want := range []string{"reset 0 ", "reset 1 ", "bookmark 1 ", "grant 2 b"} {
		e, err := next()
		if err != nil {
			t.Fatal(err)
		}
		b := e.Body()
		if got := fmt.Sprintf("%s %d %s", b.Kind, b.LSN, b.Lock); got != want || b.Status != "OK" || b.Kind == "grant" && b.Holder == nil {
			t.Errorf("got %+v, want %s", b, want)
		}
		if want == "bookmark 1 " {
			log.Add("b")
		}
	}
}

// TestWatchSaysPlainlyWhyItEnds: nobody listens there.
func TestWatchSaysPlainlyWhyItEnds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := New(Options{Endpoints: []string{l.Addr().String()}, Budget: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // nothing is in flight
	_, err = puller(t, c, WatchOptions{})()
	if err == nil || strings.Contains(err.Error(), "rpc error") || !strings.Contains(err.Error(), "check that the servers run: connection refused") {
		t.Errorf("got %v", err)
	}
}

func TestWatchEnds(t *testing.T) {
	_, servers, c := watchCluster(t, Options{Budget: 200 * time.Millisecond})
	_, err := puller(t, c, WatchOptions{Kinds: []EventKind{"nonsense"}})()
	if !errors.Is(err, wire.ErrInvalidArgument) {
		t.Errorf("a kind that is none: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for _, err = range c.Watch(ctx, WatchOptions{After: 1}) {
		t.Logf("the context ended: %v", err)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the context ended: %v", err)
	}
	for _, s := range servers {
		s.Set(func() {
			s.End = &pb.WatchResponse{Status: pb.Status_STATUS_SECONDARY_MODE, Primary: &pb.Primary{Client: c.opt.Endpoints[0]}}
		})
	}
	if _, err = puller(t, c, WatchOptions{After: 1})(); !errors.Is(err, wire.ErrSecondaryMode) || !strings.Contains(err.Error(), "let us watch") {
		t.Errorf("nobody serves: %v", err)
	}
	for _, s := range servers {
		s.Set(func() { s.End = &pb.WatchResponse{Status: pb.Status_STATUS_INVALID_ARGUMENT, Message: "no"} })
	}
	var call *CallError
	if _, err = puller(t, c, WatchOptions{Lock: "l"})(); !errors.Is(err, wire.ErrInvalidArgument) || !errors.As(err, &call) || call.Op != "watch" || call.Lock != "l" {
		t.Errorf("refused: %v", err)
	}
	for _, s := range servers {
		s.Set(func() { s.End = nil })
	}
	events := 0
	for _, err = range c.Watch(t.Context(), WatchOptions{}) {
		events++
		c.Close() //nolint:errcheck // it cannot fail
	}
	if events > 3 || !errors.Is(err, ErrClosed) {
		t.Errorf("closed in the loop: %d events, %v", events, err)
	}
	if _, err = puller(t, c, WatchOptions{})(); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestACutWatchIsResumed(t *testing.T) {
	log, servers, c := watchCluster(t, Options{})
	log.Add("a", "b")
	next := puller(t, c, WatchOptions{After: 1})
	expect(t, next, "grant 2 b")
	for _, s := range servers {
		s.Set(func() { s.End = &pb.WatchResponse{Status: pb.Status_STATUS_CANCELLED, Message: "you are slow", Lsn: 2} })
		s.CutAll()
	}
	time.AfterFunc(50*time.Millisecond, func() {
		for _, s := range servers {
			s.Set(func() { s.End = nil })
		}
		log.Add("c")
	})
	expect(t, next, "grant 3 c")
}

// quiet is a stream that says one thing and then nothing.
type quiet struct {
	grpc.ClientStream
	ctx  context.Context
	said bool
}

func (q *quiet) Recv() (*pb.WatchResponse, error) {
	if !q.said {
		q.said = true
		return &pb.WatchResponse{Status: pb.Status_STATUS_OK, Lsn: 9, Events: []*pb.Event{{Lsn: 9, Kind: pb.EventKind_EVENT_KIND_EXPIRE}}}, nil
	}
	<-q.ctx.Done()
	return nil, status.FromContextError(q.ctx.Err()).Err()
}

// silentStub is a server as its client sees it, which may be paused.
type silentStub struct {
	pb.LockServiceClient
	*watchtest.Server
	asked, watched int
}

func (s *silentStub) Watch(ctx context.Context, _ *pb.WatchRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[pb.WatchResponse], error) {
	s.Set(func() { s.watched++ })
	return &quiet{ctx: ctx}, nil
}

func (s *silentStub) Status(ctx context.Context, q *pb.StatusRequest, _ ...grpc.CallOption) (*pb.StatusResponse, error) {
	s.Set(func() { s.asked++ })
	return s.Server.Status(ctx, q)
}

// counts returns how often the server was asked, and how often a watch came.
func (s *silentStub) counts() (asked, watched int) {
	s.Set(func() { asked, watched = s.asked, s.watched })
	return asked, watched
}

// All watches leave a server that is silent, after one question; none leaves one
// that answers.
func TestWatchesLeaveASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Options{Endpoints: []string{"s1:1", "s2:1"}, Clock: &fakeClock{start: time.Now()}})
		if err != nil {
			t.Fatal(err)
		}
		var stubs []*silentStub
		for _, v := range c.servers.mu.all {
			s := &silentStub{Server: &watchtest.Server{}}
			v.stub, stubs = s, append(stubs, s)
		}
		const watches = 50
		var lsns sync.Map
		var running sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		for i := range watches {
			running.Go(func() {
				for e, err := range c.Watch(ctx, WatchOptions{After: 1}) {
					if err == nil {
						lsns.Store(i, e.LSN)
					}
				}
			})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		asked, first := stubs[0].counts()
		_, second := stubs[1].counts()
		if first+second != watches || first == 0 || second == 0 {
			t.Errorf("watches at the two servers: %d and %d", first, second)
		}
		// About one every two seconds for all, and not one for each of some 25 watches.
		if asked < 20 || asked > 60 {
			t.Errorf("%d questions in a minute", asked)
		}
		stubs[0].Set(func() { stubs[0].Dead = true; stubs[0].asked = 0 })
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if _, n := stubs[1].counts(); n != watches {
			t.Errorf("%d of %d watches are at the server that lives", n, watches)
		}
		if n, _ := stubs[0].counts(); n > 2 {
			t.Errorf("the silent one was asked %d times", n)
		}
		stop()
		running.Wait()
		for i := range watches {
			if lsn, _ := lsns.Load(i); lsn != cluster.LSN(9) {
				t.Errorf("watch %d got LSN %v", i, lsn)
			}
		}
		c.Close() //nolint:errcheck // it cannot fail
	})
}

// A server that is behind what was seen does not take a watch back.
func TestNoWatchGoesBack(t *testing.T) {
	log, servers, c := watchCluster(t, Options{})
	log.Add("a", "b", "c")
	for _, s := range servers[1:] {
		s.Set(func() { s.Kept, s.Stands = 1<<40, 1 })
	}
	for range 4 { // whichever server is asked first
		expect(t, puller(t, c, WatchOptions{After: 2}), "grant 3 c")
	}
}
