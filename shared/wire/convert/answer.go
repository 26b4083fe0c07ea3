// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// FromOutcome returns the outcome as an answer, without what only the front end
// knows: correlation, primary and retry_after_ms.
func FromOutcome(out *locktable.Outcome) *pb.Answer {
	a := &pb.Answer{
		Status: pb.Status(out.Status), Message: strings.ToValidUTF8(out.Message, "?"),
		ClientId: string(out.Client), RequestId: uint64(out.Request),
		Protected: out.Client != "" && !out.Client.Anonymous(), Repeat: out.Repeat,
		Epoch: uint64(out.Epoch), Lsn: uint64(out.LSN),
		Lock: string(out.Lock), Token: uint64(out.Token), TtlMs: wire.FloorMillis(out.TTL),
		QueueLength: uint32(out.QueueLength), Committed: out.Committed, MembersVersion: out.Version, Marked: out.Marked, Cell: uint32(out.Cell),
		Limit: out.Permit.Limit, Weight: out.Permit.Weight,
	}
	if h := out.Holder; h != nil {
		user, host := h.Holder.UserAndHost()
		a.Holder = &pb.LockHolder{
			ClientId: string(h.Client), Token: uint64(h.Token),
			User: user, Host: host, Pid: int64(h.Holder.PID), Command: h.Holder.Command, SinceUnixMs: h.Since,
			Mode: pb.Mode(h.Mode), Holders: uint32(h.Count), Identity: h.Identity,
			Limit: h.Permit.Limit, Weight: h.Permit.Weight, PermitsTaken: h.Taken,
		}
	}
	a.Ask, a.HoldLeftMs = FromAsk(out.Ask), wire.FloorMillis(out.HoldLeft)
	if tellsFile(out) {
		a.Receipt = &pb.Receipt{
			File: string(out.File), Offset: out.Offset, Length: out.Length, Crc32C: out.CRC,
			Lsn: uint64(out.LSN), Token: uint64(out.Token), Epoch: uint64(out.Epoch), Generation: uint64(out.Generation),
		}
	}
	return a
}

// tellsFile reports whether an outcome has a place in a file: of an append, or of the end of
// the file if an append was refused because of it.
func tellsFile(out *locktable.Outcome) bool {
	switch {
	case out.File == "":
		return false
	case out.Status == cluster.StatusOffsetMismatch, out.Status == cluster.StatusFileSealed:
		return out.Generation != 0
	}
	return out.LSN != 0
}

// FromLookup returns the result of Table.Lookup as the answer to an Outcome call, without
// where and when it was read.
func FromLookup(state locktable.RequestState, out *locktable.Outcome) *pb.OutcomeResponse {
	return &pb.OutcomeResponse{
		Status: pb.Status_STATUS_OK, State: pb.RequestState(state), Outcome: FromOutcome(out),
	}
}

// FromHolder converts a holder and the identity of its client, nil for none of them.
func FromHolder(h locktable.Holder, identity string) *pb.Holder {
	if h == (locktable.Holder{}) && identity == "" {
		return nil
	}
	user, host := h.UserAndHost()
	return &pb.Holder{User: user, Host: host, Pid: int64(h.PID), Command: h.Command, Identity: identity}
}

// ToHolder is the inverse of FromHolder, without the identity, which no client sets.
func ToHolder(h *pb.Holder) locktable.Holder {
	return locktable.Holder{Host: locktable.HostOf(h.GetUser(), h.GetHost()), PID: int(h.GetPid()), Command: h.GetCommand()}
}

// RemainingUnknown means that only the primary knows what is left of a lease.
const RemainingUnknown time.Duration = -time.Millisecond

// FromGrant converts a grant, nil for that of a free lock. remaining is what is left of the
// lease, or RemainingUnknown.
func FromGrant(g *locktable.Grant, remaining time.Duration, heard bool) *pb.Grant {
	if g.Token == 0 {
		return nil
	}
	return &pb.Grant{
		Lock: string(g.Lock), Token: uint64(g.Token), Epoch: uint64(g.Epoch),
		ClientId: string(g.Client), RequestId: uint64(g.Request),
		TtlMs: wire.FloorMillis(g.TTL), RemainingMs: remainingMillis(remaining),
		Mode: pb.Mode(g.Mode), Holder: FromHolder(g.Holder, g.Identity), Heard: heard,
		SinceUnixMs: g.Since, Metadata: g.Metadata, Ask: FromAsk(g.Ask),
		MaxHoldMs: wire.FloorMillis(g.MaxHold), Heartbeat: g.Heartbeat, Limit: g.Permit.Limit, Weight: g.Permit.Weight,
	}
}

