// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/watch"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// following is one follower of a file. It belongs to one goroutine. The watch hub wakes
// it; where the file ends it asks the table, as a read does. Only the end of a
// generation that was rotated away, which the table no longer knows, it has from events:
// such a file was made durable before its rotation was logged.
type following struct {
	s    *Service
	name cluster.FileName
	send func(*pb.ReadFileResponse) error
	w    *watch.Watcher
	file *openFile
	end  fileEnd // of the generation that is followed
	at   int64   // up to here it was sent
	seen int64   // the file ends here or later, by the events
}

// FollowFile sends the bytes of a protected file as they are appended, until that ends: with a
// message that says why, with an error of send, or with ctx.
func (s *Service) FollowFile(ctx context.Context, q *pb.FollowFileRequest, send func(*pb.ReadFileResponse) error) error {
	x := &following{s: s, name: cluster.FileName(q.GetFile()), send: send}
	asked := ctx
	ctx, leave := s.WhileReadable(ctx, x.name)
	defer leave()
	defer x.close()
	end, err := s.enterFollow(asked, x.name)
	if err == nil {
		defer end()
		err = x.begin(ctx, cluster.Generation(q.GetGeneration()), q.Offset)
	}
	for err == nil {
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
			continue
		case <-x.w.Wake():
		}
		err = x.step(ctx)
	}
	switch {
	case asked.Err() != nil:
		return context.Cause(asked)
	case ctx.Err() != nil: // it is not permitted any more
		err = context.Cause(ctx)
		fallthrough
	case IsRefusal(err):
		r := s.refusedRead(x.name, &x.end, err)
		r.Offset = x.at
		return send(r)
	}
	return err // of send
}

// enterFollow counts a follow, which is a watch to quotas, and a request when it begins. The other refusals are those of begin.
func (s *Service) enterFollow(ctx context.Context, name cluster.FileName) (end func(), err error) {
	allowed := s.permission(ctx)
	if name.Validate() != nil || !allowed.May(access.Read, "", string(name)) {
		return func() {}, nil
	}
	if _, err := allowed.await(ctx, 0); err != nil {
		return nil, err
	}
	return allowed.enterWatch()
}

func (x *following) close() {
	x.unwatch()
	if x.file != nil {
		x.file.close()
		x.file = nil
	}
}

func (x *following) unwatch() {
	if x.w != nil {
		x.w.Close()
		x.w = nil
	}
}

// begin finds the file and sends what there is after the offset, at least where the file ends.
func (x *following) begin(ctx context.Context, generation cluster.Generation, offset *int64) error {
	if err := x.locate(ctx); err != nil {
		return err
	}
	x.at = x.end.state.End
	if offset != nil {
		x.at = *offset
	}
	if err := x.end.wants(x.name, generation, x.at); err != nil {
		return err
	}
	if err := x.open(ctx); err != nil {
		return err
	}
	return x.sendNew(ctx, true)
}

