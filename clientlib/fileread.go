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
	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

func fileInfoOf(f *pb.File) FileInfo {
	return FileInfo{
		Name: FileName(f.Name), Lock: LockName(f.Lock), Generation: Generation(f.Generation), Start: f.Start, End: f.End,
		LastOffset: f.LastOffset, LastLength: f.LastLength, LastCRC32C: f.LastCrc32C, LastLSN: LSN(f.LastLsn),
		Quarantined: f.Quarantined, Reason: f.Reason, Sealed: f.Sealed,
	}
}

// Files yields the protected files whose names begin with prefix, in order of their names,
// page by page: each page is current, all together are no snapshot. It ends after an error. Of a site, it is like List.
func (c *Client) Files(ctx context.Context, prefix string) iter.Seq2[FileInfo, error] {
	return everywhere(ctx, c, &call{op: "list files"}, prefix, func(f FileInfo) string { return string(f.Name) },
		func(c *Client) iter.Seq2[FileInfo, error] { return c.files(ctx, prefix) })
}

// files lists the files of the Client's own cell.
func (c *Client) files(ctx context.Context, prefix string) iter.Seq2[FileInfo, error] {
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

// ReadOptions say what to read of a protected file. The zero value is its beginning.
type ReadOptions struct {
	// Generation is the one that Offset is of; if the file was rotated since, the error is
	// ErrInvalidArgument. 0 = the present one.
	Generation Generation
	// Offset is where to begin, in bytes; the error is ErrOffsetMismatch if the file ends before
	// it.
	Offset int64
	// Limit is how many bytes to read at most; 0 = MaxAppend, the most there may be.
	Limit int
}

// FilePiece is a piece of a protected file.
type FilePiece struct {
	Generation Generation
	// Offset is where Data begins, in bytes.
	Offset int64
	Data   []byte
	// End is where the generation ended at LSN of Epoch.
	End   int64
	Epoch Epoch
	LSN   LSN
	// Sealed reports whether nothing is appended to this generation any more.
	Sealed bool
}

// ReadFile reads a piece of a protected file, up to its end: bytes whose appends are committed
// and written, and which never change. Files are read through the service, so the volume need not
// be mounted here.
func (c *Client) ReadFile(ctx context.Context, file FileName, o ReadOptions) (FilePiece, error) {
	k := &call{op: "read file"}
	if o.Limit < 0 || o.Limit > MaxAppend {
		return FilePiece{}, k.fail(wire.Invalid(fmt.Sprintf("limit %d: use 0 to %d", o.Limit, MaxAppend)))
	}
	r, err := inCell(ctx, c, k, string(file), func(c *Client) (*pb.ReadFileResponse, error) {
		return question(ctx, c, k, func(ctx context.Context, s pb.LockServiceClient) (*pb.ReadFileResponse, error) {
			return s.ReadFile(ctx, &pb.ReadFileRequest{File: string(file), Generation: uint64(o.Generation), Offset: o.Offset, Limit: uint32(o.Limit)})
		})
	})
	if err != nil {
		return FilePiece{}, err
	}
	return filePieceOf(r), nil
}

func filePieceOf(r *pb.ReadFileResponse) FilePiece {
	return FilePiece{
		Generation: Generation(r.GetGeneration()), Offset: r.GetOffset(), Data: r.GetData(), End: r.GetEnd(),
		Epoch: Epoch(r.GetEpoch()), LSN: LSN(r.GetLsn()), Sealed: r.GetSealed(),
	}
}

// FollowOptions say where to begin. The zero value is the beginning of the present generation.
type FollowOptions struct {
	// Generation is the one that Offset is of; 0 = the present one.
	Generation Generation
	// Offset is where to begin, in bytes; negative = at the end: only what comes.
	Offset int64
}

// Follower is an io.ReadCloser of a protected file as it grows. Only Close may be called while
// another goroutine uses it.
type Follower struct {
	c    *Client
	k    *call
	file FileName
	ctx  *mergedContext
	stop context.CancelCauseFunc

	placed bool       // c is that of the file's cell
	stream fileStream // nil when there is none
	to     *server
	hang   func() // ends the stream
	begun  bool   // the place is known
	piece  FilePiece
	rest   []byte // of piece
	err    error  // that ended it
	left   budget
	pause  retry.Pauses
}

type fileStream interface {
	Recv() (*pb.ReadFileResponse, error)
}

// Follow reads a protected file from an offset on, and then what is appended to it, for as long
// as ctx lives. Over broken connections and failovers it goes on where it was. Where the file is
// rotated, Read returns a *RotatedError once, and goes on with the next generation; a generation
// that was rotated away while no server could be followed is an error, because its end was not
// read. Close it.
func (c *Client) Follow(ctx context.Context, file FileName, o FollowOptions) *Follower {
	ctx, stop := context.WithCancelCause(ctx)
	f := &Follower{c: c, k: &call{op: "follow file"}, file: file, ctx: &mergedContext{Context: ctx, life: c.life}, stop: stop}
	f.piece.Generation, f.piece.Offset, f.begun = o.Generation, max(o.Offset, 0), o.Offset >= 0
	f.renewBudget()
	return f
}

// renewBudget renews the budget, after a server has sent something.
func (f *Follower) renewBudget() {
	f.left, f.pause = budget{left: f.c.opt.Budget}, retry.Pauses{Random: f.c.opt.Rand}
}

// Place returns the generation and the offset of the next byte that Read returns; the generation
// is 0 before the first Read.
func (f *Follower) Place() (Generation, int64) {
	return f.piece.Generation, f.piece.Offset + int64(len(f.piece.Data)-len(f.rest))
}

// Piece returns the last piece that came, without its data: it has where the file ended then.
func (f *Follower) Piece() FilePiece {
	p := f.piece
	p.Data = nil
	return p
}

// Read implements io.Reader. It waits until there is something to read. After a *RotatedError it
// can be called again; any other error is final.
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

// Close ends the follower, and a Read that is under way. Its error is nil.
func (f *Follower) Close() error {
	f.stop(ErrClosed)
	f.ctx.end() // Read may not be called again
	return nil
}

// receive gets the next piece, from any server that has it.
func (f *Follower) receive() error {
	began := time.Now()
	err := f.connect()
	var r *pb.ReadFileResponse
	if err == nil {
		if r, err = f.stream.Recv(); err == nil {
			f.to.heard.Store(int64(f.c.opt.Clock.Now()))
			if s := wire.FromStatus(r.GetStatus()); s != cluster.StatusOK {
				err = wire.FailureOf(r)
			}
		}
	}
	if err == nil {
		f.renewBudget()
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

// end ends the follower with a final error.
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
	if !f.placed {
		at, err := f.c.where(f.ctx, f.k, LockName(f.file), "")
		if err != nil {
			return err
		}
		f.c, f.placed = at, true
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

// failed pauses before the next try, and returns the error if trying again does not help.
func (f *Follower) failed(err error, began time.Time) error {
	connected := f.stream != nil
	f.drop()
	if f.ctx.Err() != nil {
		f.end(ended(f.ctx))
		return f.err
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s ended the stream without a reason", f.to.addr)
	}
	v := judge((*pb.ReadFileResponse)(nil), err)
	if v.Verdict == retry.TooFast { // the primary is asked again when it says
		d := f.pause.Next(v.RetryAfter, false)
		f.renewBudget()
		if !retry.Rest(f.ctx, d) {
			f.end(ended(f.ctx))
			return f.err
		}
		return nil
	}
	if v.Verdict.Final() {
		f.end(v.Err)
		return f.err
	}
	if f.to != nil {
		f.c.follow(f.to, &v, false)
	}
	d := f.pause.Next(v.RetryAfter, v.over)
	if connected {
		began = time.Now() // it was served, perhaps for hours
	}
	if !f.left.spend(time.Since(began) + d) {
		f.end(fmt.Errorf("no primary let us follow for %v at %v: check that the servers run: %w", f.c.opt.Budget, f.c.servers.addresses(), v.Err))
		return f.err
	}
	if !retry.Rest(f.ctx, d) {
		f.end(ended(f.ctx))
		return f.err
	}
	return nil
}
