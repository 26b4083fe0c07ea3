// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// sharedText is a file as all servers see it.
type sharedText struct {
	mu         sync.Mutex
	generation uint64
	text       string
	primary    string // address
	changed    chan struct{}
	cut        bool          // streams break off
	hole       int           // so many bytes are left out behind the first piece of a stream
	tooFast    int           // so many more follows are refused as LIMITED
	after      time.Duration // is when they say to come again; 0 = they say nothing
}

// limited takes one of the refusals that are left, nil if there is none.
func (f *sharedText) limited() *pb.ReadFileResponse {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tooFast == 0 {
		return nil
	}
	f.tooFast--
	f.cut = f.cut && f.tooFast > 0 // so one that goes on is refused first
	return &pb.ReadFileResponse{Status: pb.Status_STATUS_LIMITED, Message: "too much", RetryAfterMs: f.after.Milliseconds()}
}

// refusals returns how many are left.
func (f *sharedText) refusals() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tooFast
}

func (f *sharedText) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *sharedText) get() (generation uint64, text, primary string, cut bool, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.generation, f.text, f.primary, f.cut, f.changed
}

func (f *sharedText) leaveOut() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int64(f.hole)
}

// fileServer serves reads of one file while it is primary.
type fileServer struct {
	pb.UnimplementedLockServiceServer
	addr string
	file *sharedText
}

func (s *fileServer) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	_, _, primary, _, _ := s.file.get()
	r := &pb.StatusResponse{Status: pb.Status_STATUS_OK, Role: pb.Role_ROLE_REPLICA, Epoch: 1, Primary: &pb.Primary{Id: 1, Client: primary}}
	if primary == s.addr {
		r.Role = pb.Role_ROLE_PRIMARY
	}
	return r, nil
}

func (s *fileServer) ReadFile(_ context.Context, q *pb.ReadFileRequest) (*pb.ReadFileResponse, error) {
	generation, text, primary, _, _ := s.file.get()
	if primary != s.addr {
		return nil, &wire.Error{Status: cluster.StatusSecondaryMode, Primary: &wire.Primary{Client: primary}}
	}
	if q.GetOffset() > int64(len(text)) {
		return &pb.ReadFileResponse{Status: pb.Status_STATUS_OFFSET_MISMATCH, Message: "behind the end"}, nil
	}
	return &pb.ReadFileResponse{Status: pb.Status_STATUS_OK, Generation: generation, Offset: q.GetOffset(), Data: []byte(text[q.GetOffset():]), End: int64(len(text)), Lsn: 9}, nil
}

