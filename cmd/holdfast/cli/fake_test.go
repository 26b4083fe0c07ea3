// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"fmt"
	"hash/crc32"
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
	return startService(t, fake{})
}

func startService(t *testing.T, service pb.LockServiceServer) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	pb.RegisterLockServiceServer(s, service)
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
		a.Holder = &pb.LockHolder{ClientId: "@9", Token: 12, Host: "h1", Pid: 99, Command: "backup", SinceUnixMs: 1_700_000_000_000}
		a.QueueLength = 2
		return a, nil
	case "slow":
		return refused(pb.Status_STATUS_WAIT_TIMEOUT, "slow", ""), nil
	case "cache":
		if q.GetAfterToken() == 12 {
			return refused(pb.Status_STATUS_LOCK_CHANGED, "cache", `lock "cache" was granted after token 12: under token 16 at last`), nil
		}
	case "gpu":
		if q.GetLimit() == 5 {
			a := refused(pb.Status_STATUS_HELD, "gpu", "")
			a.Holder = &pb.LockHolder{
				ClientId: "@9", Token: 12, Host: "h1", Pid: 99, Command: "backup", SinceUnixMs: 1_700_000_000_000,
				Mode: pb.Mode_MODE_SHARED, Holders: 2, Limit: 5, Weight: 2, PermitsTaken: 4,
			}
			return a, nil
		}
		return refused(pb.Status_STATUS_OTHER_LIMIT, "gpu", `lock "gpu" is held, or waited for, with a limit of 5`), nil
	case "fencing":
		return nil, &wire.Error{Status: cluster.StatusServerFencing, Message: "epoch 4"}
	}
	a := ok(q.GetLock(), 17)
	a.TtlMs, a.Marked = q.GetTtlMs(), q.GetLock() != "older" && asksForMark(q)
	if q.GetLock() != "older" {
		a.Limit, a.Weight = q.GetLimit(), q.GetWeight()
	}
	return a, nil
}

// asksForMark reports whether a server that knows it grants the request with something that the lock remembers.
func asksForMark(q *pb.AcquireRequest) bool {
	return q.GetAfterToken() != 0 || q.GetRemember() || q.GetOnce() != ""
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
	if q.GetLock() == "asked" {
		a.Ask = &pb.AskToRelease{Lock: "asked", Token: 17, Lsn: 49, Actor: "ann@h9", Reason: "maintenance", GraceMs: 60_000, RemainingMs: 41_000}
	}
	return a, nil
}

func (fake) Extend(_ context.Context, q *pb.ExtendRequest) (*pb.Answer, error) {
	if q.GetTtlMs() < 30_000 {
		return refused(pb.Status_STATUS_INVALID_ARGUMENT, q.GetLock(), "ttl 10s is shorter than that of the lease, 30s: an extension only lengthens it"), nil
	}
	a := ok(q.GetLock(), q.GetToken())
	a.TtlMs = q.GetTtlMs()
	return a, nil
}

