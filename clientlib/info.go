// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Receipt is what an append left in a protected file.
type Receipt struct {
	File   cluster.FileName
	Offset int64
	Length int64
	CRC32C uint32
	LSN    cluster.LSN
	Token  cluster.Token
	// Epoch is the reign that executed the append.
	Epoch      cluster.Epoch
	Generation cluster.Generation
	// Repeat says that an earlier try had done it, and the answer was lost.
	Repeat bool
}

func receiptOf(a *pb.Answer) Receipt {
	r := receiptFrom(a.GetReceipt())
	r.Repeat = a.GetRepeat()
	return r
}

func receiptFrom(r *pb.Receipt) Receipt {
	return Receipt{
		File: cluster.FileName(r.GetFile()), Offset: r.GetOffset(), Length: r.GetLength(), CRC32C: r.GetCrc32C(),
		LSN: cluster.LSN(r.GetLsn()), Token: cluster.Token(r.GetToken()), Epoch: cluster.Epoch(r.GetEpoch()),
		Generation: cluster.Generation(r.GetGeneration()),
	}
}

// LockInfo is what there is to know of a lock.
type LockInfo struct {
	Name cluster.LockName
	// Holder is nil if the lock is free. Of several who share the lock it is the oldest,
	// and so are the fields up to Ask.
	Holder *wire.Holder
	// TTL of the lease, and what is left of it; Remaining is negative where only the primary knows.
	TTL, Remaining time.Duration
	// GrantEpoch and Request are of the grant.
	GrantEpoch cluster.Epoch
	Request    cluster.RequestID
	// Heard says that the holder was heard since the present primary serves.
	Heard bool
	// Since is when the lock was granted, by the clock of the primary of GrantEpoch;
	// for people. Zero where that is not known.
	Since time.Time
	// Metadata is what the holder says.
	Metadata string
	// Ask is not nil when the holder is asked to let go.
	Ask *Ask
	// Holders counts who holds the lock, and SharedWith are those beside Holder, the
	// oldest first: as many as one answer lists.
	Holders     int
	SharedWith  []SharerInfo
	QueueLength int
	FileCount   int
	// Waiters and Files are the first in line and the bound files; List leaves them out.
	Waiters []WaiterInfo
	Files   []FileInfo
	// Epoch and LSN are of the state that was read, and Age is how old it was.
	Epoch cluster.Epoch
	LSN   cluster.LSN
	Age   time.Duration
}

// holds says that the token is that of a holder which is listed.
func (l *LockInfo) holds(token cluster.Token) bool {
	return l.Holder != nil && l.Holder.Token == token ||
		slices.ContainsFunc(l.SharedWith, func(x SharerInfo) bool { return x.Token == token })
}

// listsAll says that there are no holders which are not listed.
func (l *LockInfo) listsAll() bool { return l.Holders <= 1+len(l.SharedWith) }

// SharerInfo is one of several who hold a lock in shared mode; see LockInfo.
type SharerInfo struct {
	wire.Holder
	TTL, Remaining time.Duration
	GrantEpoch     cluster.Epoch
	Request        cluster.RequestID
	Heard          bool
	Metadata       string
	Ask            *Ask
}

// WaiterInfo is one in line.
type WaiterInfo struct {
	Client  cluster.ClientID
	Request cluster.RequestID
	// LSN is its place: the line is in this order.
	LSN cluster.LSN
	TTL time.Duration
	// Wait is as asked for; Forever has no end.
	Wait   time.Duration
	Holder Holder
	// Since is when it came, for people.
	Since    time.Time
	Metadata string
	// Shared says that it waits to share the lock.
	Shared bool
}

// Ask is an operator's word to a holder that it let go of its lock.
type Ask struct {
	Actor, Reason string
	// Grace is how long the holder was given, counted anew by each primary. When it is
	// over, the grant is broken.
	Grace time.Duration
	// Remaining is what is left of it; negative where only the primary knows.
	Remaining time.Duration
}

func askOf(a *pb.AskToRelease) *Ask {
	if a == nil {
		return nil
	}
	return &Ask{Actor: a.Actor, Reason: a.Reason, Grace: wire.Millis(a.GraceMs), Remaining: wire.Millis(a.RemainingMs)}
}

// moment is the zero time for 0.
func moment(unixMillis int64) time.Time {
	if unixMillis == 0 {
		return time.Time{}
	}
	return time.UnixMilli(unixMillis)
}

