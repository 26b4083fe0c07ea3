// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// HistoryQuery selects grants. The zero value selects those of all locks.
type HistoryQuery struct {
	// Lock is the lock whose grants are wanted, or Prefix what the names of locks begin with; at most one of them.
	Lock   LockName
	Prefix string
	// Token is that of the only grant that is wanted; 0 = any.
	Token Token
	// At selects grants that were held at this time, and Since those that ended then or later, and live ones, by the
	// clocks of primaries. Zero = any.
	At, Since time.Time
	// After selects grants that ended after this LSN; 0 = any.
	After LSN
	// Before is the Next of the page before; the zero value is the first page.
	Before HistoryPosition
	// Limit bounds the grants of a page; 0 = as many as the service takes for good.
	Limit int
}

// HistoryPosition is a place in the history, between two grants.
type HistoryPosition struct {
	LSN   LSN
	Token Token
}

// HistoryPage is a part of the history.
type HistoryPage struct {
	// Grants are the live ones, on the first page, and then those that ended, the latest first.
	Grants []PastGrant
	// Next is where the next page continues: HistoryQuery.Before. It is zero on the last one.
	Next HistoryPosition
	// LSN is the state that the answer is of, and Epoch that of its term. Age is how old it was.
	LSN   LSN
	Epoch Epoch
	Age   time.Duration
	// Searched is the LSN after which everything was searched, and Kept the one after which anything is kept: the history
	// is bounded. 0 = all.
	Searched, Kept LSN
	// Skipped are plain releases that were left out because there were many, of these and other locks; nil = none. Gaps are
	// where it is not known what ended.
	Skipped *HistoryRange
	Gaps    []HistoryRange
	// Message is what people should know of the answer.
	Message string
}

// HistoryRange is a piece of the log, both ends included, and how many ends of grants are missing in it; 0 = not known.
type HistoryRange struct {
	From, To LSN
	Count    uint64
}

// PastGrant is one grant, ended or not.
type PastGrant struct {
	Lock  LockName
	Token Token
	// Why is how it ended: "released", "released_by_other", "expired", "broken" or "cleared"; "held" if it has not.
	Why string
	// Since is when it was granted, and Ended when it ended, by the clocks of the primaries; zero where that is not known.
	Since, Ended time.Time
	// LSN and Epoch are of the record that ended it, and GrantEpoch is of the term that granted it.
	LSN               LSN
	Epoch, GrantEpoch Epoch
	// Client and Request name the request that it answered, and Holder and Identity are of its client.
	Client   ClientID
	Request  RequestID
	Holder   Holder
	Identity string
	// TTL is that of its lease; 0 where it is not known.
	TTL time.Duration
	// Shared reports whether it could be shared at last.
	Shared   bool
	Metadata string
	// Actor is who ended it, where that was not its holder, and Reason why.
	Actor, Reason string
	// LastAppend is the last append under its token; nil where there was none, or it is not known any more.
	LastAppend *Receipt
	// Successor is the token of the waiter that got the lock at once; 0 if none did.
	Successor Token
}

// History returns one page of the history of grants: which ended, when and why, and which have not. The history is kept
// for people; it is bounded, and says what it lacks. That of several cells of a site is refused, as they have no common order: see Cell.
func (c *Client) History(ctx context.Context, q HistoryQuery) (HistoryPage, error) {
	k := &call{op: "history", lock: q.Lock}
	switch {
	case q.Lock != "" && q.Prefix != "":
		return HistoryPage{}, k.fail(wire.Invalid("both a lock and a prefix: name one of them"))
	case q.Limit < 0:
		return HistoryPage{}, k.fail(wire.Invalid("a negative limit: use 0 for that of the service"))
	}
	m := &pb.HistoryRequest{
		Token: uint64(q.Token), AtUnixMs: unixMillis(q.At), SinceUnixMs: unixMillis(q.Since), AfterLsn: uint64(q.After),
		BeforeLsn: uint64(q.Before.LSN), BeforeToken: uint64(q.Before.Token), Limit: uint32(q.Limit),
	}
	switch {
	case q.Lock != "":
		m.Target = &pb.HistoryRequest_Lock{Lock: string(q.Lock)}
	case q.Prefix != "" || q.Token == 0:
		m.Target = &pb.HistoryRequest_Prefix{Prefix: q.Prefix}
	}
	c, err := c.where(ctx, k, q.Lock, q.Prefix)
	if err != nil {
		return HistoryPage{}, err
	}
	r, err := question(ctx, c, k, func(ctx context.Context, s pb.LockServiceClient) (*pb.HistoryResponse, error) {
		return s.History(ctx, m)
	})
	if err != nil {
		return HistoryPage{}, err
	}
	return historyPageOf(r), nil
}

// unixMillis is 0 for the zero time.
func unixMillis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func historyPageOf(r *pb.HistoryResponse) HistoryPage {
	p := HistoryPage{
		Next: HistoryPosition{LSN: LSN(r.GetNextLsn()), Token: Token(r.GetNextToken())},
		LSN:  LSN(r.GetLsn()), Epoch: Epoch(r.GetEpoch()), Age: wire.Millis(r.GetAgeMs()),
		Searched: LSN(r.GetFromLsn()), Kept: LSN(r.GetKeptLsn()), Message: r.GetMessage(),
	}
	for _, g := range r.GetGrants() {
		p.Grants = append(p.Grants, pastGrantOf(g))
	}
	if x := r.GetSkipped(); x != nil {
		skipped := historyRangeOf(x)
		p.Skipped = &skipped
	}
	for _, x := range r.GetGaps() {
		p.Gaps = append(p.Gaps, historyRangeOf(x))
	}
	return p
}

func historyRangeOf(x *pb.HistoryRange) HistoryRange {
	return HistoryRange{From: LSN(x.GetFromLsn()), To: LSN(x.GetToLsn()), Count: x.GetCount()}
}

func pastGrantOf(g *pb.PastGrant) PastGrant {
	h := g.GetHolder()
	past := PastGrant{
		Lock: LockName(g.GetLock()), Token: Token(g.GetToken()), Why: wire.WhyWord(g.GetWhy()),
		Since: moment(g.GetSinceUnixMs()), Ended: moment(g.GetEndedUnixMs()),
		LSN: LSN(g.GetLsn()), Epoch: Epoch(g.GetEpoch()), GrantEpoch: Epoch(g.GetGrantEpoch()),
		Client: ClientID(g.GetClientId()), Request: RequestID(g.GetRequestId()),
		Holder: holderOf(h), Identity: h.GetIdentity(),
		TTL: wire.Millis(g.GetTtlMs()), Shared: g.GetMode() == pb.Mode_MODE_SHARED, Metadata: g.GetMetadata(),
		Actor: g.GetActor(), Reason: g.GetReason(), Successor: Token(g.GetSuccessorToken()),
	}
	if a := g.GetLastAppend(); a != nil {
		last := receiptFrom(a)
		past.LastAppend = &last
	}
	return past
}