// locate asks the table where the file ends, and watches from that state on.
func (x *following) locate(ctx context.Context) error {
	for x.w == nil {
		now, err := x.s.fileState(ctx, x.name)
		if err != nil {
			return err
		}
		x.end = now
		w, end := x.s.b.Hub().Watch(watch.Options{
			Lock: x.end.state.Lock, Resume: true, After: x.end.reading.LSN,
			Kinds: watch.KindsOf(locktable.KindAppend, locktable.KindRotate, locktable.KindSeal, locktable.KindUnbind, locktable.KindQuarantine),
		})
		switch {
		case end == nil:
			x.w = w
		case !end.Gap:
			return refusedWatch(end)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
	x.seen = x.end.state.End
	return nil
}

func (x *following) open(ctx context.Context) (err error) {
	if x.file != nil {
		x.file.close()
	}
	x.file, err = x.s.openGeneration(ctx, x.name, &x.end.state)
	return err
}

// step takes events from the hub and sends what they did to the file.
func (x *following) step(ctx context.Context) error {
	b := x.w.Take()
	for _, e := range b.Events {
		if err := x.handleEvent(ctx, e); err != nil {
			return err
		}
	}
	if b.End != nil {
		return x.ended(ctx, b.End)
	}
	return x.catchUp(ctx)
}

// handleEvent handles one event of the file's lock.
func (x *following) handleEvent(ctx context.Context, e *pb.Event) error {
	kind := locktable.Kind(e.GetKind())
	if kind == locktable.KindTerm || kind == locktable.KindHandedOver {
		_, err := x.s.fileState(ctx, x.name) // is this server still the one to ask?
		return err
	}
	if e.GetFile() != string(x.name) {
		return nil
	}
	own := cluster.Generation(e.GetGeneration()) == x.end.state.Generation
	switch {
	case kind == locktable.KindAppend && own:
		x.seen = max(x.seen, e.GetOffset()+e.GetLength())
	case kind == locktable.KindSeal && own:
		return x.sealed(ctx)
	case kind == locktable.KindRotate:
		return x.rotated(ctx, cluster.Generation(e.GetGeneration()))
	case kind == locktable.KindUnbind:
		if err := x.sendRest(ctx); err != nil {
			return err
		}
		return wire.Invalid(fmt.Sprintf("file %q is not bound to a lock any more", x.name))
	case kind == locktable.KindQuarantine:
		return &wire.Error{Status: cluster.StatusFileQuarantined, Message: e.GetReason()}
	}
	return nil
}

// same reports whether a state is of the generation that is followed. Where an older binary let a
// file go, one that is bound anew begins with its generation again, maybe in the same inode.
func (x *following) same(s *locktable.FileState) bool {
	own := &x.end.state
	return s.Generation == own.Generation && s.Inode == own.Inode && s.Since == own.Since
}

// catchUp sends what was appended. Where the table is at another generation already, the events
// that say how this one ended are still to come: without them it is not known that its bytes can
// be trusted.
func (x *following) catchUp(ctx context.Context) error {
	if x.seen <= x.at {
		return nil
	}
	now, err := x.s.fileState(ctx, x.name)
	switch {
	case errors.Is(err, wire.ErrInvalidArgument): // unbound, likewise
		return nil
	case err != nil || !x.same(&now.state):
		return err
	}
	x.end, x.seen = now, max(x.seen, now.state.End)
	return x.sendNew(ctx, false)
}

// sealed sends that nothing is appended any more to this generation.
func (x *following) sealed(ctx context.Context) error {
	now, err := x.s.fileState(ctx, x.name)
	if err != nil || !x.same(&now.state) {
		return err
	}
	x.end = now
	return x.sendNew(ctx, true)
}

// sendRest sends the generation up to where it ended. It was not quarantined, or an event would
// have said so before, so it was whole and durable when its end was logged.
func (x *following) sendRest(ctx context.Context) error {
	x.end.state.End, x.end.state.LastLength = max(x.seen, x.end.state.End), 0
	return x.sendNew(ctx, false)
}

// rotated sends the rest of the old generation and goes on with the next one.
func (x *following) rotated(ctx context.Context, next cluster.Generation) error {
	if next <= x.end.state.Generation {
		return nil // it was the present one when the follower began
	}
	if err := x.sendRest(ctx); err != nil {
		return err
	}
	now, err := x.s.fileState(ctx, x.name)
	if err != nil {
		return err
	}
	if err := now.wants(x.name, next, 0); err != nil {
		return err // it was rotated again: the generation between was not sent
	}
	x.end, x.at, x.seen = now, 0, now.state.End
	if err := x.open(ctx); err != nil {
		return err
	}
	return x.sendNew(ctx, true)
}

// ended goes on after a gap in the events, as long as the generation is the same.
func (x *following) ended(ctx context.Context, end *watch.End) error {
	if !end.Gap && end.Status != cluster.StatusCancelled {
		return refusedWatch(end)
	}
	was := x.end.state
	x.unwatch()
	if err := x.locate(ctx); err != nil {
		return err
	}
	if err := x.end.wants(x.name, was.Generation, x.at); err != nil {
		return err
	}
	if !x.same(&was) {
		return wire.Invalid(fmt.Sprintf("file %q is another one now: it was let go and bound anew", x.name))
	}
	return x.sendNew(ctx, false)
}

func refusedWatch(end *watch.End) error {
	return &wire.Error{Status: end.Status, Message: end.Message}
}

// sendNew sends what is not sent yet, in pieces; with force at least one message.
func (x *following) sendNew(ctx context.Context, force bool) error {
	for ; force || x.at < x.end.state.End; force = false {
		r := x.end.response(x.name, x.at)
		var err error
		if r.Data, err = x.file.piece(ctx, &x.end.state, x.at, maxPiece); err != nil {
			return err
		}
		if err := x.send(r); err != nil {
			return err
		}
		x.at += int64(len(r.Data))
	}
	return nil
}
