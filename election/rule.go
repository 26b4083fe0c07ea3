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
	// Undecided: too few answered to know, or more may answer.
	Undecided Verdict = iota
	// Yield: somebody else serves or should.
	Yield
	// Reign: this server should claim.
	Reign
)

// String is the word of the verdict.
func (v Verdict) String() string {
	switch v {
	case Undecided:
		return "undecided"
	case Yield:
		return "yield"
	case Reign:
		return "reign"
	}
	return "invalid"
}

// Answer says how far a voter is.
type Answer uint8

// What a voter did so far.
const (
	// Waiting: its answer may still come and is waited for.
	Waiting Answer = iota
	// Voted: its vote is here.
	Voted
	// Silent: it did not answer, refused, or has been silent too long to be waited for.
	Silent
	// Conflicted: two processes use its ID, so its word is nobody's.
	Conflicted
)

// Voter is another server in a pre-vote.
type Voter struct {
	ID     cluster.ServerID
	Answer Answer
	Vote   Vote
}

// Order says whether the order of IDs matters.
type Order uint8

// The two orders.
const (
	// LowestFirst lets able servers with lower IDs, and those already claiming, go first.
	LowestFirst Order = iota
	// AnyOrder is for who has waited long enough.
	AnyOrder
)

// Poll is one pre-vote, at any time from its first question to its last answer.
type Poll struct {
	Self    cluster.ServerID
	Members cluster.Members
	Timing  cluster.Timing
	// Able says that this server could claim, or already has.
	Able bool
	// Storage is the age of this server's own last probe of the volume.
	Storage time.Duration
	Order   Order
	// Claimed is the epoch of this server's claim when the pre-vote confirms one, else 0.
	Claimed cluster.Epoch
	// Voters are the other members, each once.
	Voters []Voter
}

// Decide judges a pre-vote. A verdict other than Undecided cannot change by
// further answers.
//
//  1. Who is not able yields.
//  2. A vote counts when its voter is a member, not this server, known by one nonce only, and its storage is not older than StorageTimeout.
//  3. Somebody who is a live primary makes this server yield; a stalled one does not.
//  4. Somebody who hears a live primary makes this server yield, unless that primary is this server, or votes itself: then its own word counts.
//  5. A claim is not stopped by a lower one that is still fencing, for it will be fenced.
//  6. An able server with a lower ID goes first, whether it voted or is silent but heard by a voter.
//  7. Who is already claiming goes first, whatever its ID.
//  8. Rules 6 and 7 are preferences: who has waited long enough drops them.
//  9. Without a majority of counted votes, this server's own included, nothing is decided.
//  10. Nothing is decided while an answer is waited for that could forbid the reign; who is silent is not waited for.
//  11. Otherwise this server reigns.
func Decide(in Poll) Verdict {
	v, _ := in.decide()
	return v
}

// reason says which rule gave a verdict.
type reason uint8

const (
	reasonWaiting reason = iota
	reasonUnable
	reasonPrimary
	reasonOrder
	reasonMinority
	reasonReign
)

func (r reason) String() string {
	return [...]string{"waiting for answers", "not able", "a live primary is heard", "another server goes first", "no majority answers", "this server reigns"}[r]
}

func (in *Poll) decide() (Verdict, reason) {
	if !in.Able {
		return Yield, reasonUnable
	}
	counted, waiting, first := 1, false, false
	for i := range in.Voters {
		v := &in.Voters[i]
		waiting = waiting || v.Answer == Waiting
		if !in.counts(v) {
			continue
		}
		counted++
		if in.hears(v) {
			return Yield, reasonPrimary
		}
		first = first || in.goesFirst(v)
	}
	switch {
	case first && in.Order == LowestFirst:
		return Yield, reasonOrder
	case waiting:
		return Undecided, reasonWaiting
	case counted < in.Members.Majority():
		return Undecided, reasonMinority
	}
	return Reign, reasonReign
}

func (in *Poll) counts(v *Voter) bool {
	_, member := in.Members.Find(v.ID)
	return v.Answer == Voted && member && v.ID != in.Self && v.Vote.From == v.ID && v.Vote.Status.Storage <= in.Timing.StorageTimeout
}

// hears applies rules 3 to 5 to a counted vote.
func (in *Poll) hears(v *Voter) bool {
	st := v.Vote.Status
	if st.Role.reigns() {
		doomed := st.Role == RoleFencing && st.Epoch < in.Claimed
		return !doomed && !stalled(in.Timing, st, in.Storage)
	}
	return v.Vote.HearsPrimary && v.Vote.Primary != in.Self && in.hearsay(v.Vote.Primary)
}

// hearsay says that what others tell of a server is all there is to know: it has
// not voted and will not.
func (in *Poll) hearsay(id cluster.ServerID) bool {
	return !slices.ContainsFunc(in.Voters, func(v Voter) bool {
		return v.ID == id && (v.Answer == Waiting || in.counts(&v))
	})
}

// goesFirst applies rules 6 and 7 to a counted vote.
func (in *Poll) goesFirst(v *Voter) bool {
	if v.Vote.Status.Role == RoleCandidate || v.Vote.Status.Able && v.ID < in.Self {
		return true
	}
	return slices.ContainsFunc(v.Vote.Live, func(id cluster.ServerID) bool {
		return id < in.Self && slices.ContainsFunc(in.Voters, func(v Voter) bool { return v.ID == id && v.Answer == Silent })
	})
}

// stalled says that a primary, serving or not yet, answers but cannot get on, judged by
// somebody whose own last write to the volume is own old. See the package doc.
func stalled(t cluster.Timing, st Status, own time.Duration) bool {
	if st.Storage > t.StorageTimeout && own < t.StorageTimeout/2 {
		return true
	}
	if st.Role == RoleFencing {
		return st.Progress > t.StorageTimeout && own < t.StorageTimeout/2
	}
	return st.Role == RolePrimary && st.Progress > t.Suspicion+t.QuorumTimeout && own < st.Progress
}
