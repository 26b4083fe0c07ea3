// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// What front ends need whose clients know no tokens, and of a protected file only what was written last.

// ExecuteHeld executes a request that has its IDs under the token with which the client holder holds q.Lock. A request that was executed
// already gets its answer whoever holds the lock now. The status is INVALID_TOKEN, and nothing is done, where the client does not hold it. Only
// a primary executes it.
//
// The token is read from the table, and compared by the lock table when it executes the request: a grant that ends in between refuses it.
func (s *Service) ExecuteHeld(ctx context.Context, holder cluster.ClientID, q *locktable.Request) (*pb.Answer, error) {
	if err := s.permission(ctx).admitRequest(ctx, q); err != nil {
		return Refusal(err), nil
	}
	found := struct {
		token   cluster.Token
		holders int
		foreign string
		cell    cluster.CellID
	}{}
	reading, err := s.b.Read(ctx, func(v serving.View) {
		l, _ := v.Table.Lock(q.Lock)
		found.holders = l.Holders
		found.foreign, found.cell = v.Table.Own().Refuses(q.Lock, q.File)
		if state, out := v.Table.Lookup(q.Client, q.ID); state == locktable.RequestExecuted {
			found.token = out.Token
		} else if l.Grant.Token != 0 && l.Grant.Client == holder {
			found.token = l.Grant.Token
		}
	})
	if err != nil {
		return nil, err
	}
	out := locktable.Outcome{Client: q.Client, Request: q.ID, Lock: q.Lock, File: q.File, Epoch: reading.Epoch}
	if status, message := checkFreshness(reading, true, 0); status != pb.Status_STATUS_OK {
		out.Status, out.Message = cluster.Status(status), message
		return s.Answer(&out), nil
	}
	if found.foreign != "" {
		out.Status, out.Message, out.Cell = cluster.StatusWrongCell, found.foreign, found.cell
		return s.Answer(&out), nil
	}
	if found.token == 0 {
		out.Status, out.Message = cluster.StatusInvalidToken, fmt.Sprintf("client %s does not hold lock %q: nobody does", holder, q.Lock)
		if found.holders > 0 {
			out.Message = fmt.Sprintf("client %s does not hold lock %q: another one does", holder, q.Lock)
		}
		return s.Answer(&out), nil
	}
	q.Token = found.token
	return s.Execute(ctx, q)
}

// LastAppend is what was appended last to a protected file.
type LastAppend struct {
	// Data is nil where nothing was ever appended to a file of this name.
	Data       []byte
	Generation cluster.Generation
	// LSN is that of the append, Epoch of the term that answers.
	LSN   cluster.LSN
	Epoch cluster.Epoch
}

// ErrNothingAppended is in the error of LastAppend for a file from which it cannot be told what was appended last: it has bytes and no binding,
// or was rotated and nothing was appended since.
var ErrNothingAppended = errors.New("what was appended last is in another file")

// LastAppend reads what was appended last to a protected file. A refusal is a *wire.Error, or an error with ErrNothingAppended; any other one is the end
// of ctx.
//
// Place and bytes are of one inode: the place comes with the inode that has it, and the file that is read has to be that.
func (s *Service) LastAppend(ctx context.Context, name cluster.FileName) (LastAppend, error) {
	if err := s.admitRead(ctx, name); err != nil {
		return LastAppend{}, err
	}
	end, bound, err := s.boundState(ctx, name)
	if err != nil {
		return LastAppend{}, err
	}
	state := &end.state
	x := LastAppend{Generation: state.Generation, LSN: state.LastLSN, Epoch: end.reading.Epoch}
	switch {
	case !bound:
		return x, s.mustBeNew(ctx, name)
	case state.LastLength == 0:
		return x, fmt.Errorf("nothing was appended to file %q since it was rotated or bound: %w", name, ErrNothingAppended)
	}
	f, err := s.openGeneration(ctx, name, state)
	if err != nil {
		return x, err
	}
	defer f.close()
	x.Data, err = f.piece(ctx, state, state.LastOffset, state.LastLength)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return x, err
}

// mustBeNew returns an error with ErrNothingAppended if there are bytes under a name that is not bound to a lock: what was there before an unbind is
// not nothing.
func (s *Service) mustBeNew(ctx context.Context, name cluster.FileName) error {
	some, err := onVolume(ctx, s, func() (bool, error) {
		f, err := s.b.OpenFile(name)
		if errors.Is(err, volume.ErrMoved) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		defer f.Close() //nolint:errcheck // nothing was written
		n, err := f.ReadAt(make([]byte, 1), 0)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return n > 0, err
	}, nil)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return unreadable(name, err)
	case some:
		return fmt.Errorf("file %q is on the volume and bound to no lock: %w", name, ErrNothingAppended)
	}
	return nil
}
