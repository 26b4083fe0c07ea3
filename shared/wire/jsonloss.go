// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// LossBody tells a holder that its grant has ended. All fields are always present.
type LossBody struct {
	Lock           string   `json:"lock"` // "" = every lock
	Token          uint64   `json:"token"`
	RequestID      uint64   `json:"request_id"` // of the acquire
	Reason         string   `json:"reason"`     // LossWord
	LSN            uint64   `json:"lsn"`
	Epoch          uint64   `json:"epoch"`
	SuccessorToken uint64   `json:"successor_token"` // 0 = nobody was next yet
	LastAppend     *Receipt `json:"last_append"`     // null if nothing was appended under the token
	Actor          string   `json:"actor"`
	Message        string   `json:"message"`
}

// LossBodyOf is a loss in JSON.
func LossBodyOf(l *pb.Loss) LossBody {
	b := LossBody{
		Lock: l.GetLock(), Token: l.GetToken(), RequestID: l.GetRequestId(), Reason: LossWord(l.GetReason()),
		LSN: l.GetLsn(), Epoch: l.GetEpoch(), SuccessorToken: l.GetSuccessorToken(), Actor: l.GetActor(), Message: l.GetMessage(),
	}
	if r := l.GetLastAppend(); r != nil {
		b.LastAppend = &Receipt{
			File: cluster.FileName(r.GetFile()), Offset: r.GetOffset(), Length: r.GetLength(), CRC32C: r.GetCrc32C(), LSN: cluster.LSN(r.GetLsn()),
			Token: cluster.Token(r.GetToken()), Epoch: cluster.Epoch(r.GetEpoch()), Generation: cluster.Generation(r.GetGeneration()),
		}
	}
	return b
}
