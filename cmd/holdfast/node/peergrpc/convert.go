// SPDX-License-Identifier: Apache-2.0

package peergrpc

import (
	"time"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
	"github.com/holdfast-lock/holdfast/wal"
)

func statusProto(s election.Status) *pb.PeerStatus {
	return &pb.PeerStatus{
		Role: pb.Role(s.Role), Epoch: uint64(s.Epoch), Lsn: uint64(s.LSN), Able: s.Able,
		ProgressNs: int64(s.Progress), StorageNs: int64(s.Storage), Beat: s.Beat,
		FeatureLevel: s.FeatureLevel, Timing: s.Timing,
	}
}

func statusOf(s *pb.PeerStatus) election.Status {
	return election.Status{
		Role: roleOf(s.GetRole()), Epoch: cluster.Epoch(s.GetEpoch()), LSN: cluster.LSN(s.GetLsn()), Able: s.GetAble(),
		Progress: time.Duration(s.GetProgressNs()), Storage: time.Duration(s.GetStorageNs()),
		Beat: s.GetBeat(), FeatureLevel: s.GetFeatureLevel(), Timing: s.GetTiming(),
	}
}

// roleOf takes what this binary does not know for a replica: it is not known to be primary.
func roleOf(r pb.Role) election.Role {
	switch r {
	case pb.Role_ROLE_CANDIDATE, pb.Role_ROLE_FENCING, pb.Role_ROLE_PRIMARY:
		return election.Role(r)
	default:
		return election.RoleReplica
	}
}

func pingProto(p election.Ping) *pb.Ping {
	return &pb.Ping{From: uint32(p.From), Nonce: p.Nonce, Seq: p.Seq, Status: statusProto(p.Status), About: p.About}
}

func pingOf(p *pb.Ping) election.Ping {
	return election.Ping{From: cluster.ServerID(p.GetFrom()), Nonce: p.GetNonce(), Seq: p.GetSeq(), Status: statusOf(p.GetStatus()), About: p.GetAbout()}
}

func pongProto(p election.Pong) *pb.Pong {
	return &pb.Pong{
		From: uint32(p.From), Nonce: p.Nonce, Seq: p.Seq, Status: statusProto(p.Status), Primary: uint32(p.Primary),
	}
}

func pongOf(p *pb.Pong) election.Pong {
	return election.Pong{
		From: cluster.ServerID(p.GetFrom()), Nonce: p.GetNonce(), Seq: p.GetSeq(), Status: statusOf(p.GetStatus()),
		Primary: cluster.ServerID(p.GetPrimary()),
	}
}

func voteProto(v election.Vote) *pb.Vote {
	r := &pb.Vote{
		From: uint32(v.From), Nonce: v.Nonce, Status: statusProto(v.Status),
		HearsPrimary: v.HearsPrimary, Primary: uint32(v.Primary),
	}
	for _, id := range v.Live {
		r.Live = append(r.Live, uint32(id))
	}
	return r
}

func voteOf(v *pb.Vote) election.Vote {
	r := election.Vote{
		From: cluster.ServerID(v.GetFrom()), Nonce: v.GetNonce(), Status: statusOf(v.GetStatus()),
		HearsPrimary: v.GetHearsPrimary(), Primary: cluster.ServerID(v.GetPrimary()),
	}
	for _, id := range v.GetLive() {
		r.Live = append(r.Live, cluster.ServerID(id))
	}
	return r
}

func positionProto(p wal.Position) *pb.Position {
	return &pb.Position{Lsn: uint64(p.LSN), Chain: uint64(p.Chain)}
}

func positionOf(p *pb.Position) wal.Position {
	return wal.Position{LSN: cluster.LSN(p.GetLsn()), Chain: wal.Chain(p.GetChain())}
}

func pushProto(p push.Push) *pb.Push {
	r := &pb.Push{Epoch: uint64(p.Epoch), Before: positionProto(p.Before), Frames: p.Frames, Stamp: p.Stamp, SinceNs: int64(p.Since), Asks: p.Asks}
	if c := p.Chunk; c != nil {
		r.Chunk = &pb.Chunk{At: positionProto(c.At), Offset: int64(c.Offset), Bytes: c.Bytes, Last: c.Last}
	}
	return r
}

func pushOf(p *pb.Push) push.Push {
	r := push.Push{Epoch: cluster.Epoch(p.GetEpoch()), Before: positionOf(p.GetBefore()), Frames: p.GetFrames(), Stamp: p.GetStamp(), Since: time.Duration(p.GetSinceNs()), Asks: p.GetAsks()}
	if c := p.GetChunk(); c != nil {
		r.Chunk = &push.Chunk{At: positionOf(c.GetAt()), Offset: int(c.GetOffset()), Bytes: c.GetBytes(), Last: c.GetLast()}
	}
	return r
}

func ackProto(a push.Ack) *pb.PushAck {
	return &pb.PushAck{Epoch: uint64(a.Epoch), At: positionProto(a.At), Chunk: int64(a.Chunk), Stamp: a.Stamp, Unread: a.Unread}
}

func ackOf(a *pb.PushAck) push.Ack {
	return push.Ack{Epoch: cluster.Epoch(a.GetEpoch()), At: positionOf(a.GetAt()), Chunk: int(a.GetChunk()), Stamp: a.GetStamp(), Unread: a.GetUnread()}
}
