// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/primary/watch"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// maxTold is how many events or locks one message carries, and maxToldBytes where it
	// ends, behind the one that reaches it: well below the 4 MiB that a client takes by default.
	maxTold      = 1000
	maxToldBytes = 1 << 20
	// eventNumbers is what an event takes beside its texts, at most.
	eventNumbers = 256
	// defaultBookmark is the interval of bookmarks where none is asked for,
	// minBookmark the shortest that may be.
	defaultBookmark = 30 * time.Second
	minBookmark     = 100 * time.Millisecond
	// maxWatchers is how many watches one front end serves at a time. One whose client is
	// slow may keep its connection and 4,096 pending events.
	maxWatchers = 1 << 14
)

// Watch implements the service. Whatever ends it is a value, the last message of the
// stream; only a client that went away gets an error.
func (g *grpcServer) Watch(q *pb.WatchRequest, stream grpc.ServerStreamingServer[pb.WatchResponse]) error {
	ctx := stream.Context()
	return streamEnded(ctx, g.s.watch(ctx, q, nil, func(r *pb.WatchResponse) error {
		if r.GetReset_() == nil {
			return stream.Send(r)
		}
		sent := make(chan error, 1)
		go func() { sent <- stream.Send(r) }()
		return g.s.taken(ctx, sent)
	}))
}

// errDeaf ends a watch whose client leaves the reset that it asked for: it may be of the
// whole table, and is kept for nobody.
var errDeaf = status.Error(codes.ResourceExhausted, "the reset was not read: the watch is ended")

// taken waits until a piece of a reset was sent, but not for ever.
func (s *service) taken(ctx context.Context, sent <-chan error) error {
	t := time.NewTimer(s.resetWait)
	defer t.Stop()
	select {
	case err := <-sent: // closed says the same as nil
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return errDeaf
	}
}

// streamEnded is how a stream ends: where the client went away, with that.
func streamEnded(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	return err
}

// watching is one watch of a client. It belongs to one goroutine, so a client that
// does not read holds up nothing but its own watch.
type watching struct {
	s *service
	o watch.Options
	w *watch.Watcher // nil before the first and between two
	// large says that what is watched is more than a page.
	large bool
	// told is up to where the client was told everything, here or elsewhere.
	told cluster.LSN
	send func(*pb.WatchResponse) error
}

// watch serves a watch until it ends: with a message that says why, with an error
// of send, or with ctx. Begun, unless it is nil, is called when the watch has begun: it
// may have nothing to send for long.
func (s *service) watch(ctx context.Context, q *pb.WatchRequest, begun func() error, send func(*pb.WatchResponse) error) error {
	x := &watching{s: s, send: send}
	var err error
	if x.o, err = watchOptions(q); err != nil {
		return x.end(0, cluster.StatusInvalidArgument, err.Error())
	}
	defer s.watchers.Add(-1)
	if s.watchers.Add(1) > maxWatchers {
		return x.end(0, cluster.StatusSecondaryMode, fmt.Sprintf("this server serves %d watches already: watch at another one, or later", maxWatchers))
	}
	defer x.close()
	over, err := x.begin(ctx)
	if over || err != nil {
		return err
	}
	if begun != nil {
		if err := begun(); err != nil {
			return err
		}
	}
	every := defaultBookmark
	if q.GetBookmarkMs() > 0 {
		every = max(minBookmark, wire.Millis(q.GetBookmarkMs()))
	}
	bookmark := time.NewTicker(every)
	defer bookmark.Stop()
	for !over && err == nil {
		due := false
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-x.w.Wake():
		case <-bookmark.C:
			due = true
		}
		over, err = x.tell(ctx, due)
	}
	return err
}

// watchOptions is the question as the hub takes it.
func watchOptions(q *pb.WatchRequest) (o watch.Options, err error) {
	switch t := q.GetTarget().(type) {
	case *pb.WatchRequest_Lock:
		o.Lock = cluster.LockName(t.Lock)
		if err := o.Lock.Validate(); err != nil {
			return o, err
		}
	case *pb.WatchRequest_Prefix:
		if o.Prefix = t.Prefix; len(o.Prefix) > cluster.MaxLockName {
			return o, fmt.Errorf("a prefix has at most %d bytes", cluster.MaxLockName)
		}
	}
	kinds := make([]locktable.Kind, 0, len(q.GetKinds()))
	for _, k := range q.GetKinds() {
		if k < 0 || k > 255 || !locktable.Kind(k).Known() {
			return o, fmt.Errorf("event kind %d is not known here", k)
		}
		kinds = append(kinds, locktable.Kind(k))
	}
	o.Kinds = watch.KindsOf(kinds...)
	if q.AfterLsn != nil {
		o.Resume, o.After = true, cluster.LSN(q.GetAfterLsn())
	}
	return o, nil
}

// begin resumes the watch, or begins it with a reset.
func (x *watching) begin(ctx context.Context) (over bool, err error) {
	if !x.o.Resume {
		return x.reset(ctx, "")
	}
	x.told = x.o.After
	w, end := x.s.b.Hub().Watch(x.o)
	if end != nil {
		return x.ended(ctx, 0, end)
	}
	x.w = w
	return false, nil
}

func (x *watching) close() {
	if x.w != nil {
		x.w.Close()
		x.w = nil
	}
}

// tell tells what has come; a bookmark, if nothing has and one is due.
func (x *watching) tell(ctx context.Context, due bool) (over bool, err error) {
	b := x.w.Take()
	x.told = b.LSN
	r := &pb.WatchResponse{Status: pb.Status_STATUS_OK, Epoch: uint64(b.Epoch)}
	events := b.Events
	for n := portion(events); n < len(events); n = portion(events) {
		part := events[:n]
		// What matches up to the last event of the part was sent with it.
		if err := x.send(&pb.WatchResponse{Status: r.Status, Epoch: r.Epoch, Lsn: part[n-1].GetLsn(), Events: part}); err != nil {
			return true, err
		}
		events = events[n:]
	}
	if len(events) > 0 || due && b.End == nil {
		r.Events, r.Lsn = events, uint64(b.LSN)
		if err := x.send(r); err != nil {
			return true, err
		}
	}
	if b.End != nil {
		return x.ended(ctx, b.LSN, b.End)
	}
	return false, nil
}

// portion is how many of these events go into one message.
func portion(events []*pb.Event) (n int) {
	for size := 0; n < len(events) && n < maxTold && size < maxToldBytes; n++ {
		e := events[n]
		h := e.GetHolder()
		size += eventNumbers + len(e.GetLock()) + len(e.GetClientId()) + len(h.GetHost()) + len(h.GetCommand()) +
			len(e.GetMetadata()) + len(e.GetFile()) + len(e.GetActor()) + len(e.GetReason())
	}
	return n
}

// ended ends the watch, or begins it anew where nothing but events is missing.
func (x *watching) ended(ctx context.Context, at cluster.LSN, end *watch.End) (over bool, err error) {
	if end.Gap {
		return x.reset(ctx, end.Message)
	}
	return true, x.end(at, end.Status, end.Message)
}

// end sends the last message. What was told is told up to at; 0 = nothing was.
func (x *watching) end(at cluster.LSN, status cluster.Status, message string) error {
	r := &pb.WatchResponse{Status: pb.Status(status), Message: message, Lsn: uint64(at)}
	r.Primary, r.RetryAfterMs = x.s.advice(status)
	return x.send(r)
}
