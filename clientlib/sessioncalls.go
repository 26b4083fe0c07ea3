// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"

	"google.golang.org/grpc"

	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// operate sends an operation.
func (s *session) operate(ctx context.Context, waits bool, op *pb.Operation) (*pb.Answer, error) {
	l, err := s.fly(ctx, waits, len(op.GetAppend().GetData()), func(b []byte, number uint64) ([]byte, error) {
		op.Correlation = number
		return wire.AppendOperation(b, op)
	})
	return l.answer, err
}

// own leaves out the name that the hello told.
func (s *session) own(client *string) {
	if *client == s.client {
		*client = ""
	}
}

// Acquire implements pb.LockServiceClient, as do the others.
func (s *session) Acquire(ctx context.Context, q *pb.AcquireRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	if q.Holder == s.holder {
		q.Holder = nil
	}
	return s.operate(ctx, q.GetWaitMs() != 0, &pb.Operation{Request: &pb.Operation_Acquire{Acquire: q}})
}

// Release ends a grant.
func (s *session) Release(ctx context.Context, q *pb.ReleaseRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, false, &pb.Operation{Request: &pb.Operation_Release{Release: q}})
}

// RenewLease extends a lease.
func (s *session) RenewLease(ctx context.Context, q *pb.RenewLeaseRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	return s.operate(ctx, false, &pb.Operation{Request: &pb.Operation_Renew{Renew: q}})
}

// FileAppend appends to a protected file.
func (s *session) FileAppend(ctx context.Context, q *pb.FileAppendRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, false, &pb.Operation{Request: &pb.Operation_Append{Append: q}})
}

// BindFile binds a file to a lock.
func (s *session) BindFile(ctx context.Context, q *pb.BindFileRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, false, &pb.Operation{Request: &pb.Operation_Bind{Bind: q}})
}

// UnbindFile ends a binding.
func (s *session) UnbindFile(ctx context.Context, q *pb.UnbindFileRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, false, &pb.Operation{Request: &pb.Operation_Unbind{Unbind: q}})
}

// RotateFile gives a file a new inode.
func (s *session) RotateFile(ctx context.Context, q *pb.RotateFileRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, false, &pb.Operation{Request: &pb.Operation_Rotate{Rotate: q}})
}

// SealFile ends a generation of a file.
func (s *session) SealFile(ctx context.Context, q *pb.SealFileRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, false, &pb.Operation{Request: &pb.Operation_Seal{Seal: q}})
}

// Cancel ends a request.
func (s *session) Cancel(ctx context.Context, q *pb.CancelRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, false, &pb.Operation{Request: &pb.Operation_Cancel{Cancel: q}})
}

// BreakLock ends somebody's grant.
func (s *session) BreakLock(ctx context.Context, q *pb.BreakLockRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, false, &pb.Operation{Request: &pb.Operation_Break{Break: q}})
}

// Downgrade lets others share a lock.
func (s *session) Downgrade(ctx context.Context, q *pb.DowngradeRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, false, &pb.Operation{Request: &pb.Operation_Downgrade{Downgrade: q}})
}

// SetMetadata replaces what a holder says.
func (s *session) SetMetadata(ctx context.Context, q *pb.SetMetadataRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	s.own(&q.ClientId)
	return s.operate(ctx, false, &pb.Operation{Request: &pb.Operation_SetMetadata{SetMetadata: q}})
}

// KeepAlive renews what a client holds and waits for.
func (s *session) KeepAlive(ctx context.Context, q *pb.KeepAliveRequest, o ...grpc.CallOption) (*pb.KeepAliveResponse, error) {
	if s.to.longLists.Load() {
		return s.LockServiceClient.KeepAlive(ctx, q, o...)
	}
	s.own(&q.ClientId)
	l, err := s.fly(ctx, false, 0, func(b []byte, number uint64) ([]byte, error) {
		q.Correlation = number
		return wire.AppendRequest(b, &pb.SessionRequest{KeepAlives: []*pb.KeepAliveRequest{q}})
	})
	return l.kept, err
}
