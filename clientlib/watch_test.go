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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// watchLog is what happened, the same for all servers: event i has LSN i+1.
type watchLog struct {
	mu      sync.Mutex
	events  []*pb.Event
	changed chan struct{}
	joined  map[uint64]bool // events that come in one message with the next
}

func newWatchLog() *watchLog {
	return &watchLog{changed: make(chan struct{}), joined: map[uint64]bool{}}
}

func (l *watchLog) add(locks ...string) {
	for _, lock := range locks {
		l.tell(&pb.Event{Kind: pb.EventKind_EVENT_KIND_GRANT, Lock: lock})
	}
}

// tell adds events, which come in one message.
func (l *watchLog) tell(events ...*pb.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, e := range events {
		e.Lsn, e.Epoch = uint64(len(l.events)+1), 1
		if e.Kind == pb.EventKind_EVENT_KIND_GRANT {
			e.Token = e.Lsn
		}
		l.events = append(l.events, e)
		l.joined[e.Lsn] = i < len(events)-1
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// joins says that an event comes with the next.
func (l *watchLog) joins(lsn uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.joined[lsn]
}

func (l *watchLog) after(lsn uint64) ([]*pb.Event, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events[min(lsn, uint64(len(l.events))):], l.changed
}

// watchServer serves watches of everything, one event in each message.
type watchServer struct {
	pb.UnimplementedLockServiceServer
	log    *watchLog
	role   pb.Role
	mu     sync.Mutex
	asks   []*pb.WatchRequest
	kept   uint64            // events up to here are forgotten
	stands uint64            // unless it is 0, resets are of this LSN
	halves int               // so many resets end behind the first part
	end    *pb.WatchResponse // instead of serving
	cut    chan struct{}     // closed: whoever watches is cut off
	dead   bool              // says nothing any more
}

func (s *watchServer) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// cutAll breaks all watches off.
func (s *watchServer) cutAll() {
	s.set(func() {
		close(s.cut)
		s.cut = make(chan struct{})
	})
}

func (s *watchServer) served() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asks)
}

func (s *watchServer) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	s.mu.Lock()
	dead := s.dead
	s.mu.Unlock()
	if dead {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return &pb.StatusResponse{Role: s.role, Epoch: 1}, nil
}

