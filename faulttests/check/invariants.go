// SPDX-License-Identifier: Apache-2.0

package check

import "fmt"

// Number is the number of an invariant, from 1; 0 is Run.
type Number int

// Run stands for findings about the run itself that break no single
// invariant: calls that failed without a fault, missing evidence.
const Run Number = 0

// The invariants. Their numbers never change.
const (
	I1 Number = 1 + iota
	I2
	I3
	I4
	I5
	I6
	I7
	I8
	I9
	I10
	I11
	I12
	I13
	I14
	I15
	I16
	I17

	invariantCount = int(I17)
)

// String returns a text like "I5", or "run".
func (n Number) String() string {
	if n == Run {
		return "run"
	}
	return fmt.Sprintf("I%d", int(n))
}

// Invariant is something that must hold in every run.
type Invariant struct {
	Number Number
	// Words state what must hold.
	Words string
	// Checker is the checker that proves it in a run; "" if a run of real processes cannot.
	Checker string
	// Tests are the tests, package and name, that prove it elsewhere: in virtual time, or by
	// deliberate damage.
	Tests []string
}

// The checkers of a run, as reports name them.
const (
	byLog      = "log order (CheckLog)"
	byHolds    = "client-view holds (CheckHolds)"
	byHistory  = "porcupine (History.Check)"
	byJudge    = "files against receipts (Ledger.Check)"
	byFsck     = "fsck (CheckFsck)"
	byHarmless = "snapshots (CheckHarmless)"
	byView     = "poller of lock_state.json (ViewPoller)"
	byWatch    = "time without an answer (CheckLiveness)"
	bySampler  = "sampler of /proc and the volume (Sampler)"
)

// Invariants returns all invariants in order of their numbers.
func Invariants() []Invariant {
	return []Invariant{
		{I1, "a lock has at most one live exclusive grant at any place of the log, and no other with it; tokens strictly increase, per lock and over the volume", byLog, nil},
		{I2, "what different clients believe to hold never overlaps in time: from the confirmed grant to the sending of the last answered renewal + TTL(1-rho)", byHolds, nil},
		{I3, "every acknowledged operation is in the state that is recovered from the volume, whenever power was lost", byLog + ", " + byFsck,
			[]string{"faulttests/sim TestEveryCall", "shared/volume TestCrashDuringACheckpointHarmsNothing"}},
		{I4, "the history of each lock is linearizable", byHistory, nil},
		{I5, "a protected file is every acknowledged append once, in the order of the log, and unanswered ones at most once; no zeros, no holes, no foreign bytes", byJudge + ", " + byLog, nil},
		{I6, "the tokens of a file's appends never fall", byJudge + ", " + byLog, nil},
		{I7, "the same request ID has its effect once, and the same answer", byLog, nil},
		{I8, "nothing is told, pushed or written for which no successful check began after its justification", "",
			[]string{"primary TestNothingIsToldBeforeItsBasisIsDurable", "primary TestFencedTermTellsNothing", "faulttests/sim TestEveryCall"}},
		{I9, "what is asked for after an answer comes behind it in the log; epochs never fall along it, and one process serves in each", byJudge + ", " + byLog, nil},
		{I10, "a primary that wakes up after its successor serves changes nothing but its own epoch's directory and index", byHarmless,
			[]string{"faulttests/sim TestEveryCall"}},
		{I11, "waiters are granted in the order of the log, over failovers too", byLog, nil},
		{I12, "replicas and pushes are never ahead of what is committed, and never go back within an epoch", "",
			[]string{"replica TestReplicaFollowsFrames", "replica TestReplicaIgnoresOlderEpochs", "replica TestReplicaRefusesAnotherChain", "faulttests/sim TestClusterSchedules"}},
		{I13, "the table in memory equals the table that its log makes, at every checkpoint and takeover", byLog + " at checkpoints",
			[]string{"primary TestWarmTableIsUsedOnlyWhereItFits", "shared/volume TestWarmTableIs", "faulttests/sim TestRandomSchedules"}},
		{I14, "lock_state.json always parses, and is the present term's within seconds", byView, nil},
		{I15, "once faults are mended, or one tolerated fault stays, there is a primary and every operation completes in bounded time", byWatch,
			[]string{"faulttests/sim TestPermanentFaults"}},
		{I16, "descriptors, threads, memory, files and log size stay bounded", bySampler, nil},
		{I17, "damage in the middle of the log is refused, never skipped", "",
			[]string{"wal TestBitFlips", "wal TestDamagedMarkIsNoTornTail", "shared/volume TestNoFlippedBitIsAccepted"}},
	}
}
