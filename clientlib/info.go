// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Receipt is what the service recorded of an append, or of another operation on a protected file.
type Receipt struct {
	File FileName
	// Offset and Length are the place of the data in this generation of the file, in bytes, and
	// CRC32C is its checksum. Length is 0 where nothing was appended.
	Offset, Length int64
	CRC32C         uint32
	// LSN is that of the record, Token that of the grant under which it was written, and Epoch
	// that of the term which executed it.
	LSN        LSN
	Token      Token
	Epoch      Epoch
	Generation Generation
	// Repeat reports whether an earlier try of the same call was executed, whose answer was lost.
	Repeat bool
}

func receiptOf(a *pb.Answer) Receipt {
	r := receiptFrom(a.GetReceipt())
	r.Repeat = a.GetRepeat()
	return r
}

func receiptFrom(r *pb.Receipt) Receipt {
	return Receipt{
		File: FileName(r.GetFile()), Offset: r.GetOffset(), Length: r.GetLength(), CRC32C: r.GetCrc32C(),
		LSN: LSN(r.GetLsn()), Token: Token(r.GetToken()), Epoch: Epoch(r.GetEpoch()),
		Generation: Generation(r.GetGeneration()),
	}
}

// LockInfo describes a lock at one LSN.
type LockInfo struct {
	Name LockName
	// Holder is nil if the lock is free. Of several that share the lock it is the oldest,
	// whose the fields up to Ask are, too.
	Holder *HolderInfo
	// TTL is that of the lease, and Remaining what is left of it; negative where a replica,
	// which does not know, has answered.
	TTL, Remaining time.Duration
	// GrantEpoch is the epoch of the term that granted the lock, and Request the request that it
	// answered.
	GrantEpoch Epoch
	Request    RequestID
	// Heard reports whether the holder was heard since the present primary serves.
	Heard bool
	// Since is when the lock was granted, by the clock of the primary of GrantEpoch;
	// for people. Zero where that is not known.
	Since time.Time
	// Metadata is the text that the holder publishes.
	Metadata string
	// Ask is not nil when the holder is asked to release the lock.
	Ask *Ask
	// Holders is how many clients hold the lock, and SharedWith are those beside Holder, the
	// oldest first: as many as one answer lists.
	Holders    int
	SharedWith []SharerInfo
	// QueueLength is how many requests wait, FileCount how many files are bound to the lock.
	QueueLength int
	FileCount   int
	// LastToken is the token under which the lock was granted last, if it remembers that (see AcquireOptions.Remember), else
	// 0; List leaves it out.
	LastToken Token
	// Done is the highest slot of the lock that is done (see AcquireOptions.Once), "" for none, and DoneToken the token under which it was.
	Done      string
	DoneToken Token
	// Limit is that of those who hold the lock or wait for it (see AcquireOptions.Limit), 0 for none, and PermitsTaken is how many permits the
	// holders have; in a reset of a watch 0, if not all of them are listed.
	Limit, PermitsTaken uint32
	// Waiters are the first in the queue, and Files the bound files; List leaves them out.
	Waiters []WaiterInfo
	Files   []FileInfo
	// Epoch and LSN are of the state that was read, and Age is how old it was.
	Epoch Epoch
	LSN   LSN
	Age   time.Duration
}

// holds reports whether the token is that of a holder which is listed.
func (l *LockInfo) holds(token Token) bool {
	return l.Holder != nil && l.Holder.Token == token ||
		slices.ContainsFunc(l.SharedWith, func(x SharerInfo) bool { return x.Token == token })
}

// listsAll reports whether there are no holders which are not listed.
func (l *LockInfo) listsAll() bool { return l.Holders <= 1+len(l.SharedWith) }

// SharerInfo is one of several holders of a lock in shared mode; its fields are those of
// LockInfo.
type SharerInfo struct {
	HolderInfo
	TTL, Remaining time.Duration
	GrantEpoch     Epoch
	Request        RequestID
	Heard          bool
	Metadata       string
	Ask            *Ask
}

// WaiterInfo is a request that waits for a lock.
type WaiterInfo struct {
	Client  ClientID
	Request RequestID
	// LSN is its place: the queue is in this order.
	LSN LSN
	TTL time.Duration
	// Wait is how long it waits at most; Forever has no end.
	Wait   time.Duration
	Holder Holder
	// Since is when it came, by the clock of the primary; for people.
	Since    time.Time
	Metadata string
	// Shared reports whether it waits to share the lock.
	Shared bool
	// Limit and Weight are those of AcquireOptions.
	Limit, Weight uint32
	// Identity is that of the client, such as user:alice; "" for none.
	Identity string
}

