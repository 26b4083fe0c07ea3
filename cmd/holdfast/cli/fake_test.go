// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// fake is a service that always says the same. The lock's name decides.
type fake struct {
	pb.UnimplementedLockServiceServer
}

func startFake(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	pb.RegisterLockServiceServer(s, fake{})
	go s.Serve(l) //nolint:errcheck // ends with Stop
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

func ok(lock string, token uint64) *pb.Answer {
	return &pb.Answer{Status: pb.Status_STATUS_OK, Lock: lock, Token: token, Epoch: 3, Lsn: 42, ClientId: "c1", RequestId: 7, Protected: true}
}

func refused(s pb.Status, lock, message string) *pb.Answer {
	return &pb.Answer{Status: s, Lock: lock, Message: message, Epoch: 3, ClientId: "c1", RequestId: 7}
}

func (fake) Acquire(_ context.Context, q *pb.AcquireRequest) (*pb.Answer, error) {
	switch q.GetLock() {
	case "held":
		a := refused(pb.Status_STATUS_HELD, "held", "")
		a.Holder = &pb.LockHolder{ClientId: "@9", Token: 12, Host: "h1", Pid: 99, Command: "backup"}
		a.QueueLength = 2
		return a, nil
	case "slow":
		return refused(pb.Status_STATUS_WAIT_TIMEOUT, "slow", ""), nil
	case "fencing":
		return nil, &wire.Error{Status: cluster.StatusServerFencing, Message: "epoch 4"}
	}
	a := ok(q.GetLock(), 17)
	a.TtlMs = q.GetTtlMs()
	return a, nil
}

func (fake) Release(_ context.Context, q *pb.ReleaseRequest) (*pb.Answer, error) {
	if q.GetToken() != 17 {
		return refused(pb.Status_STATUS_INVALID_TOKEN, q.GetLock(), "token 17 is live"), nil
	}
	return ok(q.GetLock(), 17), nil
}

func (fake) RenewLease(_ context.Context, q *pb.RenewLeaseRequest) (*pb.Answer, error) {
	if q.GetToken() != 17 {
		return refused(pb.Status_STATUS_LEASE_EXPIRED, q.GetLock(), ""), nil
	}
	a := ok(q.GetLock(), 17)
	a.TtlMs = 30_000
	return a, nil
}

func (fake) FileAppend(_ context.Context, q *pb.FileAppendRequest) (*pb.Answer, error) {
	if q.GetFile() == "sick" {
		return refused(pb.Status_STATUS_FILE_QUARANTINED, q.GetLock(), "foreign bytes at offset 7"), nil
	}
	a := ok(q.GetLock(), q.GetToken())
	a.Receipt = &pb.Receipt{File: q.GetFile(), Offset: 100, Length: int64(len(q.GetData())), Crc32C: 5, Lsn: 42, Token: q.GetToken(), Epoch: 3, Generation: 1}
	return a, nil
}

func (fake) BindFile(_ context.Context, q *pb.BindFileRequest) (*pb.Answer, error) {
	a := ok(q.GetLock(), q.GetToken())
	a.Receipt = &pb.Receipt{File: q.GetFile(), Generation: 1}
	return a, nil
}

func (fake) BreakLock(_ context.Context, q *pb.BreakLockRequest) (*pb.Answer, error) {
	return ok(q.GetLock(), 17), nil
}

func (fake) Cancel(_ context.Context, q *pb.CancelRequest) (*pb.Answer, error) {
	return refused(pb.Status_STATUS_CANCELLED, "", ""), nil
}

func (fake) Outcome(_ context.Context, q *pb.OutcomeRequest) (*pb.OutcomeResponse, error) {
	r := &pb.OutcomeResponse{Status: pb.Status_STATUS_OK, Epoch: 3, Lsn: 50}
	if q.GetRequestId() == 7 {
		r.State = pb.RequestState_REQUEST_STATE_EXECUTED
		r.Outcome = ok("a/b", 17)
		r.Outcome.Receipt = &pb.Receipt{File: "log", Offset: 100, Length: 6, Lsn: 42, Token: 17, Epoch: 3, Generation: 1}
	}
	return r, nil
}

func lockOf(name string) *pb.Lock {
	return &pb.Lock{
		Name: name, QueueLength: 2, FileCount: 1,
		Grant: &pb.Grant{
			Lock: name, Token: 17, Epoch: 3, ClientId: "@9", RequestId: 1, TtlMs: 30_000, RemainingMs: 12_500, Heard: true,
			Holder: &pb.Holder{Host: "h1", Pid: 99, Command: "backup"},
		},
	}
}

func (fake) ListLocks(_ context.Context, q *pb.ListLocksRequest) (*pb.ListLocksResponse, error) {
	r := &pb.ListLocksResponse{Status: pb.Status_STATUS_OK, Epoch: 3, Lsn: 50}
	if q.GetAfter() == "" { // two pages
		r.Locks, r.Next = []*pb.Lock{lockOf(q.GetPrefix() + "a")}, q.GetPrefix()+"a"
	} else {
		r.Locks = []*pb.Lock{{Name: q.GetPrefix() + "b", FileCount: 1}}
	}
	return r, nil
}

func (fake) GetLock(_ context.Context, q *pb.GetLockRequest) (*pb.GetLockResponse, error) {
	r := &pb.GetLockResponse{Status: pb.Status_STATUS_OK, Epoch: 3, Lsn: 50, Lock: &pb.Lock{Name: q.GetLock()}}
	if q.GetLock() != "free" {
		r.Lock = lockOf(q.GetLock())
		r.Lock.Waiters = []*pb.Waiter{{ClientId: "@10", RequestId: 1, Lsn: 18, TtlMs: 30_000, WaitMs: -1, Holder: &pb.Holder{Host: "h2", Pid: 5, Command: "sync"}}}
		r.Lock.Files = []*pb.File{{Name: "log", Generation: 1, End: 106, LastLsn: 42, Quarantined: true, Reason: "foreign bytes"}}
	}
	return r, nil
}

func (fake) Status(_ context.Context, q *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{
		Status: pb.Status_STATUS_OK, ClusterId: "0123456789abcdef0123456789abcdef", ServerId: 1, Role: pb.Role_ROLE_PRIMARY, Epoch: 3, Lsn: 50,
		Primary: &pb.Primary{Id: 1, Grpc: "h1:7601", Http: "h1:7701"},
		Servers: []*pb.Server{
			{Id: 1, Role: pb.Role_ROLE_PRIMARY, Epoch: 3, Lsn: 50, Pid: 1001, Grpc: "h1:7601", Http: "h1:7701", Volume: &pb.VolumeStatus{Filesystem: "nfs", Network: true}, Reachable: true, Able: true},
			// Nobody listens on port 1.
			{Id: 2, Role: pb.Role_ROLE_REPLICA, Epoch: 3, Lsn: 49, Grpc: "127.0.0.1:1", Http: "127.0.0.1:1", Reachable: true, HeardAgoMs: 12, Conflict: true},
			{Id: 3, Role: pb.Role_ROLE_UNREACHABLE, Grpc: "127.0.0.1:1", Http: "127.0.0.1:1", HeardAgoMs: -1},
		},
		Table: &pb.TableStatus{Locks: 2, Held: 1, Waiting: 2, Files: 1, Quarantined: 1, Clients: 4},
	}, nil
}

func (fake) Handover(_ context.Context, q *pb.HandoverRequest) (*pb.Answer, error) {
	if q.GetTo() == 3 {
		return refused(pb.Status_STATUS_ERROR, "", "no live server is able to take over"), nil
	}
	a := ok("", 0)
	a.Message, a.Primary = "server 1 takes over", &pb.Primary{Id: 1}
	return a, nil
}
