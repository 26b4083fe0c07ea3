// SPDX-License-Identifier: Apache-2.0

package mutants

// offlineMutants break rules of zeroed and missing parts of a volume, fsck and recover.
var offlineMutants = []Mutant{
	{
		Name: "zeroed-header-is-unused", Also: "",
		Rule: "a segment without a header holds nothing but zeros, or its header is lost (wal, PROTOCOL 7.4)",
		Edits: []Edit{
			{"wal/scanframes.go", `		return false, s.unused(i) // the open`, `		return false, nil // the open`},
		},
		By: unit("wal", "^TestZeroedBlocks$"), Dies: `zeroed: got the end at .*want ErrCorrupt`,
	},
	{
		Name: "named-segment-is-unused", Also: "",
		Rule: "a segment without a header behind one without CLOSE was never used, which its zeros show (wal)",
		Edits: []Edit{
			{"wal/scanframes.go", `		if err := s.unused(i + 1); err != nil {
			return false, err
		}
`, ``},
		},
		By: unit("wal", "^TestUsedSegmentWithoutCloseAndHeader$"), Dies: `want a ScanError wrapping corrupt`,
	},
	{
		Name: "zeroed-start-is-absent", Also: "",
		Rule: "an epoch whose log has records of its own had started: without START it is damaged (PROTOCOL 5.2)",
		Edits: []Edit{
			{"shared/volume/walk.go", `	return epochdir.ReadProvenStart(ctx, fsys, f, d)
`, `	return epochdir.ReadStart(ctx, f, d)
`},
		},
		By: unit("shared/volume", "^TestZeroedStartIsNoAbsentStart$"), Dies: `took over as epoch`,
	},
	{
		Name: "zeroed-start-unseen-offline", Also: "",
		Rule: "fsck and recover look for records of an epoch that has no START, as claimants do",
		Edits: []Edit{
			{"shared/volume/internal/epochdir/survey.go", `ReadProvenStart(ctx, fsys, f, e.Epoch)`, `ReadStart(ctx, f, e.Epoch)`},
		},
		By: unit("shared/volume", "^TestZeroedStartIsNoAbsentStart$"), Dies: `want "error start-missing`,
	},
	{
		Name: "zeroed-start-read-once", Also: "",
		Rule: "a START that is missing against the log's word is read again before it is refused: a cache may lie",
		Edits: []Edit{
			{"shared/volume/internal/epochdir/fence.go", `		if try == vfs.Retries {
			return nil, fmt.Errorf("%w: epoch %d: %w: it reads`, `		if try > 0 {
			return nil, fmt.Errorf("%w: epoch %d: %w: it reads`},
		},
		By: unit("shared/volume", "^TestStartThatReadsAsZerosOnceIsReadAgain$"), Dies: `START is lost`,
	},
	{
		Name: "copied-records-are-a-start", Also: "",
		Rule: "copies of older records in a segment of an epoch that never started prove nothing of it",
		Edits: []Edit{
			{"shared/volume/internal/epochdir/fence.go", `err == nil && rec.Epoch == e {
				return rec.LSN, nil`, `err == nil {
				return rec.LSN, nil`},
		},
		By: unit("shared/volume", "^TestCopiesOfOlderRecordsAreNoSignOfAStart$"), Dies: `START is lost`,
	},
	{
		Name: "flag-of-a-gone-claim-ignored", Also: "",
		Rule: "a fence flag of a claim that is not there any more stops a claimant: a term is gone (PROTOCOL 5.3)",
		Edits: []Edit{
			{"shared/volume/walk.go", `		if err := epochdir.CheckFlag(fsys, other); err != nil {`, `		if err := error(nil); err != nil {`},
		},
		By: unit("shared/volume", "^TestNewestEpochThatIsGoneIsMissed$"), Dies: `took over as epoch`,
	},
	{
		Name: "fsck-epoch-above-all-unsaid", Also: "",
		Rule: "fsck tells of an epoch above all that are there, where a flag names it",
		Edits: []Edit{
			{"shared/volume/fsck/fsck.go", `; e.By > last {`, `; e.By > last && false {`},
		},
		By: unit("shared/volume", "^TestNewestEpochThatIsGoneIsMissed$"), Dies: `want "error epoch-missing`,
	},
	{
		Name: "number-taken-twice-unsaid", Also: "",
		Rule: "fsck and recover tell of a number that was taken a second time: its first term is gone",
		Edits: []Edit{
			{"shared/volume/internal/epochdir/survey.go", `other.ClaimNonce() != e.Flag.Nonce {`, `false {`},
		},
		By: unit("shared/volume", "^TestNewestEpochThatIsGoneIsMissed$"), Dies: `its number was taken again; fsck finds`,
	},
	{
		Name: "recovery-forgets-flags", Also: "",
		Rule: "a recovery leaves flags as they are until its own epoch says what they tell",
		Edits: []Edit{
			{"shared/volume/recovery/publish.go", `other.By > by.By || !vfs.AllZero(block) && by.By < r.plan.Epoch {`, `other.By > by.By {`},
		},
		By: unit("shared/volume", "^TestNewestEpochThatIsGoneIsMissed$"), Dies: `the volume changed meanwhile`,
	},
	{
		Name: "recovery-fences-as-nobody", Also: "",
		Rule: "a recovery without a number fences in the name of a claim that is there, so that servers may go on",
		Edits: []Edit{
			{"shared/volume/recovery/recovery.go", `r.epochs[len(r.epochs)-1].ClaimNonce()}`, `r.nonce}`},
		},
		By: unit("shared/volume", "^TestFencesOfAnInterruptedRecoveryStopNobody$"), Dies: `is of another claim`,
	},
	{
		Name: "witness-ignored", Also: "",
		Rule: "history, index and canary of a term newer than all that began stop a claimant",
		Edits: []Edit{
			{"shared/volume/term.go", `		err = r.v.laterThan(ctx, e, r.epoch)`, `		err = nil`},
		},
		By: unit("shared/volume", "^TestWitnessesOfALostEpoch$"), Dies: `took over as epoch`,
	},
	{
		Name: "witness-unsaid", Also: "",
		Rule: "fsck and recover tell of a term newer than all that began",
		Edits: []Edit{
			{"shared/volume/witness.go", `w.Epoch > began && !unknown[w.Epoch] {`, `false {`},
		},
		By: unit("shared/volume", "^TestWitnessesOfALostEpoch$"), Dies: `want "error term-missing`,
	},
	{
		Name: "witness-of-a-burned-number", Also: "",
		Rule: "a number that was burned does not excuse a witness of a term with that number: only a START does",
		Edits: []Edit{
			{"shared/volume/term.go", `r.v.laterThan(ctx, e, r.epoch)`, `r.v.laterThan(ctx, r.epoch-1, r.epoch)`},
		},
		By: unit("shared/volume", "^TestWitnessesOfALostEpoch$"), Dies: `took over as epoch`,
	},
	{
		Name: "history-is-no-witness-of-its-lsn", Also: "",
		Rule: "a log that ends before its history was set back (PROTOCOL 12.6)",
		Edits: []Edit{
			{"primary/takeover.go", `max(p.opt.Known, p.term.HistoryReach(ctx))`, `p.opt.Known`},
		},
		By: unit("primary", "^TestLogThatEndsBeforeItsHistoryIsRefused$"), Dies: `the history tells of LSN`,
	},
	{
		Name: "sleeper-calls-it-damage", Also: "",
		Rule: "who cannot take over looks at its own fence first: who slept was fenced, and nothing is damaged",
		Edits: []Edit{
			{"shared/volume/term.go", `	if !errors.Is(cause, ErrOvertaken) && r.Check() != nil {`, `	if false {`},
		},
		By: unit("shared/volume", "^TestClaimantThatSleptWasFenced$"), Dies: `scan: .*`,
	},
	{
		Name: "only-the-last-number-tried", Also: "",
		Rule: "after a rename error a claimant looks for its nonce under every number tried (PROTOCOL 4.2)",
		Edits: []Edit{
			{"shared/volume/claim.go", `for tried := e; tried >= first; tried-- {`, `for tried := e; tried >= e; tried-- {`},
		},
		By: unit("shared/volume", "^TestClaimFindsItsNonceUnderAnEarlierNumber$"), Dies: `claimed claim: `,
	},
	{
		Name: "recover-takes-up-to-the-newest", Also: "",
		Rule: "what a recovery takes of a term ends where the next one that started adopted it",
		Edits: []Edit{
			{"shared/volume/recovery/source.go", `r.seal(e.Epoch, next.at.LSN); next.of(c, best == nil) && c.better(best) {`, `r.seal(e.Epoch, newest.Start.End.LSN); c.better(best) {`},
		},
		By: unit("shared/volume", "^TestRecoverTakesNoForkOfAnOldTerm$"), Dies: `a lock that was never granted`,
	},
	{
		Name: "recover-takes-a-fork", Also: "",
		Rule: "what a recovery takes of a term meets the chain value at which it was adopted",
		Edits: []Edit{
			{"shared/volume/recovery/source.go", `(a.unchained || c.end == a.at)`, `(a.unchained || c.end.LSN == a.at.LSN)`},
		},
		By: unit("shared/volume", "^TestRecoverTakesNoForkOfAnOldTerm$"), Dies: `a lock that was never granted`,
	},
	{
		Name: "recover-takes-who-may-not-be-adopted", Also: "",
		Rule: "a log that ends before it can be compared, and may be another one's, counts only for want of others",
		Edits: []Edit{
			{"shared/volume/recovery/source.go", `	return !a.doubtful || only
`, `	return true
`},
		},
		By: unit("shared/volume", "^TestRecoverTakesNoForkOfAnOldTerm$"), Dies: `the_fork_ends_early`,
	},
	{
		Name: "recover-forgets-who-lies-between", Also: "",
		Rule: "behind a term of which nobody knows whether it started, nobody knows who was adopted",
		Edits: []Edit{
			{"shared/volume/recovery/source.go", `			if next.doubtful = true; e.Start != nil {`, `			if e.Start != nil {`},
		},
		By: unit("shared/volume", "^TestRecoverTakesNoForkOfAnOldTerm$"), Dies: `the_fork_ends_early`,
	},
	{
		Name: "recover-doubtful-is-complete", Also: "",
		Rule: "a term that may have served and cannot be read leaves no plan complete",
		Edits: []Edit{
			{"shared/volume/recovery/source.go", `		if best != nil && !ok {`, `		if best != nil && !ok && doubtful[i].StartErr == nil { // a missing one only`},
		},
		By: unit("shared/volume", "^TestDoubtfulTermMayHaveServed$"), Dies: `START_and_log_damaged`,
	},
	{
		Name: "recover-missing-epoch-undoubted", Also: "",
		Rule: "a missing epoch may have served",
		Edits: []Edit{
			{"shared/volume/recovery/source.go", `			doubtful = append(doubtful, epochdir.State{Epoch: e.Before(), FenceErr: fs.ErrNotExist})
`, `			_ = fs.ErrNotExist
`},
		},
		By: unit("shared/volume", "^TestDoubtfulTermMayHaveServed$"), Dies: `/missing`,
	},
	{
		Name: "recover-waits-for-one-ttl-only", Also: "",
		Rule: "a lock that was shared stays held for the longest of its leases",
		Edits: []Edit{
			{"shared/volume/recovery/build.go", `longest.TTL = max(longest.TTL, g.TTL)`, `_ = g`},
		},
		By: unit("shared/volume", "^TestRecoveryWaitsForTheLongestLease$"), Dies: `it stays held for`,
	},
	{
		Name: "recover-holds-since-1970", Also: "",
		Rule: "the records that a recovery makes have the time of the recovery",
		Edits: []Edit{
			{"shared/volume/recovery/build.go", `		recs[i].Time = b.r.now
`, ``},
		},
		By: unit("shared/volume", "^TestNobodyHeldBeforeTheRecovery$"), Dies: `was held yesterday`,
	},
	{
		Name: "fsck-checkpoint-uncompared", Also: "",
		Rule: "fsck compares checkpoints with what the log before them makes",
		Edits: []Edit{
			{"shared/volume/fsck/log.go", ` || !sameState(b.Table, a.Table)) {`, `) {`},
		},
		By: unit("shared/volume", "^TestFsckComparesCheckpointsWithTheLog$"), Dies: `fsck finds ""`,
	},
	{
		Name: "fsck-only-checkpoint-uncompared", Also: "",
		Rule: "fsck replays from the log's beginning where it is there",
		Edits: []Edit{
			{"shared/volume/fsck/log.go", `if len(good) == 0 && !whole {`, `if len(good) == 0 && (!whole || err == nil) {`},
		},
		By: unit("shared/volume", "^TestFsckComparesCheckpointsWithTheLog$"), Dies: `the_only_one`,
	},
	{
		Name: "fsck-view-ahead-unsaid", Also: "",
		Rule: "a view that is ahead of the log says that the log has lost something",
		Edits: []Edit{
			{"shared/volume/fsck/files.go", `		case v.head.LSN > k.adoption.End.LSN || v.head.Epoch`, `		case v.head.Epoch`},
		},
		By: unit("shared/volume", "^TestFsckSeesAViewThatIsAhead$"), Dies: `fsck finds ""`,
	},
	{
		Name: "recover-asks-with-half-a-plan", Also: "",
		Rule: "a recovery that asks before it loses shows the plan that it asks for",
		Edits: []Edit{
			{"shared/volume/recovery/recovery.go", `		_, err := r.build(ctx) // completes the plan
		return`, `		return`},
		},
		By: unit("shared/volume", "^TestRecoverAsksBeforeItLoses$"), Dies: `asks with another plan than the one it shows`,
	},
	{
		Name: "refused-and-claimed-again", Also: "",
		Rule: "a server whose claim was refused looks before it claims again: numbers are burned for ever",
		Edits: []Edit{
			{"cmd/holdfast/node/node.go", `		if refused {
			err = n.look(ctx)`, `		if false {
			err = n.look(ctx)`},
		},
		By: unit("faulttests/sim", "^TestDamagedVolumeIsClaimedOnceByEachServer$"), Dies: `in an hour \d+ numbers were burned`,
	},
	{
		Name: "look-passes-over-a-gap", Also: "",
		Rule: "a look refuses what a claimant refuses",
		Edits: []Edit{
			{"shared/volume/preview.go", `if len(below) == 0 || below[len(below)-1] < e.Before() {`, `if len(below) == 0 {`},
		},
		By: unit("shared/volume", "^TestLookSeesWhatATakeoverIsRefusedFor$"), Dies: `looked: <nil>; took over: .*damaged`,
	},
	{
		Name: "fence-filled-with-zeros", Also: "",
		Rule: "the fence of a burned number takes no more room than its blocks",
		Edits: []Edit{
			{"shared/volume/internal/epochdir/fence.go", `	zeros := vfs.AlignedBuffer(vfs.BlockSize)
	for _, x`, `	zeros := vfs.AlignedBuffer(layout.FenceSize - vfs.BlockSize)
	for _, x`},
		},
		By: unit("shared/volume", "^TestFenceTakesLittleRoom$"), Dies: `bytes take`,
	},
	{
		Name: "hidden-segments-use-up-tries", Also: "",
		Rule: "a segment that only a CLOSE tells of is progress, and no try that failed (PROTOCOL 7.4)",
		Edits: []Edit{
			{"shared/volume/adopt.go", `			known = append(known, damage.Unlisted)
			try--
			continue
`, `			known = append(known, damage.Unlisted)
`},
		},
		By: unit("shared/volume", "^TestManyHiddenSegmentsAreFound$"), Dies: `CLOSE without its successor`,
	},
	{
		Name: "half-removed-checkpoint-hides-a-good-one", Also: "",
		Rule: "the newest checkpoint that verifies is the base, whatever lies above it",
		Edits: []Edit{
			{"shared/volume/adopt.go", `	for _, lsn := range all {
		b, err := checkpoint.Read`, `	for _, lsn := range all[:min(2, len(all))] {
		b, err := checkpoint.Read`},
		},
		By: unit("shared/volume", "^TestHalfRemovedCheckpointHidesNone$"), Dies: `takeover: `,
	},
	{
		Name: "fsck-cut-file-unsaid", Also: "",
		Rule: "beside a primary, fsck tells of a file that lacks committed bytes and does not grow",
		Edits: []Edit{
			{"shared/volume/fsck/files.go", `		case c.Pending.Bytes > 0:
`, `		case c.Pending.Bytes > 0 && !k.serving:
`},
		},
		By: unit("shared/volume", "^TestFsckBesideAPrimarySeesAFileThatWasCut$"), Dies: `fsck finds ""`,
	},
	{
		Name: "fsck-growing-file-said", Also: "",
		Rule: "a file that grows while fsck looks is being written, and no finding",
		Edits: []Edit{
			{"shared/volume/fsck/fsck.go", `	if f.Code == fileLags {`, `	if false {`},
		},
		By: unit("shared/volume", "^TestFsckBesideAPrimarySeesAFileThatWasCut$"), Dies: `a file that is being written`,
	},
	{
		Name: "burned-fences-set-anew", Also: "",
		Rule: "a takeover sets few fences, however many numbers were burned",
		Edits: []Edit{
			{"shared/volume/walk.go", `			d = began + 1 // all between`, `			_ = began // all between`},
		},
		By: unit("shared/volume", "^TestTakeoverSetsFewFencesOfBurnedNumbers$"), Dies: `\d{3} fences were set`,
	},
	{
		Name: "fenced-note-of-anybody", Also: "",
		Rule: "a note that all below are fenced counts only with the nonce of its claim",
		Edits: []Edit{
			{"shared/volume/walk.go", `note.Nonce != "" && c.Nonce == note.Nonce`, `note.Nonce != ""`},
		},
		By: unit("shared/volume", "^TestTakeoverSetsFewFencesOfBurnedNumbers$"), Dies: `without a note that counts`,
	},
	{
		Name: "fences-noted-too-early", Also: "",
		Rule: "a claimant notes that all below are fenced when they are, durably",
		Edits: []Edit{
			{"shared/volume/term.go", `	e, s, err := w.down(ctx, r.epoch)
	src :=`, `	_ = vfs.CreateFile(r.v.fs, r.path+"/"+layout.FencedName, []byte("{}"))
	e, s, err := w.down(ctx, r.epoch)
	src :=`},
		},
		By: unit("shared/volume", "^TestFencesAreNotedWhenAllAreSet$"), Dies: `is there before the last fence is`,
	},
	{
		Name: "scan-unaligned-size", Also: "",
		Rule: "a segment has whole blocks",
		Edits: []Edit{
			{"wal/scan.go", `g.Size < minSegmentSize || g.Size%BlockSize != 0 {`, `g.Size < minSegmentSize {`},
		},
		By: unit("wal", "^TestScanRefusesDamagedSegments$"), Dies: `file_without_a_header_cut|out of range`,
	},
	{
		Name: "scan-close-of-another", Also: "",
		Rule: "a segment is passed over by its own CLOSE only",
		Edits: []Edit{
			{"wal/scanframes.go", `if err == nil && f.Binding == g.binding {
			return`, `if err == nil {
			return`},
		},
		By: unit("wal", "^TestScanPassesOverNoSegmentByAnotherClose$"), Dies: `want a ScanError wrapping corrupt`,
	},
	{
		Name: "scan-close-epoch", Also: "",
		Rule: "a segment is passed over by a CLOSE of its writer only",
		Edits: []Edit{
			{"wal/scanframes.go", `return f.Kind == FrameClose && f.Epoch == g.Header.Epoch && `, `return f.Kind == FrameClose && `},
		},
		By: unit("wal", "^TestScanPassesOverNoSegmentByAnotherClose$"), Dies: `want a ScanError wrapping corrupt`,
	},
	{
		Name: "scan-close-first", Also: "",
		Rule: "a segment that is passed over ends where the next one begins",
		Edits: []Edit{
			{"wal/scanframes.go", ` && f.First == next.First && f.Chain == next.Header.Chain`, ` && f.Chain == next.Header.Chain`},
		},
		By: unit("wal", "^TestScanPassesOverNoSegmentByAnotherClose$"), Dies: `want a ScanError wrapping corrupt`,
	},
	{
		Name: "scan-close-chain", Also: "",
		Rule: "a segment that is passed over ends with the chain value of the next one",
		Edits: []Edit{
			{"wal/scanframes.go", ` && f.First == next.First && f.Chain == next.Header.Chain`, ` && f.First == next.First`},
		},
		By: unit("wal", "^TestScanPassesOverNoSegmentByAnotherClose$"), Dies: `want a ScanError wrapping corrupt`,
	},
	{
		Name: "scan-newer-frame-in-tail", Also: "",
		Rule: "a frame of a newer binary proves that what lies before it was durable",
		Edits: []Edit{
			{"wal/scanframes.go", `if err == nil && f.Ordinal > ordinal || errors.Is(err, ErrFeatureLevel) {`, `if err == nil && f.Ordinal > ordinal {`},
		},
		By: unit("wal", "^TestNewerFrameBehindADamagedOne$"), Dies: `want a ScanError wrapping corrupt`,
	},
}
