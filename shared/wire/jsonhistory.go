// SPDX-License-Identifier: Apache-2.0

package wire

import "github.com/holdfast-lock/holdfast/shared/wire/pb"

// HistoryBody is a page of grants that ended, and of those that have not.
type HistoryBody struct {
	Status  string     `json:"status"`
	Message string     `json:"message"`
	Epoch   uint64     `json:"epoch"`
	LSN     uint64     `json:"lsn"`
	Age     string     `json:"age"`
	Grants  []PastBody `json:"grants"`
	// NextLSN and NextToken are the position before which the next page continues; 0 on the
	// last one.
	NextLSN   uint64 `json:"next_lsn"`
	NextToken uint64 `json:"next_token"`
	// FromLSN is the LSN after which everything that matches was searched, KeptLSN that after
	// which anything is kept.
	FromLSN uint64          `json:"from_lsn"`
	KeptLSN uint64          `json:"kept_lsn"`
	Skipped *HistoryRange   `json:"skipped"` // null if nothing was left out
	Gaps    []*HistoryRange `json:"gaps"`
}

// PastBody is one grant. Why is "held" for one that has not ended; then the fields of its end
// are zero.
type PastBody struct {
	Lock           string `json:"lock"`
	Token          uint64 `json:"token"`
	Why            string `json:"why"`
	Since          Moment `json:"since"` // by the clock of its primary, like Ended
	Ended          Moment `json:"ended"`
	LSN            uint64 `json:"lsn"`
	Epoch          uint64 `json:"epoch"`
	GrantEpoch     uint64 `json:"grant_epoch"`
	ClientID       string `json:"client_id"`
	RequestID      uint64 `json:"request_id"`
	TTL            string `json:"ttl"`  // of its lease; "0s" where it is not known
	Mode           string `json:"mode"` // the last one
	Host           string `json:"host"`
	PID            int64  `json:"pid"`
	Command        string `json:"command"`
	Metadata       string `json:"metadata"`
	Actor          string `json:"actor"`
	Reason         string `json:"reason"`
	File           string `json:"file"` // of the last append under it; "" = none is known
	Offset         int64  `json:"offset"`
	Length         int64  `json:"length"`
	AppendLSN      uint64 `json:"append_lsn"`
	SuccessorToken uint64 `json:"successor_token"`
	Identity       string `json:"identity,omitempty"`
	User           string `json:"user,omitempty"` // as in Holder
	Limit          uint32 `json:"limit,omitempty"`
	Weight         uint32 `json:"weight,omitempty"`
}

// HistoryRange is a range of LSNs, both ends included, and how many ends in it are left out; 0 if
// that is not known.
type HistoryRange struct {
	From  uint64 `json:"from_lsn"`
	To    uint64 `json:"to_lsn"`
	Count uint64 `json:"count"`
}

// HistoryBodyOf converts a page of the history.
func HistoryBodyOf(r *pb.HistoryResponse) HistoryBody {
	b := HistoryBody{
		Status: FromStatus(r.GetStatus()).String(), Message: r.GetMessage(), Epoch: r.GetEpoch(), LSN: r.GetLsn(), Age: duration(r.GetAgeMs()),
		Grants: make([]PastBody, len(r.GetGrants())), NextLSN: r.GetNextLsn(), NextToken: r.GetNextToken(),
		FromLSN: r.GetFromLsn(), KeptLSN: r.GetKeptLsn(), Skipped: historyRange(r.GetSkipped()), Gaps: make([]*HistoryRange, len(r.GetGaps())),
	}
	for i, g := range r.GetGrants() {
		h, a := g.GetHolder(), g.GetLastAppend()
		b.Grants[i] = PastBody{
			Lock: g.GetLock(), Token: g.GetToken(), Why: WhyWord(g.GetWhy()), Since: Moment(g.GetSinceUnixMs()), Ended: Moment(g.GetEndedUnixMs()),
			LSN: g.GetLsn(), Epoch: g.GetEpoch(), GrantEpoch: g.GetGrantEpoch(), ClientID: g.GetClientId(), RequestID: g.GetRequestId(),
			TTL: duration(g.GetTtlMs()), Mode: ModeWord(g.GetMode()), User: h.GetUser(), Host: h.GetHost(), PID: h.GetPid(), Command: h.GetCommand(), Metadata: g.GetMetadata(), Actor: g.GetActor(), Reason: g.GetReason(),
			File: a.GetFile(), Offset: a.GetOffset(), Length: a.GetLength(), AppendLSN: a.GetLsn(), SuccessorToken: g.GetSuccessorToken(), Identity: h.GetIdentity(),
			Limit: g.GetLimit(), Weight: g.GetWeight(),
		}
	}
	for i, g := range r.GetGaps() {
		b.Gaps[i] = historyRange(g)
	}
	return b
}

func historyRange(r *pb.HistoryRange) *HistoryRange {
	if r == nil {
		return nil
	}
	return &HistoryRange{From: r.GetFromLsn(), To: r.GetToLsn(), Count: r.GetCount()}
}

// WhyWord returns the name of how a grant ended: "held", "released", "released_by_other",
// "expired", "broken", "cleared".
func WhyWord(w pb.HistoryWhy) string { return word(w.String(), "HISTORY_WHY_") }