// FileInfo is one protected file.
type FileInfo struct {
	Name       cluster.FileName
	Lock       cluster.LockName
	Generation cluster.Generation
	// Start is its size when it was bound, End the offset of the next append.
	Start, End int64
	// Last append of this generation; Length 0 if there was none.
	LastOffset, LastLength int64
	LastCRC32C             uint32
	LastLSN                cluster.LSN
	Quarantined            bool
	Reason                 string
	// Sealed says that nothing is appended to this generation any more.
	Sealed bool
}

func lockInfoOf(l *pb.Lock, epoch, lsn uint64, ageMs int64) LockInfo {
	g := l.GetGrant()
	info := LockInfo{
		Name: cluster.LockName(l.GetName()), Holders: int(l.GetHolders()), QueueLength: int(l.GetQueueLength()), FileCount: int(l.GetFileCount()),
		Epoch: cluster.Epoch(epoch), LSN: cluster.LSN(lsn), Age: wire.Millis(ageMs),
	}
	if g != nil {
		h := wire.GrantHolder(g, l.GetHolders())
		info.Holder = &h
		info.Since, info.Metadata, info.Ask = moment(g.SinceUnixMs), g.Metadata, askOf(g.Ask)
		info.TTL, info.Remaining = wire.Millis(g.TtlMs), wire.Millis(g.RemainingMs)
		info.GrantEpoch, info.Request, info.Heard = cluster.Epoch(g.Epoch), cluster.RequestID(g.RequestId), g.Heard
	}
	for _, g := range l.GetSharedHolders() {
		info.SharedWith = append(info.SharedWith, SharerInfo{
			Holder: wire.GrantHolder(g, l.GetHolders()), TTL: wire.Millis(g.TtlMs), Remaining: wire.Millis(g.RemainingMs),
			GrantEpoch: cluster.Epoch(g.Epoch), Request: cluster.RequestID(g.RequestId), Heard: g.Heard,
			Metadata: g.Metadata, Ask: askOf(g.Ask),
		})
	}
	for _, w := range l.GetWaiters() {
		wait := Forever
		if w.WaitMs >= 0 {
			wait = wire.Millis(w.WaitMs)
		}
		h := w.GetHolder()
		info.Waiters = append(info.Waiters, WaiterInfo{
			Client: cluster.ClientID(w.ClientId), Request: cluster.RequestID(w.RequestId), LSN: cluster.LSN(w.Lsn),
			TTL: wire.Millis(w.TtlMs), Wait: wait,
			Holder: Holder{Host: h.GetHost(), PID: int(h.GetPid()), Command: h.GetCommand()},
			Since:  moment(w.SinceUnixMs), Metadata: w.Metadata, Shared: w.Mode == pb.Mode_MODE_SHARED,
		})
	}
	for _, f := range l.GetFiles() {
		info.Files = append(info.Files, fileInfoOf(f))
	}
	return info
}

// OutcomeInfo is what became of a request.
type OutcomeInfo struct {
	// State is "not_seen", "pending", "executed", "cancelled" or "stale".
	State   string
	Client  cluster.ClientID
	Request cluster.RequestID
	// Err is how the request was answered, nil for OK and for what has no answer.
	// The acquire of a grant that has ended is wire.ErrLeaseExpired.
	Err error
	// Lock, Token and TTL are of an acquire; Token is 0 while it waits. TTL is what is left
	// of the lease.
	Lock  cluster.LockName
	Token cluster.Token
	TTL   time.Duration
	// QueueLength is how many wait, for a request that waits.
	QueueLength int
	// Receipt is of a request that concerned a file.
	Receipt *Receipt
	// Epoch and LSN are of the record that decided the request.
	Epoch cluster.Epoch
	LSN   cluster.LSN
}

func outcomeInfoOf(state pb.RequestState, a *pb.Answer) OutcomeInfo {
	info := OutcomeInfo{
		State: wire.StateWord(state), Client: cluster.ClientID(a.GetClientId()), Request: cluster.RequestID(a.GetRequestId()),
		Lock: cluster.LockName(a.GetLock()), Token: cluster.Token(a.GetToken()), TTL: wire.Millis(a.GetTtlMs()),
		QueueLength: int(a.GetQueueLength()), Epoch: cluster.Epoch(a.GetEpoch()), LSN: cluster.LSN(a.GetLsn()),
	}
	if state == pb.RequestState_REQUEST_STATE_EXECUTED {
		info.Err = wire.AnswerError(a)
	}
	if a.GetReceipt() != nil {
		r := receiptOf(a)
		info.Receipt = &r
	}
	return info
}

