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

// ErrYield says that this server should not take over any more.
var ErrYield = errors.New("another server goes first")

// ErrNeedsOperator says that a claim cannot succeed until somebody has mended
// something: the server tries again, but seldom.
var ErrNeedsOperator = errors.New("somebody has to mend something first")

// Role is what a server is doing.
type Role uint8

// The roles of a server. They cross the wire: append only.
const (
	// RoleReplica follows, or waits for somebody to follow.
	RoleReplica Role = iota
	// RoleCandidate is claiming.
	RoleCandidate
	// RoleFencing has claimed and takes over.
	RoleFencing
	// RolePrimary serves.
	RolePrimary
)

// String is the word of the role, as it stands in status.
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

// reigns says that the role is that of a primary, serving or not yet.
func (r Role) reigns() bool { return r == RoleFencing || r == RolePrimary }

// Status is what a server knows of itself.
type Status struct {
	Role Role
	// Epoch is the server's own while it is fencing or primary, else the highest it knows.
	Epoch cluster.Epoch
	LSN   cluster.LSN
	// Able says that it could claim now. The node answers for its prepared claim;
	// what other servers see is also false without a majority, in back-off, with
	// old storage, in a nonce conflict and while it reigns.
	Able bool
	// Progress is how long ago the core loop made a round, in RolePrimary; in RoleFencing,
	// how long the takeover has waited for a call into the volume that has not come back.
	Progress time.Duration
	// Storage is how long ago a check or a probe of the volume succeeded.
	Storage time.Duration
	// Beat is the last number that a primary wrote to its canary on the volume; 0 is
	// none. Election only carries it.
	Beat uint64
	// FeatureLevel is up to which the server can apply records; 0 is said by old binaries and
	// means 1. Election only carries it.
	FeatureLevel uint32
}

// Ping is a heartbeat.
type Ping struct {
	From cluster.ServerID
	// Nonce is drawn anew at every start of the process.
	Nonce uint64
	// Seq numbers the pings from one process to one server, from 1.
	Seq    uint64
	Status Status
	// About says which process sent it, and Address where it came from, for people; "" if the
	// process, or the receiving Transport, does not tell.
	About, Address string
}

// Pong answers a Ping and repeats its Seq.
type Pong struct {
	From   cluster.ServerID
	Nonce  uint64
	Seq    uint64
	Status Status
	// Primary is whom From believes to be the primary by its own pings, itself
	// included; 0 is nobody.
	Primary cluster.ServerID
}

// Ask is a pre-vote: the asker hears no live primary.
type Ask struct {
	From  cluster.ServerID
	Nonce uint64
	// Epoch is the highest the asker knows.
	Epoch cluster.Epoch
	// Address is where it came from, for people; "" if the Transport does not tell.
	Address string
}

// Vote answers an Ask.
type Vote struct {
	From   cluster.ServerID
	Nonce  uint64
	Status Status
	// HearsPrimary says that From hears a live primary, or is one, and Primary which.
	HearsPrimary bool
	Primary      cluster.ServerID
	// Live are the other servers that From hears and that say they are able.
	Live []cluster.ServerID
}

// Transport carries questions to one other server (or to the server's own
// address) and its answers back.
//
// A call returns soon after its ctx ended. An error that is not a context error,
// returned before ctx ended, means that the other side refused or reset the
// connection: nobody is there. Calls are made concurrently; one that is slow
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
	// About says which process this is, for people.
	About     string
	Members   cluster.Members
	Timing    cluster.Timing
	Transport Transport
	// Status tells what the node knows of itself. It is called often, from many
	// goroutines, and must not block.
	Status func() Status
	// Rand is for jitter; the Elector is its only user from New on. Nil means
	// one seeded with the nonce.
	Rand *rand.Rand
	Log  zerolog.Logger
	// OnHigherEpoch is told when somebody speaks of a higher epoch than
	// Status().Epoch, and again every ten heartbeats while that stays so. A primary
	// checks its fence then. Nil is allowed.
	OnHigherEpoch func(cluster.Epoch)
	// OnConflict is told once when an ID is found to be used by two processes;
	// the ID may be this server's own. Nil is allowed.
	OnConflict func(cluster.ServerID)
	// OnStranger is told once of each process that uses an ID and is not of this
	// volume. Nil is allowed.
	OnStranger func(Stranger)
}

// PeerStatus is what is known of another server.
type PeerStatus struct {
	ID cluster.ServerID
	// Reachable says that it answered within MajorityWindow.
	Reachable bool
	// Heard is the age of its last word, negative when there was none.
	Heard  time.Duration
	Status Status
	// Answered is what it said last in answer to a ping, at its own address.
	Answered Status
	// Conflict says that two processes use this ID, and Processes then which, for people.
	Conflict  bool
	Processes []string
}