func (s *watchServer) Watch(q *pb.WatchRequest, stream grpc.ServerStreamingServer[pb.WatchResponse]) error {
	s.mu.Lock()
	s.asks = append(s.asks, q)
	kept, end, cut, stands, half := s.kept, s.end, s.cut, s.stands, s.halves > 0
	s.halves--
	s.mu.Unlock()
	if end != nil {
		return stream.Send(end)
	}
	at := q.GetAfterLsn()
	if q.AfterLsn == nil || at < kept {
		reason := ""
		if q.AfterLsn != nil {
			reason = "too old"
		}
		events, _ := s.log.after(0)
		if at = uint64(len(events)); stands > 0 {
			at = stands
		}
		for part := range uint32(2) {
			if half && part == 1 {
				return status.Error(codes.Unavailable, "cut off")
			}
			r := &pb.WatchResponse{Status: pb.Status_STATUS_OK, Lsn: at, Reset_: &pb.Reset{Part: part, Last: part == 1, Reason: reason}}
			r.Reset_.Locks = []*pb.Lock{{Name: fmt.Sprintf("part %d", part), Grant: &pb.Grant{Token: 5, ClientId: "c"}}}
			if half {
				r.Reset_.Locks[0].Name = "half"
			}
			if err := stream.Send(r); err != nil {
				return err
			}
		}
	}
	if q.BookmarkMs > 0 {
		if err := stream.Send(&pb.WatchResponse{Status: pb.Status_STATUS_OK, Lsn: at}); err != nil {
			return err
		}
	}
	for {
		events, changed := s.log.after(at)
		var told []*pb.Event
		for _, e := range events {
			at = e.Lsn
			if told = append(told, e); s.log.joins(at) {
				continue
			}
			if err := stream.Send(&pb.WatchResponse{Status: pb.Status_STATUS_OK, Lsn: at, Events: told}); err != nil {
				return err
			}
			told = nil
		}
		select {
		case <-changed:
		case <-cut:
			return status.Error(codes.Unavailable, "cut off")
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// watchCluster serves a primary and two replicas over real connections.
func watchCluster(t *testing.T, o Options) (*watchLog, []*watchServer, *Client) {
	t.Helper()
	log := newWatchLog()
	var all []*watchServer
	for i := range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s, g := &watchServer{log: log, cut: make(chan struct{})}, grpc.NewServer()
		if i == 0 {
			s.role = pb.Role_ROLE_PRIMARY
		}
		pb.RegisterLockServiceServer(g, s)
		go g.Serve(l) //nolint:errcheck // it is stopped
		t.Cleanup(g.Stop)
		all, o.Endpoints = append(all, s), append(o.Endpoints, l.Addr().String())
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // it cannot fail
	return log, all, c
}

// puller pulls events with a limit of time.
func puller(t *testing.T, c *Client, o WatchOptions) func() (Event, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
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
	log.add("a")
	next := puller(t, c, WatchOptions{})
	expect(t, next, "reset 0 part 0 last false", "reset 1 part 1 last true")
	log.add("b", "c")
	expect(t, next, "grant 2 b", "grant 3 c")
	if servers[0].served() != 0 {
		t.Error("the primary was bothered while there are replicas")
	}
	for i := range 5 {
		lock := fmt.Sprintf("l%d", i)
		for _, s := range servers {
			s.cutAll()
		}
		log.add(lock)
		expect(t, next, fmt.Sprintf("grant %d %s", 4+i, lock))
	}
	used := 0
	for _, s := range servers {
		s.set(func() { s.kept = 1 << 40 })
		if s.served() > 0 {
			used++
		}
		s.cutAll()
	}
	if used < 2 {
		t.Errorf("%d servers were used", used)
	}
	expect(t, next, "reset 0 part 0 last false too old", "reset 8 part 1 last true too old")
	log.add("z")
	expect(t, next, "grant 9 z")
}

// A watch that is cut off within a reset has half of another state. It asks for a whole one, and
// not for what came after the events that it had seen before.
func TestHalfAResetIsNotResumed(t *testing.T) {
	log, servers, c := watchCluster(t, Options{})
	log.add("a", "b", "c")
	for _, s := range servers {
		s.set(func() { s.kept, s.halves = 1<<40, 1 })
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
		s.set(func() {
			asked += len(s.asks)
			for _, q := range s.asks {
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
	log.add("a", "b", "c")
	expect(t, puller(t, c, WatchOptions{After: 1, Kinds: []EventKind{EventGrant, EventForceClear}, Lock: "x"}), "grant 2 b", "grant 3 c")
	expect(t, puller(t, c, WatchOptions{After: 3, Bookmark: time.Second, Prefix: "p/"}), "bookmark 3")
	for _, s := range servers {
		for _, q := range s.asks {
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
	log.add("a")
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
			log.add("b")
		}
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
		s.set(func() {
			s.end = &pb.WatchResponse{Status: pb.Status_STATUS_SECONDARY_MODE, Primary: &pb.Primary{Grpc: c.opt.Endpoints[0]}}
		})
	}
	if _, err = puller(t, c, WatchOptions{After: 1})(); !errors.Is(err, wire.ErrSecondaryMode) || !strings.Contains(err.Error(), "let us watch") {
		t.Errorf("nobody serves: %v", err)
	}
	for _, s := range servers {
		s.set(func() { s.end = &pb.WatchResponse{Status: pb.Status_STATUS_INVALID_ARGUMENT, Message: "no"} })
	}
	var call *CallError
	if _, err = puller(t, c, WatchOptions{Lock: "l"})(); !errors.Is(err, wire.ErrInvalidArgument) || !errors.As(err, &call) || call.Op != "watch" || call.Lock != "l" {
		t.Errorf("refused: %v", err)
	}
	for _, s := range servers {
		s.set(func() { s.end = nil })
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
	log.add("a", "b")
	next := puller(t, c, WatchOptions{After: 1})
	expect(t, next, "grant 2 b")
	for _, s := range servers {
		s.set(func() { s.end = &pb.WatchResponse{Status: pb.Status_STATUS_CANCELLED, Message: "you are slow", Lsn: 2} })
		s.cutAll()
	}
	time.AfterFunc(50*time.Millisecond, func() {
		for _, s := range servers {
			s.set(func() { s.end = nil })
		}
		log.add("c")
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
	*watchServer
	asked, watched int
}

func (s *silentStub) Watch(ctx context.Context, _ *pb.WatchRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[pb.WatchResponse], error) {
	s.set(func() { s.watched++ })
	return &quiet{ctx: ctx}, nil
}

func (s *silentStub) Status(ctx context.Context, q *pb.StatusRequest, _ ...grpc.CallOption) (*pb.StatusResponse, error) {
	s.set(func() { s.asked++ })
	return s.watchServer.Status(ctx, q)
}

// All watches leave a server that is silent, after one question; none leaves one
// that answers.
func TestWatchesLeaveASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Options{Endpoints: []string{"passthrough:///s1", "passthrough:///s2"}, Clock: &fakeClock{start: time.Now()}})
		if err != nil {
			t.Fatal(err)
		}
		var stubs []*silentStub
		for _, v := range c.servers.mu.all {
			s := &silentStub{watchServer: &watchServer{}}
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
		first := [2]int{stubs[0].watched, stubs[1].watched}
		if first[0]+first[1] != watches || first[0] == 0 || first[1] == 0 {
			t.Errorf("watches at the two servers: %v", first)
		}
		if n := stubs[0].asked; n < 20 || n > 40 {
			t.Errorf("%d questions in a minute", n)
		}
		stubs[0].set(func() { stubs[0].dead = true; stubs[0].asked = 0 })
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if stubs[1].watched != watches {
			t.Errorf("%d of %d watches are at the server that lives", stubs[1].watched, watches)
		}
		if stubs[0].asked > 2 {
			t.Errorf("the silent one was asked %d times", stubs[0].asked)
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
