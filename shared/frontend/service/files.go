// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// How protected files are read: the table says where the file ends, at an LSN that was
// committed and checked after the request came, once every append up to there is in the file.
// Bytes below that end never change, so they may be read at any time from the inode that the
// table names. Nothing after the end is read, whatever the file holds.

const (
	// maxPiece is the most that one answer carries, in bytes.
	maxPiece = cluster.MaxAppend
	// fileWait bounds the wait for a file's writer, and each use of the volume.
	fileWait = 5 * time.Second
	// maxVolume is how many calls read the volume at once.
	maxVolume = 64
)

// errHangs is returned for a volume that did not answer in time.
var errHangs = errors.New("the volume does not answer, or too many read it: try again")

// onVolume runs f, which uses the volume, in a goroutine of its own: a filesystem may hang for
// ever, a call may not. A result that comes too late is given to late, unless late is nil.
func onVolume[T any](ctx context.Context, s *Service, f func() (T, error), late func(T)) (T, error) {
	var none T
	ctx, cancel := context.WithTimeout(ctx, fileWait)
	defer cancel()
	select {
	case s.volume <- struct{}{}:
	case <-ctx.Done():
		return none, errHangs
	}
	type result struct {
		v   T
		err error
	}
	done := make(chan result)
	go func() {
		defer func() { <-s.volume }()
		v, err := f()
		select {
		case done <- result{v, err}:
		case <-ctx.Done():
			if err == nil && late != nil {
				late(v)
			}
		}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		return none, errHangs
	}
}

// fileEnd is the state of a protected file, which says where it ends, and when that was read.
type fileEnd struct {
	state   locktable.FileState
	reading serving.Reading
}

// fileState asks where a file ends. A refusal is a *wire.Error; any other error is the end of
// ctx.
func (s *Service) fileState(ctx context.Context, name cluster.FileName) (fileEnd, error) {
	end, bound, err := s.boundState(ctx, name)
	if err == nil && !bound {
		err = wire.Invalid(fmt.Sprintf("file %q is not bound to a lock: this service reads protected files only", name))
	}
	if err != nil {
		return fileEnd{}, err
	}
	return end, nil
}

// boundState is fileState for who wants to know whether the file is bound to a lock.
func (s *Service) boundState(ctx context.Context, name cluster.FileName) (end fileEnd, bound bool, err error) {
	if err := name.Validate(); err != nil {
		return end, false, wire.Invalid(err.Error())
	}
	if err := s.permit(ctx, access.Read, "", string(name)); err != nil {
		return end, false, err
	}
	limited, cancel := context.WithTimeout(ctx, fileWait)
	defer cancel()
	state, bound, reading, message, err := s.b.File(limited, name)
	switch {
	case err != nil && ctx.Err() == nil:
		return end, false, &wire.Error{Status: cluster.StatusStorageUnavailable, Message: fmt.Sprintf("file %q: appends to it are not written yet: try again", name)}
	case err != nil:
		return end, false, err
	case reading.Status != cluster.StatusOK:
		return end, false, &wire.Error{Status: reading.Status, Message: message, Epoch: reading.Epoch}
	}
	return fileEnd{state, reading}, bound, nil
}

// beginRead is fileState for a request that begins with it: that counts against the rate of the caller.
func (s *Service) beginRead(ctx context.Context, name cluster.FileName) (fileEnd, error) {
	if err := s.admitRead(ctx, name); err != nil {
		return fileEnd{}, err
	}
	return s.fileState(ctx, name)
}

// admitRead admits a request that reads a file. A refusal is a *wire.Error.
func (s *Service) admitRead(ctx context.Context, name cluster.FileName) error {
	if err := name.Validate(); err != nil {
		return wire.Invalid(err.Error())
	}
	return s.permission(ctx).admit(ctx, access.Read, "", string(name))
}

// wants returns a *wire.Error unless generation, 0 for the present one, is the one that is there
// and offset is not after its end.
func (e *fileEnd) wants(name cluster.FileName, generation cluster.Generation, offset int64) error {
	switch {
	case generation != 0 && generation != e.state.Generation:
		return wire.Invalid(fmt.Sprintf("file %q is at generation %d: generation %d has the name that it was moved to", name, e.state.Generation, generation))
	case offset < 0:
		return wire.Invalid(fmt.Sprintf("offset %d is negative", offset))
	case offset > e.state.End:
		return &wire.Error{
			Status: cluster.StatusOffsetMismatch, Message: fmt.Sprintf("offset %d is after the end of file %q, which is %d", offset, name, e.state.End),
		}
	}
	return nil
}

