// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// FromEnd converts a grant that ended.
func FromEnd(e *history.End) *pb.PastGrant {
	p := &pb.PastGrant{
		Lock: string(e.Lock), Token: uint64(e.Token), Why: pb.HistoryWhy(e.Why), Lsn: uint64(e.LSN), Epoch: uint64(e.Epoch),
		GrantEpoch: uint64(e.Granted), ClientId: string(e.Client), RequestId: uint64(e.Request), Holder: FromHolder(e.Holder, e.Identity),
		Metadata: e.Metadata, SinceUnixMs: e.Since, EndedUnixMs: e.Time, Actor: e.Actor, Reason: e.Reason, SuccessorToken: uint64(e.Successor),
		Mode: pb.Mode(e.Mode), TtlMs: e.TTL.Milliseconds(), Limit: e.Permit.Limit, Weight: e.Permit.Weight,
	}
	if a := e.Append; a.Length > 0 {
		p.LastAppend = &pb.Receipt{File: string(a.File), Offset: a.Offset, Length: a.Length, Lsn: uint64(a.LSN), Token: uint64(e.Token)}
	}
	return p
}

// FromHeld returns a live grant in the form of those that ended.
func FromHeld(g *locktable.Grant) *pb.PastGrant {
	return &pb.PastGrant{
		Lock: string(g.Lock), Token: uint64(g.Token), Why: pb.HistoryWhy_HISTORY_WHY_HELD, GrantEpoch: uint64(g.Epoch),
		ClientId: string(g.Client), RequestId: uint64(g.Request), Holder: FromHolder(g.Holder, g.Identity), Metadata: g.Metadata, SinceUnixMs: g.Since,
		Mode: pb.Mode(g.Mode), TtlMs: g.TTL.Milliseconds(), Limit: g.Permit.Limit, Weight: g.Permit.Weight,
	}
}

// FromRange converts a range of skipped ends, nil for an empty one.
func FromRange(k history.Skip) *pb.HistoryRange {
	if k.From == 0 {
		return nil
	}
	return &pb.HistoryRange{FromLsn: uint64(k.From), ToLsn: uint64(k.To), Count: k.Count}
}

// LastAppend returns the last append under a live grant as the table has it, without its epoch;
// nil if it has none.
func LastAppend(t *locktable.Table, g *locktable.Grant) *pb.Receipt {
	a := history.LastAppend(t, g)
	if a.Length == 0 {
		return nil
	}
	f, _ := t.File(a.File)
	return &pb.Receipt{
		File: string(a.File), Offset: a.Offset, Length: a.Length, Crc32C: f.LastCRC,
		Lsn: uint64(a.LSN), Token: uint64(g.Token), Generation: uint64(f.Generation),
	}
}
