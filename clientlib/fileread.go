// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

func fileInfoOf(f *pb.File) FileInfo {
	return FileInfo{
		Name: cluster.FileName(f.Name), Lock: cluster.LockName(f.Lock), Generation: cluster.Generation(f.Generation), Start: f.Start, End: f.End,
		LastOffset: f.LastOffset, LastLength: f.LastLength, LastCRC32C: f.LastCrc32C, LastLSN: cluster.LSN(f.LastLsn),
		Quarantined: f.Quarantined, Reason: f.Reason, Sealed: f.Sealed,
	}
}

// Files yields the protected files whose names begin with prefix, in order of their names,
// page by page: each page is current, all together are no snapshot. It ends after an error.
func (c *Client) Files(ctx context.Context, prefix string) iter.Seq2[FileInfo, error] {
	return func(yield func(FileInfo, error) bool) {
		for after := ""; ; {
			r, err := question(ctx, c, &call{op: "list files"}, func(ctx context.Context, s pb.LockServiceClient) (*pb.ListFilesResponse, error) {
				return s.ListFiles(ctx, &pb.ListFilesRequest{Prefix: prefix, After: after, PrimaryOnly: true})
			})
			if err != nil {
				yield(FileInfo{}, err)
				return
			}
			for _, f := range r.GetFiles() {
				if !yield(fileInfoOf(f), nil) {
					return
				}
			}
			if after = r.GetNext(); after == "" {
				return
			}
		}
	}
}

// ReadOptions say what to read of a protected file.
type ReadOptions struct {
	// Generation is the one that Offset is of; another one that is present by now is
	// wire.ErrInvalidArgument. 0 = the present one.
	Generation cluster.Generation
	// Offset is where to begin, in bytes; behind the end is wire.ErrOffsetMismatch.
	Offset int64
	// Limit is how many bytes to read at most; 0 = cluster.MaxAppend, the most there may be.
	Limit int
}

// FilePiece is a piece of a protected file.
type FilePiece struct {
	Generation cluster.Generation
	Offset     int64
	Data       []byte
	// End is where the generation ended at LSN of Epoch.
	End   int64
	Epoch cluster.Epoch
	LSN   cluster.LSN
	// Sealed says that nothing comes behind End in this generation.
	Sealed bool
}

// ReadFile reads a piece of a protected file, up to its end: bytes whose appends are
// committed and written, and which never change. Files are read through the service, so
// no share needs to be mounted here.
func (c *Client) ReadFile(ctx context.Context, file cluster.FileName, o ReadOptions) (FilePiece, error) {
	k := &call{op: "read file"}
	if o.Limit < 0 || o.Limit > cluster.MaxAppend {
		return FilePiece{}, k.fail(wire.Invalid(fmt.Sprintf("limit %d: use 0 to %d", o.Limit, cluster.MaxAppend)))
	}
	r, err := question(ctx, c, k, func(ctx context.Context, s pb.LockServiceClient) (*pb.ReadFileResponse, error) {
		return s.ReadFile(ctx, &pb.ReadFileRequest{File: string(file), Generation: uint64(o.Generation), Offset: o.Offset, Limit: uint32(o.Limit)})
	})
	if err != nil {
		return FilePiece{}, err
	}
	return filePieceOf(r), nil
}

func filePieceOf(r *pb.ReadFileResponse) FilePiece {
	return FilePiece{
		Generation: cluster.Generation(r.GetGeneration()), Offset: r.GetOffset(), Data: r.GetData(), End: r.GetEnd(),
		Epoch: cluster.Epoch(r.GetEpoch()), LSN: cluster.LSN(r.GetLsn()), Sealed: r.GetSealed(),
	}
}

// FollowOptions say where to begin.
type FollowOptions struct {
	// Generation is the one that Offset is of; 0 = the present one.
	Generation cluster.Generation
	// Offset is where to begin, in bytes; negative = at the end: only what comes.
	Offset int64
}

// Follower reads a protected file as it grows. It is for one goroutine, but for Close.
type Follower struct {
	c    *Client
	k    *call
	file cluster.FileName
	ctx  *joined
	stop context.CancelCauseFunc

	stream fileStream // nil when there is none
	to     *server
	hang   func() // ends the stream
	begun  bool   // the place is known
	piece  FilePiece
	rest   []byte // of piece
	err    error  // the last word
	left   budget
	pause  pauses
}

type fileStream interface {
	Recv() (*pb.ReadFileResponse, error)
}

// Follow reads a protected file from an offset on, and then what is appended to it, for as
// long as ctx lives. Over broken connections and failovers it goes on where it was. Where
// the file is rotated, Read returns a *RotatedError once, and goes on with the next
// generation; one that was rotated away while nobody could follow is an error, because what
// stood at its end was not read. Close it.
func (c *Client) Follow(ctx context.Context, file cluster.FileName, o FollowOptions) *Follower {
	ctx, stop := context.WithCancelCause(ctx)
	f := &Follower{c: c, k: &call{op: "follow file"}, file: file, ctx: &joined{Context: ctx, life: c.life}, stop: stop}
	f.piece.Generation, f.piece.Offset, f.begun = o.Generation, max(o.Offset, 0), o.Offset >= 0
	f.again()
	return f
}