func (s *fileServer) FollowFile(q *pb.FollowFileRequest, stream grpc.ServerStreamingServer[pb.ReadFileResponse]) error {
	if r := s.file.limited(); r != nil {
		return stream.Send(r)
	}
	generation, text, _, _, _ := s.file.get()
	at := int64(len(text))
	if q.Offset != nil {
		at = q.GetOffset()
	}
	if q.GetGeneration() != 0 && q.GetGeneration() != generation {
		return stream.Send(&pb.ReadFileResponse{Status: pb.Status_STATUS_INVALID_ARGUMENT, Message: "rotated away"})
	}
	following := generation
	for first := true; ; first = false {
		generation, text, primary, cut, changed := s.file.get()
		switch {
		case primary != s.addr:
			return stream.Send(&pb.ReadFileResponse{Status: pb.Status_STATUS_SECONDARY_MODE, Primary: &pb.Primary{Client: primary}})
		case cut:
			return errors.New("cut")
		case generation != following:
			following, at, first = generation, 0, true
		}
		if first || at < int64(len(text)) {
			r := &pb.ReadFileResponse{Status: pb.Status_STATUS_OK, Generation: generation, Offset: at, Data: []byte(text[at:]), End: int64(len(text))}
			if err := stream.Send(r); err != nil {
				return err
			}
			at = int64(len(text))
			if hole := s.file.leaveOut(); hole > 0 {
				r.Offset, r.Data, r.End = at+hole, []byte("x"), at+hole+1
				if err := stream.Send(r); err != nil {
					return err
				}
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// fileWorld is two servers and a client.
func fileWorld(t *testing.T) (*sharedText, []string, *Client) {
	t.Helper()
	f := &sharedText{generation: 1, text: "one\n", changed: make(chan struct{})}
	var addrs []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer()
		pb.RegisterLockServiceServer(s, &fileServer{addr: l.Addr().String(), file: f})
		go s.Serve(l) //nolint:errcheck // ends with Stop
		t.Cleanup(s.Stop)
		addrs = append(addrs, l.Addr().String())
	}
	f.primary = addrs[0]
	c, err := New(Options{Endpoints: addrs, Budget: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return f, addrs, c
}

// reads fails the test unless the next bytes are these.
func reads(t *testing.T, f *Follower, text string) {
	t.Helper()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(f, got); err != nil || string(got) != text {
		t.Fatalf("read %q, %v, want %q", got, err, text)
	}
}

func TestReadFile(t *testing.T) {
	file, addrs, c := fileWorld(t)
	p, err := c.ReadFile(t.Context(), "f", ReadOptions{Offset: 1})
	if err != nil || string(p.Data) != "ne\n" || p.Offset != 1 || p.End != 4 || p.Generation != 1 || p.LSN != 9 {
		t.Errorf("read %+v, %v", p, err)
	}
	file.set(func() { file.primary = addrs[1] })
	if p, err = c.ReadFile(t.Context(), "f", ReadOptions{}); err != nil || string(p.Data) != "one\n" {
		t.Errorf("after a failover: %+v, %v", p, err)
	}
	if _, err = c.ReadFile(t.Context(), "f", ReadOptions{Offset: 5}); !errors.Is(err, wire.ErrOffsetMismatch) {
		t.Errorf("behind the end: %v", err)
	}
	if _, err = c.ReadFile(t.Context(), "f", ReadOptions{Limit: cluster.MaxAppend + 1}); !errors.Is(err, wire.ErrInvalidArgument) {
		t.Errorf("too much: %v", err)
	}
}

// TestFollowGoesOnWhereItWas: over broken streams, failovers and rotations each byte is
// read once.
func TestFollowGoesOnWhereItWas(t *testing.T) {
	file, addrs, c := fileWorld(t)
	f := c.Follow(t.Context(), "f", FollowOptions{})
	defer f.Close()
	reads(t, f, "one\n")
	file.set(func() { file.text += "two\n" })
	reads(t, f, "tw") // the rest waits here
	file.set(func() { file.cut = true })
	reads(t, f, "o\n")
	file.set(func() { file.cut, file.primary, file.text = false, addrs[1], file.text+"three\n" })
	reads(t, f, "three\n")
	if g, at := f.Place(); g != 1 || at != 14 {
		t.Errorf("at %d of generation %d", at, g)
	}
	file.set(func() { file.generation, file.text = 2, "four\n" })
	_, err := f.Read(make([]byte, 1))
	if r, ok := errors.AsType[*RotatedError](err); !ok || r.Generation != 2 {
		t.Fatalf("rotated: %v", err)
	}
	reads(t, f, "four\n")
	end := c.Follow(t.Context(), "f", FollowOptions{Offset: -1})
	go file.set(func() { file.text += "five\n" })
	reads(t, f, "five\n")
	if n, err := end.Read(make([]byte, 0)); n != 0 || err != nil {
		t.Errorf("empty read: %d, %v", n, err)
	}
	end.Close()
	if _, err := end.Read(make([]byte, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestFollowTakesNoOtherPlace: bytes of another offset than the next are not read as if they followed.
func TestFollowTakesNoOtherPlace(t *testing.T) {
	file, _, c := fileWorld(t)
	file.set(func() { file.text, file.hole = "one\ntwo\n", 2 })
	f := c.Follow(t.Context(), "f", FollowOptions{})
	defer f.Close()
	got, err := io.ReadAll(io.LimitReader(f, 9))
	if err == nil || !strings.Contains(err.Error(), "sent offset 10") || string(got) != "one\ntwo\n" {
		t.Errorf("read %q, %v", got, err)
	}
}

// TestFollowEndsWhereBytesAreMissing: a generation that went while nobody followed is an error.
func TestFollowEndsWhereBytesAreMissing(t *testing.T) {
	file, _, c := fileWorld(t)
	f := c.Follow(t.Context(), "f", FollowOptions{Generation: 1})
	defer f.Close()
	reads(t, f, "one\n")
	file.set(func() { file.cut = true })
	file.set(func() { file.cut, file.generation, file.text = false, 2, "" })
	var err error
	for err == nil { // whether the stream met the rotation or not
		if _, err = f.Read(make([]byte, 9)); err != nil {
			if _, ok := errors.AsType[*RotatedError](err); ok {
				return
			}
		}
	}
	if !errors.Is(err, wire.ErrInvalidArgument) || !strings.Contains(err.Error(), "rotated away") {
		t.Errorf("ended by %v", err)
	}
}

func TestFollowGivesUp(t *testing.T) {
	file, _, c := fileWorld(t)
	c.opt.Budget = 300 * time.Millisecond
	file.set(func() { file.cut = true })
	f := c.Follow(t.Context(), "f", FollowOptions{})
	if _, err := f.Read(make([]byte, 9)); err == nil || !strings.Contains(err.Error(), "no primary let us follow") {
		t.Errorf("ended by %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	f = c.Follow(ctx, "f", FollowOptions{})
	cancel()
	if _, err := f.Read(make([]byte, 9)); !errors.Is(err, context.Canceled) {
		t.Errorf("ended by %v", err)
	}
}

// TestFollowThatIsTooFastWaits when a server says so, for longer than its budget, at the beginning and when it goes on after a stream that
// broke. A count that is full ends it.
func TestFollowThatIsTooFastWaits(t *testing.T) {
	file, _, c := fileWorld(t)
	c.opt.Budget = 300 * time.Millisecond
	limit := func(times int, after time.Duration) { file.set(func() { file.tooFast, file.after = times, after }) }
	limit(10, 100*time.Millisecond)
	f := c.Follow(t.Context(), "f", FollowOptions{})
	defer f.Close()
	began := time.Now()
	reads(t, f, "one\n")
	if took := time.Since(began); took < time.Second || file.refusals() != 0 {
		t.Errorf("it waited %v, and %d refusals are left", took, file.refusals())
	}
	file.set(func() { file.tooFast, file.cut, file.text = 5, true, file.text+"two\n" })
	reads(t, f, "two\n")
	if file.refusals() != 0 {
		t.Errorf("%d refusals are left", file.refusals())
	}
	limit(5, 0)
	full := c.Follow(t.Context(), "f", FollowOptions{})
	defer full.Close()
	if _, err := full.Read(make([]byte, 9)); !errors.Is(err, ErrLimited) || file.refusals() != 4 {
		t.Errorf("a count that is full: %v, and %d refusals are left", err, file.refusals())
	}
}

// hooked counts what is to be done when a context ends.
type hooked struct {
	context.Context
	hooks atomic.Int64
}

// AfterFunc is asked by package context.
func (h *hooked) AfterFunc(f func()) (stop func() bool) {
	h.hooks.Add(1)
	unhook := context.AfterFunc(h.Context, f)
	return func() bool {
		was := unhook()
		if was {
			h.hooks.Add(-1)
		}
		return was
	}
}

// Value hides that it is a context of package context, whose hooks nobody counts.
func (h *hooked) Value(any) any { return nil }

// A Follower that was closed is no more: a program that reads a piece of a file now and
// then would otherwise leave something behind each time, until its Client is closed.
func TestClosedFollowerLeavesNothing(t *testing.T) {
	_, _, c := fileWorld(t)
	life := &hooked{Context: c.life}
	c.life = life
	for range 3 {
		f := c.Follow(t.Context(), "f", FollowOptions{})
		if n, err := f.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := life.hooks.Load(); n != 0 {
		t.Errorf("of 3 followers that were closed %d wait for the end of the client", n)
	}
}