// FromAsk converts an Ask, nil for nil.
func FromAsk(a *locktable.Ask) *pb.AskToRelease {
	if a == nil {
		return nil
	}
	return &pb.AskToRelease{
		Lock: string(a.Lock), Token: uint64(a.Token), Lsn: uint64(a.LSN), Actor: a.Actor, Reason: a.Reason,
		GraceMs: wire.CeilMillis(a.Grace), RemainingMs: remainingMillis(a.Remaining), RequestId: uint64(a.Request),
	}
}

func remainingMillis(d time.Duration) int64 {
	if d == RemainingUnknown {
		return -1
	}
	return max(0, wire.FloorMillis(d))
}

// FromView converts a lock, without its waiters, files and further holders.
func FromView(v *locktable.LockView, remaining time.Duration, heard bool) *pb.Lock {
	return &pb.Lock{
		Name: string(v.Name), Grant: FromGrant(&v.Grant, remaining, heard),
		QueueLength: uint32(v.QueueLength), FileCount: uint32(v.FileCount), Holders: uint32(v.Holders),
		Limit: v.Limit, PermitsTaken: v.Taken,
	}
}

// FromWaiter converts a waiting request.
func FromWaiter(w *locktable.Waiter) *pb.Waiter {
	return &pb.Waiter{
		ClientId: string(w.Client), RequestId: uint64(w.Request), Lsn: uint64(w.LSN), Epoch: uint64(w.Epoch),
		TtlMs: wire.FloorMillis(w.TTL), WaitMs: waitMillis(w.Wait), Mode: pb.Mode(w.Mode), Holder: FromHolder(w.Holder, w.Identity),
		SinceUnixMs: w.Since, Metadata: w.Metadata, Limit: w.Permit.Limit, Weight: w.Permit.Weight,
	}
}

// FromRing converts a ring, nil for none.
func FromRing(ring locktable.Ring) *pb.Ring {
	if len(ring) == 0 {
		return nil
	}
	r := &pb.Ring{}
	for i := range ring {
		w := &ring[i].Waiter
		r.Links = append(r.Links, &pb.RingLink{
			ClientId: string(w.Client), RequestId: uint64(w.Request), Holder: FromHolder(w.Holder, w.Identity), Lock: string(w.Lock), Token: uint64(ring[i].Token),
		})
	}
	return r
}

func waitMillis(d time.Duration) int64 {
	if d == locktable.WaitForever {
		return -1
	}
	return wire.CeilMillis(d)
}

// FromFile converts the state of one protected file.
func FromFile(name cluster.FileName, f *locktable.FileState) *pb.File {
	return &pb.File{
		Name: string(name), Lock: string(f.Lock), Generation: uint64(f.Generation), Inode: f.Inode,
		Start: f.Start, End: f.End,
		LastOffset: f.LastOffset, LastLength: f.LastLength, LastCrc32C: f.LastCRC, LastLsn: uint64(f.LastLSN),
		Quarantined: f.Quarantined, Reason: f.Reason, Sealed: f.Sealed,
	}
}

// FromRecord returns the record as an event. at is used for a record without a time. The token of
// a grant is that of the grant.
func FromRecord(r *locktable.Record, at time.Time) *pb.Event {
	e := &pb.Event{
		Lsn: uint64(r.LSN), Epoch: uint64(r.Epoch), Kind: pb.EventKind(r.Kind),
		Lock: string(r.Lock), Token: uint64(r.Token), ClientId: string(r.Client), RequestId: uint64(r.Request),
		TtlMs: wire.FloorMillis(r.TTL), WaitMs: waitMillis(r.Wait), Mode: pb.Mode(r.Mode), Holder: FromHolder(r.Holder, r.Identity),
		File: string(r.File), Generation: uint64(r.Generation), Offset: r.Offset, Length: r.Length, Crc32C: r.CRC,
		Actor: r.Actor, Reason: r.Reason, ServerId: uint32(r.Server), UnixMs: r.Time, Metadata: r.Metadata, Slot: string(r.Slot),
		Limit: r.Permit.Limit, Weight: r.Permit.Weight,
	}
	if r.Time == 0 { // an older binary wrote it
		e.UnixMs = at.UnixMilli()
	}
	if r.Kind == locktable.KindGrant {
		e.Token = uint64(r.LSN.Token())
	}
	return e
}

// LossReason returns why a record of this kind ends a grant, NONE if it ends none.
func LossReason(k locktable.Kind) pb.LossReason {
	switch k {
	case locktable.KindExpire:
		return pb.LossReason_LOSS_REASON_EXPIRED
	case locktable.KindBreak:
		return pb.LossReason_LOSS_REASON_BROKEN
	case locktable.KindForceClear:
		return pb.LossReason_LOSS_REASON_FORCE_CLEARED
	case locktable.KindRelease:
		return pb.LossReason_LOSS_REASON_RELEASED
	default:
		return pb.LossReason_LOSS_REASON_NONE
	}
}