func (fake) FileAppend(_ context.Context, q *pb.FileAppendRequest) (*pb.Answer, error) {
	if q.GetFile() == "sick" {
		return refused(pb.Status_STATUS_FILE_QUARANTINED, q.GetLock(), "foreign bytes at offset 7"), nil
	}
	if q.GetRequestId() == 2 {
		return refused(pb.Status_STATUS_STALE_REQUEST, q.GetLock(), "request ID 2 is below what is remembered of client c1"), nil
	}
	if q.GetFile() == "lost" {
		return nil, &wire.Error{Status: cluster.StatusUnknown, Message: "the term ended"}
	}
	if q.ExpectedOffset != nil && q.GetExpectedOffset() != 100 {
		a := refused(pb.Status_STATUS_OFFSET_MISMATCH, q.GetLock(), fmt.Sprintf("file %q ends at offset 100, not at %d", q.GetFile(), q.GetExpectedOffset()))
		a.Receipt = &pb.Receipt{File: q.GetFile(), Offset: 100, Generation: 1}
		return a, nil
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

func (fake) ListFiles(_ context.Context, q *pb.ListFilesRequest) (*pb.ListFilesResponse, error) {
	r := &pb.ListFilesResponse{Status: pb.Status_STATUS_OK, Epoch: 3, Lsn: 50}
	if q.GetAfter() == "" { // two pages
		r.Files, r.Next = []*pb.File{{Name: "log", Lock: "a/b", Generation: 2, End: 106, LastLsn: 42, Sealed: true}}, "log"
	} else {
		r.Files = []*pb.File{{Name: "sick", Lock: "a/b", Generation: 1, End: 7, LastLsn: 30, Quarantined: true, Reason: "foreign bytes"}}
	}
	return r, nil
}

// fakeText is the content of every file.
const fakeText = "one\ntwo\nthree\nend"

func (fake) ReadFile(_ context.Context, q *pb.ReadFileRequest) (*pb.ReadFileResponse, error) {
	r := &pb.ReadFileResponse{
		Status: pb.Status_STATUS_OK, Epoch: 3, Lsn: 50, File: q.GetFile(), Generation: 2, Offset: q.GetOffset(), End: int64(len(fakeText)),
	}
	if q.GetFile() == "sick" {
		return &pb.ReadFileResponse{Status: pb.Status_STATUS_FILE_QUARANTINED, Message: "foreign bytes at offset 7"}, nil
	}
	if q.GetOffset() > r.End {
		return &pb.ReadFileResponse{Status: pb.Status_STATUS_OFFSET_MISMATCH, Message: fmt.Sprintf("offset %d is behind the end of file %q, %d", q.GetOffset(), q.GetFile(), r.End)}, nil
	}
	n := int(q.GetLimit())
	if n == 0 {
		n = 6 // so that more than one read is needed
	}
	rest := fakeText[min(q.GetOffset(), r.End):]
	r.Data = []byte(rest[:min(n, len(rest))])
	return r, nil
}

func (fake) BlameFile(_ context.Context, q *pb.BlameFileRequest) (*pb.BlameFileResponse, error) {
	r := &pb.BlameFileResponse{Status: pb.Status_STATUS_OK, Epoch: 3, Lsn: 50, File: q.GetFile(), Generation: 2}
	if q.GetFile() == "rotating" { // one page and one generation after the other
		switch {
		case q.GetGeneration() == 0 && q.GetOffset() == 0:
			r.Pieces, r.Next = []*pb.BlamedPiece{{Length: 8, Crc32C: 5, Lsn: 40, Token: 17, Epoch: 3, ClientId: "@9", RequestId: 4}}, 8
			return r, nil
		case q.GetGeneration() != 2:
			r.Generation, r.Pieces = 3, []*pb.BlamedPiece{{Offset: q.GetOffset(), Length: 9, Crc32C: 7, Lsn: 60, Token: 20, Epoch: 3, ClientId: "@other", RequestId: 1}}
			return r, nil
		}
	}
	for _, p := range []*pb.BlamedPiece{
		{Offset: 0, Length: 8, Crc32C: 5, Lsn: 40, Token: 17, Epoch: 3, ClientId: "@9", RequestId: 4, Identity: "user:carol", UnixMs: 1_700_000_000_000},
		{Offset: 8, Length: 5},
		{Offset: 13, Length: 4, Crc32C: 6, Lsn: 42, Token: 17, Epoch: 3, ClientId: "c1", RequestId: 7, UnixMs: 1_700_000_001_000},
	} {
		if p.Offset+p.Length > q.GetOffset() && (q.GetLength() == 0 || p.Offset < q.GetOffset()+q.GetLength()) {
			r.Pieces = append(r.Pieces, p)
		}
	}
	return r, nil
}

func (fake) FollowFile(q *pb.FollowFileRequest, stream grpc.ServerStreamingServer[pb.ReadFileResponse]) error {
	for _, r := range []*pb.ReadFileResponse{
		{Generation: 2, Offset: q.GetOffset(), Data: []byte(fakeText[q.GetOffset():]), End: int64(len(fakeText))},
		{Generation: 3, Data: []byte("anew\n"), End: 5},
		{Status: pb.Status_STATUS_INVALID_ARGUMENT, Message: "the file is not bound to a lock any more"},
	} {
		r.File = q.GetFile()
		if r.Status == pb.Status_STATUS_NONE {
			r.Status = pb.Status_STATUS_OK
		}
		if err := stream.Send(r); err != nil {
			return err
		}
	}
	return nil
}

func (fake) SealFile(_ context.Context, q *pb.SealFileRequest) (*pb.Answer, error) {
	a := ok(q.GetLock(), q.GetToken())
	a.Receipt = &pb.Receipt{File: q.GetFile(), Offset: 100, Generation: 1}
	return a, nil
}

func (fake) BreakLock(_ context.Context, q *pb.BreakLockRequest) (*pb.Answer, error) {
	if q.GetLock() == "free" {
		return refused(pb.Status_STATUS_INVALID_TOKEN, q.GetLock(), `nobody holds lock "free"`), nil
	}
	return ok(q.GetLock(), 17), nil
}

func (fake) Downgrade(_ context.Context, q *pb.DowngradeRequest) (*pb.Answer, error) {
	return ok(q.GetLock(), q.GetToken()), nil
}

func (fake) SetMetadata(_ context.Context, q *pb.SetMetadataRequest) (*pb.Answer, error) {
	if q.GetLock() == "lost" {
		return nil, &wire.Error{Status: cluster.StatusUnknown, Message: "the term ended"}
	}
	return ok(q.GetLock(), q.GetToken()), nil
}

func (f fake) Verify(ctx context.Context, q *pb.VerifyRequest) (*pb.Answer, error) {
	if q.GetToken() != 17 {
		return refused(pb.Status_STATUS_INVALID_TOKEN, q.GetLock(), "the lock is held under token 17"), nil
	}
	a := ok(q.GetLock(), 17)
	a.TtlMs, a.Mode = 12_500, pb.Mode_MODE_EXCLUSIVE.Enum()
	if q.GetLock() == "shared" || q.GetLock() == "gpu" {
		a.Mode = pb.Mode_MODE_SHARED.Enum()
	}
	if q.GetLock() == "gpu" {
		a.Limit, a.Weight = 5, 1
	}
	return a, nil
}

// fakeProof is what Prove answers.
const fakeProof = "e30.e30.c2lnbmVk"

func (fake) Prove(_ context.Context, q *pb.ProveRequest) (*pb.ProveResponse, error) {
	switch {
	case q.GetLock() == "unsigned":
		return &pb.ProveResponse{Status: pb.Status_STATUS_ERROR, Message: "the volume has no signing key: type holdfast secure offer"}, nil
	case q.GetToken() != 17:
		return &pb.ProveResponse{Status: pb.Status_STATUS_INVALID_TOKEN, Message: "no grant of the lock has this token"}, nil
	}
	return &pb.ProveResponse{Status: pb.Status_STATUS_OK, Proof: fakeProof, Lock: q.GetLock(), Token: 17, TtlMs: 12_500, Epoch: 3, Lsn: 50}, nil
}

func (fake) Cancel(_ context.Context, q *pb.CancelRequest) (*pb.Answer, error) {
	return refused(pb.Status_STATUS_CANCELLED, "", ""), nil
}

func (fake) Outcome(_ context.Context, q *pb.OutcomeRequest) (*pb.OutcomeResponse, error) {
	r := &pb.OutcomeResponse{Status: pb.Status_STATUS_OK, Epoch: 3, Lsn: 50}
	if q.GetRequestId() == 7 {
		r.State = pb.RequestState_REQUEST_STATE_EXECUTED
		r.Outcome = ok("a/b", 17)
		r.Outcome.Receipt = &pb.Receipt{File: "log", Offset: 100, Length: 6, Crc32C: crc32.Checksum([]byte("hello\n"), crc32.MakeTable(crc32.Castagnoli)), Lsn: 42, Token: 17, Epoch: 3, Generation: 1}
	}
	return r, nil
}

func lockOf(name string) *pb.Lock {
	return &pb.Lock{
		Name: name, QueueLength: 2, FileCount: 1,
		Grant: &pb.Grant{
			Lock: name, Token: 17, Epoch: 3, ClientId: "@9", RequestId: 1, TtlMs: 30_000, RemainingMs: 12_500, Heard: true,
			Holder: &pb.Holder{Host: "h1", Pid: 99, Command: "backup"}, SinceUnixMs: 1_700_000_000_000,
		},
	}
}

func (fake) ListLocks(_ context.Context, q *pb.ListLocksRequest) (*pb.ListLocksResponse, error) {
	r := &pb.ListLocksResponse{Status: pb.Status_STATUS_OK, Epoch: 3, Lsn: 50}
	if !q.GetPrimaryOnly() {
		r.AgeMs = 2100
	}
	if q.GetAfter() == "" { // two pages
		r.Locks, r.Next = []*pb.Lock{lockOf(q.GetPrefix() + "a")}, q.GetPrefix()+"a"
	} else {
		r.Locks = []*pb.Lock{{Name: q.GetPrefix() + "b", FileCount: 1}}
	}
	return r, nil
}

func (fake) GetLock(_ context.Context, q *pb.GetLockRequest) (*pb.GetLockResponse, error) {
	r := &pb.GetLockResponse{Status: pb.Status_STATUS_OK, Epoch: 3, Lsn: 50, Lock: &pb.Lock{Name: q.GetLock()}}
	if q.GetLock() == "dataset" {
		r.Lock = lockOf(q.GetLock())
		r.Lock.Grant.Mode, r.Lock.Holders = pb.Mode_MODE_SHARED, 3
		second := lockOf(q.GetLock()).Grant
		second.Token, second.ClientId, second.Mode = 18, "@11", pb.Mode_MODE_SHARED
		r.Lock.SharedHolders = []*pb.Grant{second}
		r.Lock.Waiters = []*pb.Waiter{{ClientId: "@10", Lsn: 19, TtlMs: 30_000, WaitMs: -1}, {ClientId: "@12", Lsn: 20, TtlMs: 30_000, WaitMs: 5000, Mode: pb.Mode_MODE_SHARED}}
	} else if q.GetLock() == "gpu" {
		r.Lock = lockOf(q.GetLock())
		r.Lock.Limit, r.Lock.PermitsTaken, r.Lock.Holders = 5, 4, 2
		r.Lock.Grant.Mode, r.Lock.Grant.Limit, r.Lock.Grant.Weight = pb.Mode_MODE_SHARED, 5, 1
		second := lockOf(q.GetLock()).Grant
		second.Token, second.ClientId, second.Mode, second.Limit, second.Weight = 18, "@11", pb.Mode_MODE_SHARED, 5, 3
		r.Lock.SharedHolders = []*pb.Grant{second}
		r.Lock.Waiters = []*pb.Waiter{{ClientId: "@10", Lsn: 19, TtlMs: 30_000, WaitMs: -1, Mode: pb.Mode_MODE_SHARED, Limit: 5, Weight: 2}}
	} else if q.GetLock() != "free" {
		r.Lock = lockOf(q.GetLock())
		r.Lock.Waiters = []*pb.Waiter{{ClientId: "@10", RequestId: 1, Lsn: 18, TtlMs: 30_000, WaitMs: -1, Holder: &pb.Holder{Host: "h2", Pid: 5, Command: "sync"}}}
		r.Lock.Grant.Metadata = "http://h1:8080"
		r.Lock.Grant.Ask = &pb.AskToRelease{Lock: q.GetLock(), Token: 17, Lsn: 49, Actor: "ann@h9", Reason: "maintenance", GraceMs: 60_000, RemainingMs: 41_000}
		r.Lock.Files = []*pb.File{{Name: "log", Generation: 1, End: 106, LastLsn: 42, Quarantined: true, Reason: "foreign bytes"}}
	}
	return r, nil
}

func (fake) History(_ context.Context, q *pb.HistoryRequest) (*pb.HistoryResponse, error) {
	const day = 1_700_000_000_000
	r := &pb.HistoryResponse{Status: pb.Status_STATUS_OK, Epoch: 3, Lsn: 50}
	lock := q.GetLock()
	if lock == "never" || q.GetPrefix() != "" {
		r.FromLsn, r.KeptLsn, r.Gaps = 20, 20, []*pb.HistoryRange{{FromLsn: 30, ToLsn: 35}}
		return r, nil
	}
	if q.GetBeforeLsn() == 0 { // two pages
		r.Grants = []*pb.PastGrant{
			{Lock: lock, Token: 17, GrantEpoch: 3, ClientId: "@9", Holder: &pb.Holder{Host: "h1", Pid: 99, Command: "backup"}, SinceUnixMs: day, TtlMs: 30_000},
			{Lock: lock, Token: 12, Why: pb.HistoryWhy_HISTORY_WHY_BROKEN, Lsn: 16, Epoch: 3, GrantEpoch: 2, ClientId: "@5", SinceUnixMs: day - 60_000, EndedUnixMs: day - 1000, Actor: "ann@h9", Reason: "it hangs", SuccessorToken: 17,
				LastAppend: &pb.Receipt{File: "log", Offset: 94, Length: 6, Lsn: 15}},
		}
		r.NextLsn, r.NextToken = 16, 12
		return r, nil
	}
	r.Grants = []*pb.PastGrant{
		{Lock: lock, Token: 8, Why: pb.HistoryWhy_HISTORY_WHY_RELEASED_BY_OTHER, Lsn: 9, Epoch: 2, GrantEpoch: 2, ClientId: "@4", Actor: "@5", EndedUnixMs: day - 70_000},
		{Lock: lock, Token: 5, Why: pb.HistoryWhy_HISTORY_WHY_EXPIRED, Lsn: 6, Epoch: 2, GrantEpoch: 1, ClientId: "@4", Reason: "max-hold", EndedUnixMs: day - 80_000},
	}
	r.Skipped = &pb.HistoryRange{FromLsn: 2, ToLsn: 4, Count: 2}
	return r, nil
}

func (fake) Status(_ context.Context, q *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{
		Status: pb.Status_STATUS_OK, ClusterId: "0123456789abcdef0123456789abcdef", ServerId: 1, Role: pb.Role_ROLE_PRIMARY, Epoch: 3, Lsn: 50,
		Primary: &pb.Primary{Id: 1, Client: "h1:7601", Http: "h1:7701"},
		Servers: []*pb.Server{
			{Id: 1, Role: pb.Role_ROLE_PRIMARY, Epoch: 3, Lsn: 50, Pid: 1001, Client: "h1:7601", Http: "h1:7701", Volume: &pb.VolumeStatus{Filesystem: "nfs", Network: true, Full: true, Warnings: []string{"appends wait: log"}}, Reachable: true, Able: true, FeatureLevel: 4, Version: "v4"},
			// Nobody listens on port 1.
			{Id: 2, Role: pb.Role_ROLE_REPLICA, Epoch: 3, Lsn: 49, Client: "127.0.0.1:1", Http: "127.0.0.1:1", Reachable: true, HeardAgoMs: 12, Conflict: true, FeatureLevel: 3},
			{Id: 3, Role: pb.Role_ROLE_UNREACHABLE, Client: "127.0.0.1:1", Http: "127.0.0.1:1", HeardAgoMs: -1},
		},
		FeatureLevel: 3, NextLevel: 4, UpgradeWaitsFor: []string{"server 2 knows feature level 3 only: upgrade it", "server 3 is not heard: start it"},
		Table: &pb.TableStatus{Locks: 2, Held: 1, Waiting: 2, Files: 1, Quarantined: 1, Clients: 4},
	}, nil
}

func (fake) Upgrade(_ context.Context, q *pb.UpgradeRequest) (*pb.Answer, error) {
	a := ok("", 0)
	a.Message = fmt.Sprintf("raised to %d", q.GetLevel())
	return a, nil
}

func (fake) Handover(_ context.Context, q *pb.HandoverRequest) (*pb.Answer, error) {
	if q.GetTo() == 3 {
		return refused(pb.Status_STATUS_ERROR, "", "no live server is able to take over"), nil
	}
	a := ok("", 0)
	a.Message, a.Primary = "server 1 takes over", &pb.Primary{Id: 1}
	return a, nil
}
