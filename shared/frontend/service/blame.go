// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume/index"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// BlameFile answers which clients wrote which bytes of a protected file. The index is on the
// volume and has nothing that was not committed and checked, so any server answers, up to where
// the file ends by its own table.
func (s *Service) BlameFile(ctx context.Context, q *pb.BlameFileRequest) (*pb.BlameFileResponse, error) {
	r := &pb.BlameFileResponse{File: q.GetFile()}
	name := cluster.FileName(q.GetFile())
	if err := name.Validate(); err != nil || q.GetOffset() < 0 || q.GetLength() < 0 || q.GetOffset()+q.GetLength() < 0 {
		if err == nil {
			err = fmt.Errorf("offset %d, length %d: out of range", q.GetOffset(), q.GetLength())
		}
		r.Status, r.Message = pb.Status_STATUS_INVALID_ARGUMENT, err.Error()
		return r, nil
	}
	if r.Status, r.Message = answerTo(s.permission(ctx).admit(ctx, access.Read, "", q.GetFile())); r.Status != pb.Status_STATUS_OK {
		return r, nil
	}
	var state locktable.FileState
	var bound bool
	foreign := ""
	reading, err := s.b.Read(ctx, func(v serving.View) {
		state, bound = v.Table.File(name)
		foreign, _ = v.Table.Own().Refuses("", name)
	})
	if err != nil {
		return nil, err
	}
	r.Epoch, r.Lsn, r.AgeMs = uint64(reading.Epoch), uint64(reading.LSN), wire.CeilMillis(reading.Age)
	if r.Status, r.Message = checkFreshness(reading, false, 0); r.Status != pb.Status_STATUS_OK {
		return r, nil
	}
	if foreign != "" {
		r.Status, r.Message = pb.Status_STATUS_WRONG_CELL, foreign
		return r, nil
	}
	ask, refusal := blameQuery(q, bound, &state, reading.LSN)
	if refusal != "" {
		r.Status, r.Message = pb.Status_STATUS_INVALID_ARGUMENT, refusal
		return r, nil
	}
	began := time.Now()
	reads, stop := context.WithTimeout(ctx, blameTime(ctx, began))
	defer stop()
	b, err := onVolume(ctx, s, func() (index.Blame, error) { return s.b.Blame(reads, ask) }, nil)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		r.Status, r.Message = pb.Status_STATUS_STORAGE_UNAVAILABLE, fmt.Sprintf("the index cannot be read: %v", err)
		return r, nil
	}
	if ask.To == math.MaxInt64 { // an earlier generation: it ended where the index does
		if ask.To = ask.From; len(b.Entries) > 0 {
			ask.To = b.Entries[len(b.Entries)-1].End()
		}
	}
	if b.Unread > 0 {
		r.Message = fmt.Sprintf("the newest %d of %d files of the index were read in %v: what is not indexed here may be in the older ones, which holdfast blame --volume reads",
			b.Files-b.Unread, b.Files, time.Since(began).Round(time.Millisecond))
	}
	r.Generation = uint64(b.Generation)
	for _, e := range b.Pieces(name, ask.From, ask.To) {
		r.Pieces = append(r.Pieces, &pb.BlamedPiece{
			Offset: e.Offset, Length: e.Length, Crc32C: e.CRC, Lsn: uint64(e.LSN), Token: uint64(e.Token), Epoch: uint64(e.Epoch),
			ClientId: string(e.Client), RequestId: uint64(e.Request), UnixMs: e.Time, Identity: e.Identity,
		})
		if b.More {
			r.Next = e.End()
		}
	}
	return r, nil
}

// blameTime returns how long the index may be read, so that an answer still reaches the caller
// before it gives up.
func blameTime(ctx context.Context, now time.Time) time.Duration {
	limit := fileWait - fileWait/8
	if over, ok := ctx.Deadline(); ok {
		left := over.Sub(now)
		limit = min(limit, left-left/8)
	}
	return limit
}

// blameQuery returns the query for the index, or a refusal that says why there is none.
func blameQuery(q *pb.BlameFileRequest, bound bool, state *locktable.FileState, at cluster.LSN) (ask index.Query, refusal string) {
	ask = index.Query{
		File: cluster.FileName(q.GetFile()), Generation: cluster.Generation(q.GetGeneration()),
		From: q.GetOffset(), To: math.MaxInt64, Limit: pageSize(q.GetLimit()),
	}
	if q.GetLength() > 0 {
		ask.To = q.GetOffset() + q.GetLength()
	}
	switch generation := ask.Generation; {
	case !bound && generation == 0:
		return ask, fmt.Sprintf("file %q is not bound to a lock: name the generation that it had", ask.File)
	case !bound:
	case generation > state.Generation:
		return ask, fmt.Sprintf("file %q is at generation %d", ask.File, state.Generation)
	case generation == 0 || generation == state.Generation:
		ask.Generation, ask.After, ask.Through = state.Generation, state.Since, at
		ask.To = min(ask.To, state.End)
	case state.Since > 0:
		ask.Through = state.Since
	}
	return ask, ""
}