// StatusInfo is the cluster as one server sees it.
type StatusInfo struct {
	ClusterID string
	// Server is who answers, and Role what it is doing.
	Server cluster.ServerID
	Role   string
	Epoch  cluster.Epoch
	LSN    cluster.LSN
	Age    time.Duration
	// Primary is nil where it is not known.
	Primary *wire.Primary
	Servers []ServerInfo
	// Table is nil where the answering server has none.
	Table *TableInfo
}

// ServerInfo is one server. Role is "primary", "replica", "fencing", "candidate"
// or "unreachable".
type ServerInfo struct {
	Member    cluster.Member
	Role      string
	Epoch     cluster.Epoch
	LSN       cluster.LSN
	PID       int64
	Able      bool
	Reachable bool
	// HeardAgo is negative for one that was never heard.
	HeardAgo time.Duration
	Conflict bool
	// Unwaited: answers should wait for this replica (push-ack), and do not, because it was silent.
	Unwaited bool
	Version  string
	// FeatureLevel is up to which it can apply records; 0 where it is not known.
	FeatureLevel uint32
	Uptime       time.Duration
	Volume       VolumeInfo
}

// VolumeInfo is the volume as one server sees it.
type VolumeInfo struct {
	Filesystem string
	Network    bool
	Path       string
	CheckAge   time.Duration
	FreeBytes  int64
	Full       bool
	Warnings   []string
	Canary     CanaryInfo
}

// CanaryInfo says how old a replica's reads of the volume are: the primary
// raises a number there every second and tells it.
type CanaryInfo struct {
	Looks  uint64
	Age    time.Duration // of the last look
	MaxLag time.Duration // of plain reads
	// StaleReads counts plain reads that were old, StaleDirectReads those past the
	// caches, of which there must be none.
	StaleReads, StaleDirectReads uint64
}

// TableInfo counts what is in the table.
type TableInfo struct {
	Locks, Clients, Held, Waiting, Files, Quarantined, Unheard uint64
}

func canaryInfoOf(c *pb.CanaryStatus) CanaryInfo {
	return CanaryInfo{
		Looks: c.GetLooks(), Age: wire.Millis(c.GetAgeMs()), MaxLag: wire.Millis(c.GetMaxLagMs()),
		StaleReads: c.GetStaleReads(), StaleDirectReads: c.GetStaleDirectReads(),
	}
}

func statusInfoOf(r *pb.StatusResponse) StatusInfo {
	info := StatusInfo{
		ClusterID: r.GetClusterId(), Server: cluster.ServerID(r.GetServerId()), Role: wire.RoleWord(r.GetRole()),
		Epoch: cluster.Epoch(r.GetEpoch()), LSN: cluster.LSN(r.GetLsn()), Age: wire.Millis(r.GetAgeMs()),
		Primary: wire.PrimaryOf(r.GetPrimary()),
	}
	for _, s := range r.GetServers() {
		v := s.GetVolume()
		info.Servers = append(info.Servers, ServerInfo{
			Member: cluster.Member{ID: cluster.ServerID(s.Id), GRPC: s.Grpc, HTTP: s.Http, Peer: s.Peer},
			Role:   wire.RoleWord(s.Role), Epoch: cluster.Epoch(s.Epoch), LSN: cluster.LSN(s.Lsn), PID: s.Pid,
			Able: s.Able, Reachable: s.Reachable, HeardAgo: wire.Millis(s.HeardAgoMs), Conflict: s.Conflict, Unwaited: s.Unwaited,
			Version: s.Version, FeatureLevel: s.FeatureLevel, Uptime: wire.Millis(s.UptimeMs),
			Volume: VolumeInfo{
				Filesystem: v.GetFilesystem(), Network: v.GetNetwork(), Path: v.GetPath(), CheckAge: wire.Millis(v.GetCheckAgeMs()),
				FreeBytes: v.GetFreeBytes(), Full: v.GetFull(), Warnings: v.GetWarnings(),
				Canary: canaryInfoOf(v.GetCanary()),
			},
		})
	}
	if t := r.GetTable(); t != nil {
		info.Table = &TableInfo{
			Locks: t.Locks, Clients: t.Clients, Held: t.Held, Waiting: t.Waiting, Files: t.Files,
			Quarantined: t.Quarantined, Unheard: t.Unheard,
		}
	}
	return info
}
