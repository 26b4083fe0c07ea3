// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/offline"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// source is where reads go: to the servers, or to a volume's directory without any.
type source struct {
	volume string
	stale  bool
}

func (s *source) flags(c *cobra.Command) {
	c.Flags().BoolVar(&s.stale, "stale", false, "take any server's answer, which may be old (the age field says how old)")
	c.Flags().StringVar(&s.volume, "volume", "", "read this volume only, and ask no server: for when none runs")
	c.MarkFlagsMutuallyExclusive("stale", "volume")
}

// primaryOnly reports whether only a primary may answer.
func (s *source) primaryOnly() bool { return !s.stale && s.volume == "" }

// reader answers reads. Its methods return an error for any status but OK.
type reader interface {
	GetLock(context.Context, *pb.GetLockRequest) (*pb.GetLockResponse, error)
	ListLocks(context.Context, *pb.ListLocksRequest) (*pb.ListLocksResponse, error)
	History(context.Context, *pb.HistoryRequest) (*pb.HistoryResponse, error)
}

// slowRead is how long a read of a volume takes before its progress is printed.
const slowRead = 2 * time.Second

// withReader runs f with a reader of what s names: in a site, of the one cell that choose returns. A note on how old and how complete a volume's
// answers are goes to the standard error, or into the message of JSON.
func (a *app) withReader(ctx context.Context, s *source, choose func(*cluster.Division) []cluster.CellID, f func(context.Context, reader) (any, func(io.Writer), error)) (err error) {
	show := func(ctx context.Context, r reader) error {
		v, text, err := f(ctx, r)
		if err != nil {
			return err
		}
		return a.print(v, text)
	}
	if s.volume == "" {
		return a.atOneCell(ctx, choose, "such names are in %d cells of the site, whose records have no common order: use a prefix of one cell, or --volume", func(ctx context.Context, c *remote.Caller) error {
			r := &callerReader{c: c}
			err := show(ctx, r)
			if err == nil {
				a.noteAge(r)
			}
			return err
		})
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	last := time.Now()
	v, err := offline.Open(ctx, s.volume, func(err error) {
		if time.Since(last) >= slowRead {
			last = time.Now()
			fmt.Fprintf(a.Stderr, "holdfast: something does not fit, reading again: %v\n", err)
		}
	})
	if err != nil {
		if ctx.Err() != nil {
			return errInterrupted
		}
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if a.format == formatText {
		fmt.Fprintf(a.Stderr, "holdfast: %s\n", v.Note())
	}
	return show(ctx, volumeReader{v, a.format == formatJSON})
}

// noteAge says how old what replicas told is, if they told something.
func (a *app) noteAge(r *callerReader) {
	if r.age > 0 && a.format == formatText {
		fmt.Fprintf(a.Stderr, "holdfast: as a replica knew it %v ago, at LSN %d\n", wire.Millis(r.age), r.lsn)
	}
}

// callerReader is a reader that asks servers.
type callerReader struct {
	c *remote.Caller
	// age and lsn are those of the oldest answer that a replica gave to a question which the
	// primary could have answered better, 0 if there was none. They are not set by History.
	age int64
	lsn uint64
}

func (r *callerReader) saw(age int64, lsn uint64) {
	if age > r.age {
		r.age, r.lsn = age, lsn
	}
}

func (r *callerReader) GetLock(ctx context.Context, q *pb.GetLockRequest) (*pb.GetLockResponse, error) {
	x, err := remote.Read(ctx, r.c, func(ctx context.Context, s pb.LockServiceClient) (*pb.GetLockResponse, error) {
		return s.GetLock(ctx, q)
	})
	r.saw(x.GetAgeMs(), x.GetLsn())
	return x, err
}

func (r *callerReader) ListLocks(ctx context.Context, q *pb.ListLocksRequest) (*pb.ListLocksResponse, error) {
	x, err := remote.Read(ctx, r.c, func(ctx context.Context, s pb.LockServiceClient) (*pb.ListLocksResponse, error) {
		return s.ListLocks(ctx, q)
	})
	r.saw(x.GetAgeMs(), x.GetLsn())
	return x, err
}

func (r *callerReader) History(ctx context.Context, q *pb.HistoryRequest) (*pb.HistoryResponse, error) {
	return remote.Read(ctx, r.c, func(ctx context.Context, s pb.LockServiceClient) (*pb.HistoryResponse, error) {
		return s.History(ctx, q)
	})
}

// volumeReader is a reader of a volume's directory.
type volumeReader struct {
	v *offline.Volume
	// notes is true for JSON: each answer has the volume's note then. As text it is printed once.
	notes bool
}

func (r volumeReader) GetLock(ctx context.Context, q *pb.GetLockRequest) (*pb.GetLockResponse, error) {
	x, err := r.v.GetLock(ctx, q)
	return noted(r, x, err)
}

func (r volumeReader) ListLocks(ctx context.Context, q *pb.ListLocksRequest) (*pb.ListLocksResponse, error) {
	x, err := r.v.ListLocks(ctx, q)
	return noted(r, x, err)
}

func (r volumeReader) History(ctx context.Context, q *pb.HistoryRequest) (*pb.HistoryResponse, error) {
	x, err := r.v.History(ctx, q)
	return noted(r, x, err)
}

// noted turns a refusal into an error, and adds the volume's note to an answer.
func noted[R retry.Response](r volumeReader, x R, err error) (R, error) {
	var none R
	if err == nil {
		err = wire.FailureOf(x)
	}
	if err != nil {
		return none, err
	}
	switch x := any(x).(type) {
	case *pb.GetLockResponse:
		x.Message = r.note(x.Message)
	case *pb.ListLocksResponse:
		x.Message = r.note(x.Message)
	case *pb.HistoryResponse:
		x.Message = r.note(x.Message)
	}
	return x, nil
}

func (r volumeReader) note(message string) string {
	switch {
	case !r.notes:
		return message
	case message == "":
		return r.v.Note()
	}
	return message + "; " + r.v.Note()
}
