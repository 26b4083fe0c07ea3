// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/watch"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// maxMessageItems is how many events or locks one message carries. MaxMessageBytes is the
	// size at which a message ends, after the item that reaches it: well below the 4 MiB that a
	// client takes by default.
	maxMessageItems = 1000
	MaxMessageBytes = 1 << 20
	// eventNumbers is what an event takes beside its texts, at most.
	eventNumbers = 256
	// defaultBookmark is the interval of bookmarks where none is asked for, MinBookmark the
	// shortest.
	defaultBookmark = 30 * time.Second
	MinBookmark     = 100 * time.Millisecond
	// maxWatches is how many watches are served at a time. One whose client is slow may keep
	// its connection and 4,096 pending events.
	maxWatches = 1 << 14
	// resetWait is how long a client may leave a piece of a reset unread.
	resetWait = 30 * time.Second
)

// ErrResetNotRead ends a watch whose client does not read the reset that it asked for: that may
// be the whole table, and is not kept.
var ErrResetNotRead = errors.New("the reset was not read: the watch is ended")

// WaitSent waits until a piece of a reset was sent: until sent is closed, or yields the error of
// sending. It returns ErrResetNotRead if that takes longer than Options.ResetWait.
func (s *Service) WaitSent(ctx context.Context, sent <-chan error) error {
	t := time.NewTimer(s.opt.ResetWait)
	defer t.Stop()
	select {
	case err := <-sent: // closed says the same as nil
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return ErrResetNotRead
	}
}

// watching is one watch of a client. It belongs to one goroutine, so a client that
// does not read holds up nothing but its own watch.
type watching struct {
	s *Service
	o watch.Options
	w *watch.Watcher // nil before the first and between two
	// large reports whether what is watched is more than a page.
	large bool
	// sent is the LSN up to which the client has everything, from here or elsewhere.
	sent cluster.LSN
	send func(*pb.WatchResponse) error
}

// Watch serves a watch until it ends: with a message that says why, with an error of send or
// begun, or with ctx. Begun, unless it is nil, is called once the watch has begun, after the reset
// with which it may begin: there may be nothing to send for long.
func (s *Service) Watch(ctx context.Context, q *pb.WatchRequest, begun func() error, send func(*pb.WatchResponse) error) error {
	x := &watching{s: s, send: send}
	var err error
	if x.o, err = watchOptions(q); err != nil {
		return x.end(0, cluster.StatusInvalidArgument, err.Error())
	}
	asked := ctx // other goroutines call check, also while ctx is set below
	check := func() error {
		allowed := s.permission(asked)
		if x.o.Lock != "" {
			return allowed.Check(access.Read, string(x.o.Lock), "")
		}
		return allowed.CheckPrefix(access.Read, x.o.Prefix)
	}
	allowed, end := s.permission(asked), func() {}
	if err = allowed.count(asked, 0, check); err == nil {
		end, err = allowed.enterWatch()
	}
	if err != nil {
		return x.refuse(err)
	}
	defer end()
	if why, _ := s.own.Refuses(x.o.Lock, ""); why != "" { // it would show nothing, for ever
		return x.end(0, cluster.StatusWrongCell, why)
	}
	ctx, leave := s.WhilePermitted(ctx, check)
	defer leave()
	err = s.watch(ctx, x, q, begun)
	if e, ok := errors.AsType[*wire.Error](err); ok && ctx.Err() != nil {
		return x.end(0, e.Status, e.Message) // it is not permitted any more
	}
	return err
}

// watch is Watch for one that is permitted.
func (s *Service) watch(ctx context.Context, x *watching, q *pb.WatchRequest, begun func() error) error {
	defer s.watchers.Add(-1)
	if s.watchers.Add(1) > int64(s.opt.MaxWatches) {
		s.opt.Tallies.Count(TallyLimited, "watches", "")
		return x.end(0, cluster.StatusSecondaryMode, fmt.Sprintf("this server serves %d watches already: watch at another one, or later", s.opt.MaxWatches))
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
		every = max(MinBookmark, wire.Millis(q.GetBookmarkMs()))
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
		over, err = x.sendEvents(ctx, due)
	}
	return err
}

// watchOptions returns what a request asks for, as the hub takes it. Its errors are for the client.
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
		x.s.opt.Tallies.Count(TallyReset, "begin", "")
		return x.reset(ctx, "")
	}
	x.sent = x.o.After
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

// sendEvents sends the events that have come; a bookmark, if none have and one is due.
func (x *watching) sendEvents(ctx context.Context, due bool) (over bool, err error) {
	b := x.w.Take()
	x.sent = b.LSN
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

// portion returns how many of these events go into one message.
func portion(events []*pb.Event) (n int) {
	for size := 0; n < len(events) && n < maxMessageItems && size < MaxMessageBytes; n++ {
		e := events[n]
		h := e.GetHolder()
		size += eventNumbers + len(e.GetLock()) + len(e.GetClientId()) + len(h.GetUser()) + len(h.GetHost()) + len(h.GetCommand()) + len(h.GetIdentity()) +
			len(e.GetMetadata()) + len(e.GetFile()) + len(e.GetActor()) + len(e.GetReason())
	}
	return n
}

// ended ends the watch, or begins it anew where nothing but events is missing.
func (x *watching) ended(ctx context.Context, at cluster.LSN, end *watch.End) (over bool, err error) {
	if end.Gap {
		x.s.opt.Tallies.Count(TallyReset, end.Why, "")
		return x.reset(ctx, end.Message)
	}
	return true, x.end(at, end.Status, end.Message)
}

// refuse ends the watch before it began. Whoever is too fast is told when to come again.
func (x *watching) refuse(err error) error {
	a := Refusal(err)
	return x.send(&pb.WatchResponse{Status: a.GetStatus(), Message: a.GetMessage(), RetryAfterMs: a.GetRetryAfterMs()})
}

// end sends the last message. Events up to at were sent, none if at is 0.
func (x *watching) end(at cluster.LSN, status cluster.Status, message string) error {
	r := &pb.WatchResponse{Status: pb.Status(status), Message: message, Lsn: uint64(at)}
	r.Primary, r.RetryAfterMs = x.s.Advice(status)
	return x.send(r)
}
