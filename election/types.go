// SPDX-License-Identifier: Apache-2.0

package election

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// ErrYield means that this server should not take over any more.
var ErrYield = errors.New("another server goes first")

// ErrNeedsOperator means that a claim cannot succeed until an operator has repaired
// something: the server tries again, but seldom.
var ErrNeedsOperator = errors.New("operator action required")

// Role is what a server is doing.
type Role uint8

// The roles of a server. They cross the wire: append only.
const (
	// RoleReplica follows a primary, or waits for one.
	RoleReplica Role = iota
	// RoleCandidate is claiming a term.
	RoleCandidate
	// RoleFencing has claimed a term and takes over.
	RoleFencing
	// RolePrimary serves.
	RolePrimary
)

// String returns the name of the role, as in status.
func (r Role) String() string {
	switch r {
	case RoleReplica:
		return "replica"
	case RoleCandidate:
		return "candidate"
	case RoleFencing:
		return "fencing"
	case RolePrimary:
		return "primary"
	}
	return "invalid"
}

// hasTerm reports whether the role is that of a primary, serving or not yet.
func (r Role) hasTerm() bool { return r == RoleFencing || r == RolePrimary }

// Status is what a server reports of itself.
type Status struct {
	Role Role
	// Epoch is the server's own while it is fencing or primary, else the highest it knows.
	Epoch cluster.Epoch
	LSN   cluster.LSN // the last one it has; a primary's last committed one
	// Able reports whether it could claim now. The node sets it if its claim is prepared;
	// other servers also see false without a majority, in back-off, with stale storage, in
	// a nonce conflict and while it is primary.
	Able bool
	// Progress is how long ago the core loop made a round, in RolePrimary; in RoleFencing,
	// how long the takeover has waited for a call into the volume that has not returned.
	Progress time.Duration
	// Storage is how long ago a check or a probe of the volume succeeded.
	Storage time.Duration
	// Beat is the last number that a primary wrote to its canary on the volume; 0 is
	// none. Election only carries it.
	Beat uint64
	// FeatureLevel is the highest level of records that the server can apply; 0 comes from old
	// binaries and means 1. Election only carries it.
	FeatureLevel uint32
	// Timing is cluster.Timing.Hash of the server; 0 comes from old binaries. Election only carries it.
	Timing uint64
}

// Ping is a heartbeat.
type Ping struct {
	From cluster.ServerID
	// Nonce is drawn anew at every start of the process.
	Nonce uint64
	// Seq numbers the pings from one process to one server, from 1.
	Seq    uint64
	Status Status
	// About describes the process that sent it, and Address where it came from, for people; ""
	// if the process, or the receiving Transport, does not set it.
	About, Address string
	// Stranger is set by the receiving Transport if the sender has not proved that it is From: it is answered as From would be,
	// and nothing that it says is heard.
	Stranger bool
}

// Pong answers a Ping and repeats its Seq.
type Pong struct {
	From   cluster.ServerID
	Nonce  uint64
	Seq    uint64
	Status Status
	// Primary is the server that From believes to be the primary by its own pings, itself
	// included; 0 is none.
	Primary cluster.ServerID
}

// Ask asks for a pre-vote: its sender hears no live primary.
type Ask struct {
	From  cluster.ServerID
	Nonce uint64
	// Epoch is the highest that the sender knows.
	Epoch cluster.Epoch
	// Address is where it came from, for people; "" if the Transport does not set it.
	Address string
}

// Vote answers an Ask.
type Vote struct {
	From   cluster.ServerID
	Nonce  uint64
	Status Status
	// HearsPrimary is set if From hears a live primary, or is one: Primary.
	HearsPrimary bool
	Primary      cluster.ServerID
	// Live are the other servers that From hears and that report to be able.
	Live []cluster.ServerID
}

// Transport sends messages to other servers (or to the server's own address) and returns
// the answers.
//
// A call returns soon after its ctx ended. An error that is not a context error,
// returned before ctx ended, means that the other side refused or reset the
// connection: no server is there. Calls are made concurrently; one that is slow
// must not hold up another, so there is a connection for this traffic alone.
type Transport interface {
	Ping(ctx context.Context, to cluster.ServerID, p Ping) (Pong, error)
	PreVote(ctx context.Context, to cluster.ServerID, a Ask) (Vote, error)
}

// Options are what an Elector needs.
type Options struct {
	Self cluster.ServerID
	// Nonce is this process's boot nonce.
	Nonce uint64
	// About describes this process, for people.
	About string
	// Members are the servers of the list, those that join and this one included. SetMembers replaces them.
	Members cluster.Members
	// First is the place, by their IDs, of the voter that should be primary: 0 is the lowest. After the highest comes the lowest.
	First     int
	Timing    cluster.Timing
	Transport Transport
	// Status returns what the node knows of itself. It is called often, from many
	// goroutines, and must not block.
	Status func() Status
	// Rand is for jitter; the Elector is its only user from New on. Nil means
	// one seeded with the nonce.
	Rand *rand.Rand
	Log  zerolog.Logger
	// OnHigherEpoch is called when a message names a higher epoch than Status().Epoch,
	// and again every ten heartbeats while that stays so. A primary checks its fence
	// then. It may be nil.
	OnHigherEpoch func(cluster.Epoch)
	// OnConflict is called once when an ID is found to be used by two processes;
	// the ID may be this server's own. It may be nil.
	OnConflict func(cluster.ServerID)
	// OnStranger is called once for each process that uses an ID and is not of this
	// volume. It may be nil.
	OnStranger func(Stranger)
}

// PeerStatus is what this server knows of another.
type PeerStatus struct {
	ID cluster.ServerID
	// Reachable reports whether it answered within MajorityWindow.
	Reachable bool
	// Heard is the age of Status, its last message; negative if there was none.
	Heard  time.Duration
	Status Status
	// Answered is its last answer to a ping, from its own address.
	Answered Status
	// Conflict reports whether two processes use this ID; Processes then describes them.
	Conflict  bool
	Processes []string
	// Joining reports whether it only joins, and Proven whether the process that speaks for it was seen to write to the volume.
	Joining, Proven bool
	// LevelFor is for how long it has told Status.FeatureLevel, without a silence of more than MajorityWindow and with no other
	// level in between.
	LevelFor time.Duration
}