func (f *Follower) again() {
	f.left, f.pause = budget{left: f.c.opt.Budget}, pauses{random: f.c.opt.Rand}
}

// Place is the generation and the offset of the next byte that Read gives; the generation is 0
// before the first Read.
func (f *Follower) Place() (cluster.Generation, int64) {
	return f.piece.Generation, f.piece.Offset + int64(len(f.piece.Data)-len(f.rest))
}

// Piece is the last one that came, without its data: where the file ended then.
func (f *Follower) Piece() FilePiece {
	p := f.piece
	p.Data = nil
	return p
}

// Read implements io.Reader. It waits until there is something. An error other than a
// *RotatedError is the last.
func (f *Follower) Read(b []byte) (int, error) {
	for len(f.rest) == 0 {
		if f.err != nil {
			return 0, f.err
		}
		if len(b) == 0 {
			return 0, nil
		}
		if err := f.receive(); err != nil {
			return 0, err
		}
	}
	n := copy(b, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// Close ends the follower. A Read under way ends.
func (f *Follower) Close() error {
	f.stop(ErrClosed)
	f.ctx.end() // nobody may ever read again
	return nil
}

// receive takes the next piece, from whichever server has it.
func (f *Follower) receive() error {
	began := time.Now()
	err := f.connect()
	var r *pb.ReadFileResponse
	if err == nil {
		if r, err = f.stream.Recv(); err == nil {
			f.to.heard.Store(int64(f.c.opt.Clock.Now()))
			if s := wire.FromStatus(r.GetStatus()); s != cluster.StatusOK {
				err = valueError(s, r)
			}
		}
	}
	if err == nil {
		f.again()
		return f.take(filePieceOf(r))
	}
	return f.failed(err, began)
}

// take takes a piece. It continues the one before, or begins a generation.
func (f *Follower) take(p FilePiece) error {
	rotated := f.piece.Generation != 0 && p.Generation != f.piece.Generation
	if at := f.piece.Offset + int64(len(f.piece.Data)); f.begun && !rotated && p.Offset != at {
		f.end(fmt.Errorf("the service sent offset %d of %q, not %d", p.Offset, f.file, at))
		return f.err
	}
	f.piece, f.rest, f.begun = p, p.Data, true
	if rotated {
		return &RotatedError{File: f.file, Generation: p.Generation}
	}
	return nil
}

// end is the last word.
func (f *Follower) end(err error) {
	f.drop()
	f.ctx.end()
	f.err = f.k.fail(err)
}

func (f *Follower) drop() {
	if f.hang != nil {
		f.hang()
	}
	f.stream, f.hang = nil, nil
}

// connect begins a stream where there is none.
func (f *Follower) connect() error {
	if f.stream != nil {
		return nil
	}
	f.k.tries++
	if f.to = f.c.servers.primary(); f.to == nil {
		found := f.c.servers.locate(f.ctx)
		if f.to = found.to; f.to == nil {
			return errors.Join(errNoPrimary, found.err)
		}
	}
	ctx, cancel := context.WithCancelCause(f.ctx)
	quiet := f.c.guard(ctx, f.to, func() { cancel(errSilent) })
	f.hang = func() { quiet(); cancel(nil) }
	q := &pb.FollowFileRequest{File: string(f.file), Generation: uint64(f.piece.Generation)}
	if f.begun {
		at := f.piece.Offset + int64(len(f.piece.Data))
		q.Offset = &at
	}
	var err error
	f.stream, err = f.to.stub.FollowFile(ctx, q)
	return err
}

// failed rests before the next try; an error that no try changes is the last word.
func (f *Follower) failed(err error, began time.Time) error {
	connected := f.stream != nil
	f.drop()
	if f.ctx.Err() != nil {
		f.end(ended(f.ctx))
		return f.err
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s ended the stream without a word", f.to.addr)
	}
	v := judge((*pb.ReadFileResponse)(nil), err)
	if v.final {
		f.end(v.err)
		return f.err
	}
	if f.to != nil {
		f.c.follow(f.to, &v, false)
	}
	d := f.pause.next(v.retryAfter, v.over)
	if connected {
		began = time.Now() // it was served, perhaps for hours
	}
	if !f.left.spend(time.Since(began) + d) {
		f.end(fmt.Errorf("no primary let us follow for %v at %v: check that the servers run: %w", f.c.opt.Budget, f.c.servers.addresses(), v.err))
		return f.err
	}
	if !rest(f.ctx, d) {
		f.end(ended(f.ctx))
		return f.err
	}
	return nil
}