// Ask is an operator's request to a holder that it release its lock.
type Ask struct {
	Actor, Reason string
	// Grace is how long the holder was given, counted anew by each primary. When it is
	// over, the grant is broken.
	Grace time.Duration
	// Remaining is what is left of it; negative where a replica, which does not know, has
	// answered.
	Remaining time.Duration
}

// askOf returns nil for nil.
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

// FileInfo describes a protected file and its present generation.
type FileInfo struct {
	Name       FileName
	Lock       LockName
	Generation Generation
	// Start is its size when it was bound, End the offset of the next append, in bytes.
	Start, End int64
	// The last append of this generation; LastLength is 0 if there was none.
	LastOffset, LastLength int64
	LastCRC32C             uint32
	LastLSN                LSN
	// Quarantined reports whether the file was changed from outside, and Reason says how: nothing
	// is appended until it is rotated.
	Quarantined bool
	Reason      string
	// Sealed reports whether this generation has ended: nothing is appended to it any more.
	Sealed bool
}

func lockInfoOf(l *pb.Lock, epoch, lsn uint64, ageMs int64) LockInfo {
	g := l.GetGrant()
	info := LockInfo{
		Name: LockName(l.GetName()), Holders: int(l.GetHolders()), QueueLength: int(l.GetQueueLength()), FileCount: int(l.GetFileCount()), LastToken: Token(l.GetLastToken()),
		Done: l.GetDone(), DoneToken: Token(l.GetDoneToken()), Limit: l.GetLimit(), PermitsTaken: l.GetPermitsTaken(),
		Epoch: Epoch(epoch), LSN: LSN(lsn), Age: wire.Millis(ageMs),
	}
	if g != nil {
		h := wire.GrantHolder(g, l.GetHolders())
		h.PermitsTaken = l.GetPermitsTaken()
		info.Holder = &h
		info.Since, info.Metadata, info.Ask = moment(g.SinceUnixMs), g.Metadata, askOf(g.Ask)
		info.TTL, info.Remaining = wire.Millis(g.TtlMs), wire.Millis(g.RemainingMs)
		info.GrantEpoch, info.Request, info.Heard = Epoch(g.Epoch), RequestID(g.RequestId), g.Heard
	}
	for _, g := range l.GetSharedHolders() {
		info.SharedWith = append(info.SharedWith, SharerInfo{
			HolderInfo: wire.GrantHolder(g, l.GetHolders()), TTL: wire.Millis(g.TtlMs), Remaining: wire.Millis(g.RemainingMs),
			GrantEpoch: Epoch(g.Epoch), Request: RequestID(g.RequestId), Heard: g.Heard,
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
			Client: ClientID(w.ClientId), Request: RequestID(w.RequestId), LSN: LSN(w.Lsn),
			TTL: wire.Millis(w.TtlMs), Wait: wait,
			Holder: holderOf(h),
			Since:  moment(w.SinceUnixMs), Metadata: w.Metadata, Shared: w.Mode == pb.Mode_MODE_SHARED,
			Limit: w.Limit, Weight: w.Weight, Identity: h.GetIdentity(),
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
	Client  ClientID
	Request RequestID
	// Err is the refusal of the request, nil if it succeeded or has no answer yet. It is
	// ErrLeaseExpired for the acquire of a grant that has ended.
	Err error
	// Lock, Token and TTL are those of an acquire. Token is 0 while it waits; TTL is what is left
	// of the lease.
	Lock  LockName
	Token Token
	TTL   time.Duration
	// QueueLength is the length of the queue in which the request waits.
	QueueLength int
	// Receipt is not nil for a request on a file.
	Receipt *Receipt
	// Epoch and LSN are those of the record that decided the request.
	Epoch Epoch
	LSN   LSN
}

func outcomeInfoOf(state pb.RequestState, a *pb.Answer) OutcomeInfo {
	info := OutcomeInfo{
		State: wire.StateWord(state), Client: ClientID(a.GetClientId()), Request: RequestID(a.GetRequestId()),
		Lock: LockName(a.GetLock()), Token: Token(a.GetToken()), TTL: wire.Millis(a.GetTtlMs()),
		QueueLength: int(a.GetQueueLength()), Epoch: Epoch(a.GetEpoch()), LSN: LSN(a.GetLsn()),
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

// StatusInfo is the state of the cluster as one server sees it.
type StatusInfo struct {
	ClusterID string
	// Server is the one that answers, and Role its role, as in ServerInfo.
	Server ServerID
	Role   string
	// Epoch and LSN are those of its table, and Age is how old that is.
	Epoch Epoch
	LSN   LSN
	Age   time.Duration
	// Primary is nil where it is not known.
	Primary *PrimaryInfo
	Servers []ServerInfo
	// Table is nil if the server has none.
	Table *TableInfo
}

// ServerInfo describes one server of the cluster.
type ServerInfo struct {
	Member Member
	// Role is "primary", "replica", "fencing" (it becomes the primary), "candidate" or
	// "unreachable".
	Role string
	// Epoch and LSN are those of its table.
	Epoch Epoch
	LSN   LSN
	PID   int64
	// Able reports whether it can become the primary.
	Able bool
	// Reachable reports whether the answering server hears it, and HeardAgo is when it last did;
	// negative if it never did.
	Reachable bool
	HeardAgo  time.Duration
	// Conflict reports whether another process runs under the same ID.
	Conflict bool
	// Unwaited reports whether answers should wait for this replica (push-ack) and do not,
	// because it was silent.
	Unwaited bool
	Version  string
	// FeatureLevel is the newest level of records that it can apply; 0 = not known.
	FeatureLevel uint32
	Uptime       time.Duration
	Volume       VolumeInfo
}

// VolumeInfo describes the volume as one server sees it.
type VolumeInfo struct {
	// Filesystem is the type of the filesystem, Network whether it is one over a network, and
	// Path where the volume is.
	Filesystem string
	Network    bool
	Path       string
	// CheckAge is how long ago a read of the volume last succeeded, as servers check that.
	CheckAge time.Duration
	// FreeBytes is 0 where it is not known.
	FreeBytes int64
	// Full reports whether the log cannot grow: requests that need space get
	// ErrStorageUnavailable, releases still work.
	Full bool
	// Warnings say what is wrong, for people.
	Warnings []string
	Canary   CanaryInfo
}

// CanaryInfo shows how old a replica's reads of the volume are: the primary raises a number there
// every second and sends it to the replicas, which compare.
type CanaryInfo struct {
	Looks  uint64        // comparisons so far
	Age    time.Duration // since the last one
	MaxLag time.Duration // for how long at most a plain read was old
	// StaleReads counts plain reads that were old, StaleDirectReads old reads past the
	// caches, of which there must be none.
	StaleReads, StaleDirectReads uint64
}

// TableInfo counts what is in the table: locks, clients, locks that are held, requests that wait,
// files, quarantined files, and holders that were not heard since the present primary serves.
type TableInfo struct {
	Locks, Clients, Held, Waiting, Files, Quarantined, Unheard uint64
}

func canaryInfoOf(c *pb.CanaryStatus) CanaryInfo {
	return CanaryInfo{
		Looks: c.GetLooks(), Age: wire.Millis(c.GetAgeMs()), MaxLag: wire.Millis(c.GetMaxLagMs()),
		StaleReads: c.GetStaleReads(), StaleDirectReads: c.GetStaleDirectReads(),
	}
}

func memberOf(s *pb.Server) Member {
	m := Member{ID: ServerID(s.Id), Client: s.Client, Peer: s.Peer}
	if s.Http != s.Client {
		m.OldHTTP = s.Http
	}
	return m
}

func statusInfoOf(r *pb.StatusResponse) StatusInfo {
	info := StatusInfo{
		ClusterID: r.GetClusterId(), Server: ServerID(r.GetServerId()), Role: wire.RoleWord(r.GetRole()),
		Epoch: Epoch(r.GetEpoch()), LSN: LSN(r.GetLsn()), Age: wire.Millis(r.GetAgeMs()),
		Primary: wire.PrimaryOf(r.GetPrimary()),
	}
	for _, s := range r.GetServers() {
		v := s.GetVolume()
		info.Servers = append(info.Servers, ServerInfo{
			Member: memberOf(s),
			Role:   wire.RoleWord(s.Role), Epoch: Epoch(s.Epoch), LSN: LSN(s.Lsn), PID: s.Pid,
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
