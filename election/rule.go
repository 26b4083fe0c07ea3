// SPDX-License-Identifier: Apache-2.0

package election

import (
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Verdict is the result of a pre-vote.
type Verdict uint8

// The three verdicts.
const (
	// Undecided: too few servers have answered, or more may answer.
	Undecided Verdict = iota
	// Yield: another server serves or should.
	Yield
	// Claim: this server should claim.
	Claim
)

// String returns the name of the verdict.
func (v Verdict) String() string {
	switch v {
	case Undecided:
		return "undecided"
	case Yield:
		return "yield"
	case Claim:
		return "claim"
	}
	return "invalid"
}

// Answer is the state of a voter in a pre-vote.
type Answer uint8

// The states of a voter.
const (
	// Waiting: its answer may still come and is waited for.
	Waiting Answer = iota
	// Voted: its vote is here.
	Voted
	// Silent: it did not answer, refused, or has been silent too long to be waited for.
	Silent
	// Conflicted: two processes use its ID, so no answer counts.
	Conflicted
)

// Voter is another server in a pre-vote.
type Voter struct {
	ID     cluster.ServerID
	Answer Answer
	Vote   Vote
}

// Order is whether the servers' order matters in a pre-vote.
type Order uint8

// The two orders.
const (
	// InTurn lets able servers that come first, by turn, and those already claiming, go first.
	InTurn Order = iota
	// AnyOrder is for a server that has waited long enough.
	AnyOrder
)

// turn returns where a server stands in the order in which they should be primary: 0 is first. That is the order of their IDs, which begins at
// the server at place first, and goes on with the lowest after the highest. It is -1 for one that is no voter.
func turn(voters cluster.Members, first int, id cluster.ServerID) int {
	at := slices.Index(voters.IDs(), id)
	if at < 0 {
		return at
	}
	return (at + len(voters) - first%len(voters)) % len(voters)
}

// Poll is the state of one pre-vote, at any time from its first Ask to its last answer.
type Poll struct {
	Self    cluster.ServerID
	Members cluster.Members
	// First is the place, by their IDs, of the member that should be primary.
	First  int
	Timing cluster.Timing
	// Able is set if this server could claim, or already has.
	Able bool
	// Storage is the age of this server's own last probe of the volume.
	Storage time.Duration
	Order   Order
	// Claimed is the epoch of this server's claim when the pre-vote confirms one, else 0.
	Claimed cluster.Epoch
	// Volume is in place of how many servers the volume votes for this one; see package election.
	Volume int
	// Voters are the other members, each once.
	Voters []Voter
}

// Decide returns the verdict of a pre-vote. Further answers cannot change a verdict other
// than Undecided.
//
//  1. A server that is not able yields.
//  2. A vote counts when its voter is a member, not this server, known by one nonce only, and its storage is not older than StorageTimeout.
//  3. A voter that is a live primary makes this server yield; a stalled one does not.
//  4. A voter that hears a live primary makes this server yield, unless that primary is this server, or votes itself: then its own vote counts.
//  5. A claim is not stopped by a lower one that is still fencing, because that will be fenced.
//  6. An able server that comes before in turn goes first, whether it voted or is silent but heard by a voter.
//  7. A server that is already claiming goes first, whatever its ID.
//  8. Rules 6 and 7 are preferences: a server that has waited long enough ignores them.
//  9. Without a majority of counted votes, this server's own and those of the volume included, nothing is decided.
//  10. Nothing is decided while an answer may come that could forbid the term; a silent server is not waited for.
//  11. Otherwise this server claims.
func Decide(in Poll) Verdict {
	v, _ := in.decide()
	return v
}

// reason is the rule that gave a verdict.
type reason uint8

const (
	reasonWaiting reason = iota
	reasonUnable
	reasonPrimary
	reasonOrder
	reasonMinority
	reasonClaim
)

func (r reason) String() string {
	return [...]string{"waiting for answers", "not able", "a live primary is heard", "another server goes first", "no majority answers", "this server claims"}[r]
}

func (in *Poll) decide() (Verdict, reason) {
	if !in.Able {
		return Yield, reasonUnable
	}
	counted, waiting, first := in.counted(), false, false
	for i := range in.Voters {
		v := &in.Voters[i]
		waiting = waiting || v.Answer == Waiting
		if !in.counts(v) {
			continue
		}
		if in.hears(v) {
			return Yield, reasonPrimary
		}
		first = first || in.goesFirst(v)
	}
	switch {
	case first && in.Order == InTurn:
		return Yield, reasonOrder
	case waiting:
		return Undecided, reasonWaiting
	case counted+in.Volume < in.Members.Majority():
		return Undecided, reasonMinority
	}
	return Claim, reasonClaim
}

// counted returns how many servers vote, this one included.
func (in *Poll) counted() int {
	n := 1
	for i := range in.Voters {
		if in.counts(&in.Voters[i]) {
			n++
		}
	}
	return n
}

// rests reports whether a claim would rest on the vote of the volume.
func (in *Poll) rests() bool { return in.counted() < in.Members.Majority() }

func (in *Poll) counts(v *Voter) bool {
	_, member := in.Members.Find(v.ID)
	return v.Answer == Voted && member && v.ID != in.Self && v.Vote.From == v.ID && v.Vote.Status.Storage <= in.Timing.StorageTimeout
}

// hears applies rules 3 to 5 to a counted vote.
func (in *Poll) hears(v *Voter) bool {
	st := v.Vote.Status
	if st.Role.hasTerm() {
		doomed := st.Role == RoleFencing && st.Epoch < in.Claimed
		return !doomed && !stalled(in.Timing, st, in.Storage)
	}
	return v.Vote.HearsPrimary && v.Vote.Primary != in.Self && in.hearsay(v.Vote.Primary)
}

// hearsay reports whether a server is known from the votes of others only: it has not voted and
// will not.
func (in *Poll) hearsay(id cluster.ServerID) bool {
	return !slices.ContainsFunc(in.Voters, func(v Voter) bool {
		return v.ID == id && (v.Answer == Waiting || in.counts(&v))
	})
}

// goesFirst applies rules 6 and 7 to a counted vote.
func (in *Poll) goesFirst(v *Voter) bool {
	if v.Vote.Status.Role == RoleCandidate || v.Vote.Status.Able && in.before(v.ID) {
		return true
	}
	return slices.ContainsFunc(v.Vote.Live, func(id cluster.ServerID) bool {
		return in.before(id) && slices.ContainsFunc(in.Voters, func(v Voter) bool { return v.ID == id && v.Answer == Silent })
	})
}

// before reports whether another member comes before this server in turn.
func (in *Poll) before(id cluster.ServerID) bool {
	return turn(in.Members, in.First, id) < turn(in.Members, in.First, in.Self)
}

// stalled reports whether a primary, serving or not yet, answers but makes no progress, judged
// by a server whose own last write to the volume is this old. See the package doc.
func stalled(t cluster.Timing, st Status, own time.Duration) bool {
	if st.Storage > t.StorageTimeout && own < t.StorageTimeout/2 {
		return true
	}
	if st.Role == RoleFencing {
		return st.Progress > t.StorageTimeout && own < t.StorageTimeout/2
	}
	return st.Role == RolePrimary && st.Progress > t.Suspicion+t.QuorumTimeout && own < st.Progress
}