// response returns the answer about a piece of the file, still without its data.
func (e *fileEnd) response(name cluster.FileName, offset int64) *pb.ReadFileResponse {
	return &pb.ReadFileResponse{
		Status: pb.Status_STATUS_OK, Epoch: uint64(e.reading.Epoch), Lsn: uint64(e.reading.LSN),
		File: string(name), Generation: uint64(e.state.Generation), Offset: offset, End: e.state.End, Sealed: e.state.Sealed,
	}
}

// refusedRead returns the answer to a read that was refused with err.
func (s *Service) refusedRead(name cluster.FileName, e *fileEnd, err error) *pb.ReadFileResponse {
	r := e.response(name, 0)
	a := Refusal(err)
	r.Status, r.Message, r.Epoch = a.GetStatus(), a.GetMessage(), max(r.Epoch, a.GetEpoch())
	if r.Primary, r.RetryAfterMs = s.Advice(wire.FromStatus(r.Status)); r.Status == pb.Status_STATUS_LIMITED {
		r.RetryAfterMs = a.GetRetryAfterMs()
	}
	return r
}

// IsRefusal reports whether an error is an answer for the client, a *wire.Error, and not the end
// of a context.
func IsRefusal(err error) bool {
	_, ok := errors.AsType[*wire.Error](err)
	return ok
}

// openFile is a generation of a protected file, open for reading. It is for one goroutine.
type openFile struct {
	s    *Service
	name cluster.FileName
	file serving.SharedFile // nil after close
}

// openGeneration opens the inode that the table names. It returns a *wire.Error if the name
// leads to another one.
func (s *Service) openGeneration(ctx context.Context, name cluster.FileName, state *locktable.FileState) (*openFile, error) {
	f, err := onVolume(ctx, s, func() (serving.SharedFile, error) { return s.b.OpenFile(name) }, func(f serving.SharedFile) { f.Close() })
	if err != nil {
		return nil, unreadable(name, err)
	}
	x := &openFile{s: s, name: name, file: f}
	if f.Inode() != state.Inode {
		x.close()
		return nil, unreadable(name, errors.New("its name leads to another file now: it is being rotated, or was replaced"))
	}
	return x, nil
}

func unreadable(name cluster.FileName, err error) error {
	return &wire.Error{Status: cluster.StatusStorageUnavailable, Message: fmt.Sprintf("file %q cannot be read: %v", name, err)}
}

func (x *openFile) close() {
	if f := x.file; f != nil {
		x.file = nil
		go f.Close() //nolint:errcheck // nothing was written
	}
}

// read reads n bytes, all of which are in the file.
func (x *openFile) read(ctx context.Context, off int64, n int) ([]byte, error) {
	f := x.file
	if f == nil {
		return nil, unreadable(x.name, errHangs)
	}
	b, err := onVolume(ctx, x.s, func() ([]byte, error) {
		b := make([]byte, n)
		got, err := f.ReadAt(b, off)
		if got < n && (err == nil || errors.Is(err, io.EOF)) {
			return nil, fmt.Errorf("it ends at %d, where %d bytes were written: see what fsck says", off+int64(got), off+int64(n))
		}
		if got == n {
			err = nil
		}
		return b, err
	}, nil)
	if err != nil {
		return nil, unreadable(x.name, err)
	}
	return b, nil
}

// piece reads what fits into one answer, up to the end, and compares the last append with its
// sum if it is read whole.
func (x *openFile) piece(ctx context.Context, state *locktable.FileState, off, limit int64) ([]byte, error) {
	n := min(limit, maxPiece, state.End-off)
	if n <= 0 {
		return nil, nil
	}
	b, err := x.read(ctx, off, int(n))
	if err != nil {
		return nil, err
	}
	if at := state.LastOffset - off; state.LastLength > 0 && at >= 0 && at+state.LastLength <= n {
		if got := crc32.Checksum(b[at:at+state.LastLength], crc32.MakeTable(crc32.Castagnoli)); got != state.LastCRC {
			return nil, unreadable(x.name, fmt.Errorf("the last append reads with CRC-32C %08x, the log says %08x: see what fsck says", got, state.LastCRC))
		}
	}
	return b, nil
}

// WhileReadable returns a context that ends when the caller of ctx may not read the file any more, see WhilePermitted.
func (s *Service) WhileReadable(ctx context.Context, name cluster.FileName) (_ context.Context, leave func()) {
	return s.WhilePermitted(ctx, func() error { return s.permit(ctx, access.Read, "", string(name)) })
}

// File is a generation of a protected file, open for reads up to its end at the time that
// it was opened. It is for one goroutine.
type File struct {
	file *openFile
	end  fileEnd
}

