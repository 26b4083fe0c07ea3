// SPDX-License-Identifier: Apache-2.0

// Package watchtest has servers for the tests of clients that watch: they serve one log of
// events, break off, forget, and fall silent as a test wants.
package watchtest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Log is what happened, the same for all servers: event i has LSN i+1.
type Log struct {
	mu      sync.Mutex
	events  []*pb.Event
	changed chan struct{}
	joined  map[uint64]bool // events that come in one message with the next
}

// Add adds a grant of each lock, each in a message of its own.
func (l *Log) Add(locks ...string) {
	for _, lock := range locks {
		l.Tell(&pb.Event{Kind: pb.EventKind_EVENT_KIND_GRANT, Lock: lock})
	}
}

// Tell adds events, which come in one message.
func (l *Log) Tell(events ...*pb.Event) {
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

// joins reports whether an event comes with the next.
func (l *Log) joins(lsn uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.joined[lsn]
}

// after returns the events after an LSN, and what is closed when more come.
func (l *Log) after(lsn uint64) ([]*pb.Event, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events[min(lsn, uint64(len(l.events))):], l.changed
}

// Server serves watches of everything, one event in each message.
type Server struct {
	pb.UnimplementedLockServiceServer
	log  *Log
	role pb.Role
	mu   sync.Mutex
	cut  chan struct{} // closed: all watches are cut off

	// Guarded by mu: use Set.
	Asks   []*pb.WatchRequest // that came
	Kept   uint64             // events up to here are forgotten
	Stands uint64             // unless it is 0, resets are of this LSN
	Halves int                // so many resets end after the first part
	End    *pb.WatchResponse  // instead of serving
	Dead   bool               // does not answer any more
}

// Set calls f, which may read and change the fields.
func (s *Server) Set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// CutAll breaks all watches off.
func (s *Server) CutAll() {
	s.Set(func() {
		close(s.cut)
		s.cut = make(chan struct{})
	})
}

// Served is how many watches came.
func (s *Server) Served() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.Asks)
}

// Status implements pb.LockServiceServer.
func (s *Server) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	s.mu.Lock()
	dead := s.Dead
	s.mu.Unlock()
	if dead {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return &pb.StatusResponse{Role: s.role, Epoch: 1}, nil
}

// Watch implements pb.LockServiceServer.
func (s *Server) Watch(q *pb.WatchRequest, stream grpc.ServerStreamingServer[pb.WatchResponse]) error {
	s.mu.Lock()
	s.Asks = append(s.Asks, q)
	kept, end, cut, stands, half := s.Kept, s.End, s.cut, s.Stands, s.Halves > 0
	s.Halves--
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
		var batch []*pb.Event
		for _, e := range events {
			at = e.Lsn
			if batch = append(batch, e); s.log.joins(at) {
				continue
			}
			if err := stream.Send(&pb.WatchResponse{Status: pb.Status_STATUS_OK, Lsn: at, Events: batch}); err != nil {
				return err
			}
			batch = nil
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

// Serve serves a primary and two replicas of one log at real connections, until the test ends.
func Serve(t *testing.T) (log *Log, servers []*Server, endpoints []string) {
	t.Helper()
	log = &Log{changed: make(chan struct{}), joined: map[uint64]bool{}}
	for i := range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s, g := &Server{log: log, cut: make(chan struct{})}, grpc.NewServer()
		if i == 0 {
			s.role = pb.Role_ROLE_PRIMARY
		}
		pb.RegisterLockServiceServer(g, s)
		go g.Serve(l) //nolint:errcheck // it is stopped
		t.Cleanup(g.Stop)
		servers, endpoints = append(servers, s), append(endpoints, l.Addr().String())
	}
	return log, servers, endpoints
}