// OpenFile opens a protected file for reads from offset on. Generation 0 is the present one.
// A refusal is a *wire.Error; any other error is the end of ctx.
func (s *Service) OpenFile(ctx context.Context, name cluster.FileName, generation cluster.Generation, offset int64) (*File, error) {
	end, err := s.beginRead(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := end.wants(name, generation, offset); err != nil {
		return nil, err
	}
	f, err := s.openGeneration(ctx, name, &end.state)
	if err != nil {
		return nil, err
	}
	return &File{file: f, end: end}, nil
}

// State returns the state of the file, which says where it ends.
func (f *File) State() *locktable.FileState { return &f.end.state }

// Response returns an answer about the bytes at offset, without the bytes.
func (f *File) Response(offset int64) *pb.ReadFileResponse {
	return f.end.response(f.file.name, offset)
}

// Piece reads at most limit bytes at offset, less where the file ends or one answer carries no
// more. Its errors are like those of OpenFile.
func (f *File) Piece(ctx context.Context, offset, limit int64) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return f.file.piece(ctx, &f.end.state, offset, limit)
}

// Close closes the file without waiting for the volume.
func (f *File) Close() { f.file.close() }

// ReadFile reads a piece of a protected file. Only a primary answers with data.
func (s *Service) ReadFile(ctx context.Context, q *pb.ReadFileRequest) (*pb.ReadFileResponse, error) {
	name := cluster.FileName(q.GetFile())
	end, err := s.beginRead(ctx, name)
	if err == nil {
		err = end.wants(name, cluster.Generation(q.GetGeneration()), q.GetOffset())
	}
	r := end.response(name, q.GetOffset())
	limit := int64(q.GetLimit())
	if limit == 0 {
		limit = maxPiece
	}
	if err == nil && q.GetOffset() < end.state.End {
		var f *openFile
		if f, err = s.openGeneration(ctx, name, &end.state); err == nil {
			defer f.close()
			r.Data, err = f.piece(ctx, &end.state, q.GetOffset(), limit)
		}
	}
	if err != nil {
		if !IsRefusal(err) || ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return s.refusedRead(name, &end, err), nil
	}
	return r, nil
}

// filePage reads size files after a name, and one more if there is one.
func (s *Service) filePage(ctx context.Context, prefix string, after cluster.FileName, size int) ([]*pb.File, serving.Reading, error) {
	var files []*pb.File
	reading, err := s.b.Read(ctx, func(v serving.View) {
		for name, f := range v.Table.FilesAfter(prefix, after) {
			if files = append(files, convert.FromFile(name, &f)); len(files) > size {
				return
			}
		}
	})
	if err != nil || reading.Status != cluster.StatusOK {
		return nil, reading, err // the core loop may still be writing files
	}
	return files, reading, nil
}

// ListFiles describes a page of protected files, without those that the caller may not read. Next in the answer is where
// the next page begins: the last name of this one.
func (s *Service) ListFiles(ctx context.Context, q *pb.ListFilesRequest) (*pb.ListFilesResponse, error) {
	if len(q.GetPrefix()) > cluster.MaxFileName || len(q.GetAfter()) > cluster.MaxFileName {
		return &pb.ListFilesResponse{
			Status:  pb.Status_STATUS_INVALID_ARGUMENT,
			Message: fmt.Sprintf("prefix and after have at most %d bytes", cluster.MaxFileName),
		}, nil
	}
	allowed := s.permission(ctx)
	if err := allowed.admit(ctx, access.Read, "", ""); err != nil {
		status, message := answerTo(err)
		return &pb.ListFilesResponse{Status: status, Message: message}, nil
	}
	size := pageSize(q.GetLimit())
	files, reading, err := readable(size, allowed.filePrefixes(q.GetPrefix()), q.GetAfter(), func(prefix, after string, size int) ([]*pb.File, serving.Reading, error) {
		return s.filePage(ctx, prefix, cluster.FileName(after), size)
	}, func(f **pb.File) string { return (*f).GetName() }, func(name string) bool { return allowed.May(access.Read, "", name) })
	if err != nil {
		return nil, err
	}
	r := &pb.ListFilesResponse{Epoch: uint64(reading.Epoch), Lsn: uint64(reading.LSN), AgeMs: wire.CeilMillis(reading.Age)}
	if r.Status, r.Message = checkFreshness(reading, q.GetPrimaryOnly(), q.GetMinLsn()); r.Status != pb.Status_STATUS_OK {
		return r, nil
	}
	if len(files) > size {
		files = files[:size]
		r.Next = files[size-1].GetName()
	}
	r.Files = files
	return r, nil
}
