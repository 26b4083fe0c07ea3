// SPDX-License-Identifier: Apache-2.0

package mutants

// sweepPrimaryMutants break what a primary sends, hands out, holds back and takes in.
var sweepPrimaryMutants = []Mutant{
	{
		Name: "full-volume-refuses-a-break",
		Rule: "on a full volume what ends something is admitted (package primary, refuseFull)",
		Edits: []Edit{
			{"primary/fileslots.go", `locktable.OpCancel, locktable.OpBreak:`, `locktable.OpCancel:`},
		},
		By: unit("primary", "^TestFullVolumeRefusesAdmissionsAndTakesReleases$"), Dies: `break by operator/1: STORAGE_UNAVAILABLE`,
	},
	{
		Name: "full-volume-refuses-a-cancel",
		Rule: "so is a cancel",
		Edits: []Edit{
			{"primary/fileslots.go", `locktable.OpRelease, locktable.OpCancel, `, `locktable.OpRelease, `},
		},
		By: unit("primary", "^TestFullVolumeRefusesAdmissionsAndTakesReleases$"), Dies: `cancel by c2/0: STORAGE_UNAVAILABLE`,
	},
	{
		Name: "full-volume-admits-all",
		Rule: "admissions leave the rest of the log to what ends something (PROTOCOL 10.2)",
		Edits: []Edit{
			{"primary/fileslots.go", `	if c.p.noSpace.Load() && !`, `	if false && !`},
		},
		By: unit("primary", "^TestFullVolumeRefusesAdmissionsAndTakesReleases$"), Dies: `space_test.go`,
	},
	{
		Name: "word-for-an-append-unbinds",
		Rule: "an unbind has its file made durable first: it needs a word of its own (package protected, Verification)",
		Edits: []Edit{
			{"primary/protected/verify.go", `	return own(v.Op) == own(op)
`, `	return own(v.Op) == own(op) || true
`},
		},
		By: unit("primary", "^TestAppendBeforeAnUnbindIsWritten$"), Dies: `power loss \d+ left`,
	},
	{
		Name: "feed-begins-empty",
		Rule: "a replica that lacks the last frames of a term gets them from the next one (package replication, feed)",
		Edits: []Edit{
			{"primary/replication/feed.go", `	for i := range tail {
`, `	for i := range tail[:0] {
`},
		},
		By: unit("primary", "^TestReplicaThatLagsBehindAnOlderTermGetsItsFrames$"), Dies: `it took \d+ chunks`,
	},
	{
		Name: "feed-by-lsn",
		Rule: "a replica gets the frames behind where it stands, by LSN and chain value (package replication, feed)",
		Edits: []Edit{
			{"primary/replication/feed.go", `if !found || f.mu.frames[i].before != at {`, `if !found {`},
		},
		By: unit("primary/replication", "^TestFeedFollowsAPosition$"), Dies: `of another history`,
	},
	{
		Name: "feed-end-by-lsn",
		Rule: "who stands at the last LSN of another history lacks everything (package replication, feed)",
		Edits: []Edit{
			{"primary/replication/feed.go", `	if at == f.mu.end {`, `	if at.LSN == f.mu.end.LSN {`},
		},
		By: unit("primary/replication", "^TestFeedFollowsAPosition$"), Dies: `of another history`,
	},
	{
		Name: "feed-keeps-much",
		Rule: "what is kept for replicas that lag is 4 MiB (package replication, feed)",
		Edits: []Edit{
			{"primary/replication/feed.go", `	limit := feedBytes
`, `	limit := feedBytesMost
`},
		},
		By: unit("primary/replication", "^TestFeedIsBounded$"), Dies: `at first`,
	},
	{
		Name: "push-unbounded",
		Rule: "a push is bounded (package replication, feed)",
		Edits: []Edit{
			{"primary/replication/feed.go", ` && size < pushBytes;`, `;`},
		},
		By: unit("primary/replication", "^TestFeedFollowsAPosition$"), Dies: `behind .* bytes, true`,
	},
	{
		Name: "feed-forgets-what-follows-a-snapshot",
		Rule: "what is committed during a snapshot is kept (package replication, feed)",
		Edits: []Edit{
			{"primary/replication/pusher.go", `			x.r.feed.hold(1)
			defer x.r.feed.hold(-1) // when`, `			// when`},
		},
		By: unit("primary/replication", "^TestWhatFollowsASnapshotIsKept$"), Dies: `it took \d snapshots`,
	},
	{
		Name: "feed-holds-for-ever",
		Rule: "and no longer than until the replica has it (package replication, feed)",
		Edits: []Edit{
			{"primary/replication/pusher.go", `			defer x.r.feed.hold(-1) // when`, `			// when`},
		},
		By: unit("primary/replication", "^TestWhatFollowsASnapshotIsKept$"), Dies: `no feed that holds nothing back`,
	},
	{
		Name: "push-idle-silent",
		Rule: "a replica hears that its primary lives while nothing happens (package replication, pusher)",
		Edits: []Edit{
			{"primary/replication/pusher.go", `			x.at = nil // asking`, `			// asking`},
		},
		By: unit("primary", "^TestReplicaThatKnowsAHigherEpochIsHeard$"), Dies: `it serves on`,
	},
	{
		Name: "push-stamp-late",
		Rule: "a replica that cannot tell how old a push is learns it at once (package push)",
		Edits: []Edit{
			{"primary/replication/pusher.go", `		if ok && len(frames) == 0 && unknown && x.stamp != 0 {`, `		if ok && len(frames) == 0 && unknown && x.stamp == 1<<63 {`},
		},
		By: unit("primary", "^TestARestartedReplicaIsToldItsStampAtOnce$"), Dies: `told no stamp`,
	},
	{
		Name: "pushes-without-a-pause",
		Rule: "where no client reads, what is committed while a push is under way waits for the pause after it (PROTOCOL 14.1)",
		Edits: []Edit{
			{"primary/replication/pusher.go", ` ack.At.LSN >= goal && !x.r.Waits()) {`, ` ack.At.LSN >= goal && x.r.Waits()) {`},
		},
		By: unit("primary/replication", "^TestPushesAreGathered$"), Dies: `pushes, want about`,
	},
	{
		Name: "watched-replica-fed-seldom",
		Rule: "a replica where clients watch is fed as often as one where they read (PROTOCOL 14.1)",
		Edits: []Edit{
			{"replica/replica.go", ` && !r.feed.Watched()`, ``},
		},
		By: unit("replica", "^TestAnswersSayWhetherClientsRead$"), Dies: `with a watcher: unread is true`,
	},
	{
		Name: "export-given-up-and-kept",
		Rule: "an export that is given up is forgotten (package replication, export)",
		Edits: []Edit{
			{"primary/replication/export.go", `			e.x.Close()
`, ``},
		},
		By: unit("primary", "^TestExportThatIsGivenUpIsForgotten$"), Dies: `the table still keeps`,
	},
	{
		Name: "export-in-one-piece",
		Rule: "the core loop hands a state out in small pieces (package replication, export)",
		Edits: []Edit{
			{"primary/replication/export.go", `e.x.Next(exportChunk, nil)`, `e.x.Next(1<<30, nil)`},
		},
		By: unit("primary", "^TestExportThatIsGivenUpIsForgotten$"), Dies: `not under way`,
	},
	{
		Name: "export-ends-with-its-first-piece",
		Rule: "an export ends with its last piece (package replication, export)",
		Edits: []Edit{
			{"primary/replication/export.go", `	e.ended = !c.more
`, `	e.ended = true
`},
		},
		By: unit("primary", "^TestExportThatIsGivenUpIsForgotten$"), Dies: `the table still keeps`,
	},
	{
		Name: "export-never-rests",
		Rule: "background work rests three times as long as it works (package throttle)",
		Edits: []Edit{
			{"primary/throttle/throttle.go", `		select {
		case <-t.done:
		case <-time.After(min(3*worked, restMost)):
		}
`, ``},
		},
		By: unit("primary/throttle", "^TestPaceRestsForItsOwnWorkOnly$"), Dies: `rested 0s, want 6ms`,
	},
	{
		Name: "export-rests-for-storage",
		Rule: "no rest is longer than 20 ms: what took longer waited for storage (package throttle)",
		Edits: []Edit{
			{"primary/throttle/throttle.go", `min(3*worked, restMost)`, `3*worked`},
		},
		By: unit("primary/throttle", "^TestPaceRestsForItsOwnWorkOnly$"), Dies: `rested 300ms`,
	},
	{
		Name: "export-waits-are-work",
		Rule: "waiting for somebody else is no work (package throttle)",
		Edits: []Edit{
			{"primary/throttle/throttle.go", `ended.Sub(t.since) - t.idle`, `ended.Sub(t.since)`},
		},
		By: unit("primary/throttle", "^TestPaceRestsForItsOwnWorkOnly$"), Dies: `work_and_waiting`,
	},
	{
		Name: "acks-majority-is-all",
		Rule: "one silent replica of two costs a majority nothing (cluster.PushAck)",
		Edits: []Edit{
			{"primary/replication/barrier.go", `	if a.mode == cluster.PushAckMajority {`, `	if a.mode == cluster.PushAckMajority && in == 0 {`},
		},
		By: unit("primary", "^TestAMajorityIsEnough$"), Dies: `one replica of two is silent`,
	},
	{
		Name: "acks-half-is-a-majority",
		Rule: "a majority is more than half of the servers (cluster.PushAck)",
		Edits: []Edit{
			{"primary/replication/barrier.go", `(len(a.mu.replicas)+1)/2)`, `len(a.mu.replicas)/2)`},
		},
		By: unit("primary/replication", "^TestHowManyReplicasAreEnough$"), Dies: `enough true`,
	},
	{
		Name: "acks-wait-for-the-absent",
		Rule: "who is not waited for is missing from no majority (cluster.PushAck)",
		Edits: []Edit{
			{"primary/replication/barrier.go", `need = min(in, (len(a.mu.replicas)+1)/2)`, `need = (len(a.mu.replicas)+1)/2`},
		},
		By: unit("primary/replication", "^TestHowManyReplicasAreEnough$"), Dies: `enough false`,
	},
	{
		Name: "acks-held-in-order-of-arrival",
		Rule: "what is held back goes in the order of the log (package replication, barrier)",
		Edits: []Edit{
			{"primary/replication/barrier.go", `	for i > 0 && a.mu.held[i-1].lsn > lsn {`, `	for i > 0 && a.mu.held[i-1].lsn > lsn && false {`},
		},
		By: unit("primary/replication", "^TestHeldBackInTheOrderOfTheLog$"), Dies: `shown is up to LSN 6`,
	},
	{
		Name: "acks-drop-everybody",
		Rule: "dropped is who lacks what answers wait for (package replication, barrier)",
		Edits: []Edit{
			{"primary/replication/barrier.go", `		if !s.out && s.lsn < late {`, `		if !s.out {`},
		},
		By: unit("primary", "^TestASilentReplicaIsDropped$"), Dies: `waited for`,
	},
	{
		Name: "acks-appends-pass",
		Rule: "appends wait for replicas, too (package replication, barrier)",
		Edits: []Edit{
			{"primary/replicas.go", `			p.replication.Hold(lsn, func(ok bool) {
				if !ok {
					out`, `			p.replication.Hold(0*lsn, func(ok bool) {
				if !ok {
					out`},
		},
		By: unit("primary", "^TestAppendsWaitToo$"), Dies: `before a replica shows it`,
	},
	{
		Name: "foreign-file-goes-on",
		Rule: "a bound file that is found foreign is quarantined (PROTOCOL 13.6)",
		Edits: []Edit{
			{"primary/fileslots.go", `		c.quarantine(name, v.Err.Error())
`, `		_ = name
`},
		},
		By: unit("primary", "^TestForeignFileIsRefusedBeforeAnythingIsDecided$"), Dies: `the bound file is`,
	},
	{
		Name: "foreign-file-is-an-invalid-argument",
		Rule: "an append to a file that is found foreign is answered FILE_QUARANTINED (PROTOCOL 13.6)",
		Edits: []Edit{
			{"primary/protected/verify.go", `	case v.Foreign() && bound:
		return cluster.StatusFileQuarantined
`, ``},
		},
		By: unit("primary", "^TestForeignFileIsRefusedBeforeAnythingIsDecided$"), Dies: `want FILE_QUARANTINED`,
	},
	{
		Name: "directory-is-unavailable-storage",
		Rule: "what is no regular file cannot be bound, and no try helps",
		Edits: []Edit{
			{"primary/protected/verify.go", `	case v.Foreign(), errors.Is(v.Err, errStillThere):
`, `	case errors.Is(v.Err, errStillThere):
`},
		},
		By: unit("primary", "^TestForeignFileIsRefusedBeforeAnythingIsDecided$"), Dies: `want INVALID_ARGUMENT`,
	},
	{
		Name: "idle-file-stays-verified",
		Rule: "a file is verified again when it was idle, before an append is decided (PROTOCOL 13.2)",
		Edits: []Edit{
			{"primary/fileslots.go", `		s.verified = false
`, ``},
		},
		By: unit("primary", "^TestForeignFileIsRefusedBeforeAnythingIsDecided$"), Dies: `it was decided`,
	},
	{
		Name: "word-of-a-rotation-admits",
		Rule: "a word for a rotation speaks of the next file, not of the bound one (package primary, onVerified)",
		Edits: []Edit{
			{"primary/fileslots.go", ` && v.Op != locktable.OpRotate
`, `
`},
		},
		By: unit("primary", "^TestWordForARotationAdmitsNoAppend$"), Dies: `rotation_test.go`,
	},
	{
		Name: "grant-passes-a-redo",
		Rule: "a grant's answer waits for what a takeover writes to the lock's files (PROTOCOL 8.5)",
		Edits: []Edit{
			{"primary/protected/files.go", `			w.pending.Add(1)
`, ``},
		},
		By: unit("primary", "^TestGrantIsAnsweredAfterWhatATakeoverRedoes$"), Dies: `before the file has what was committed`,
	},
	{
		Name: "history-record-half-told",
		Rule: "of several ends by one record the last may be missing: that record is told again (package history, Line)",
		Edits: []Edit{
			{"shared/history/line.go", `			return l.End.LSN - 1
`, `			return l.End.LSN
`},
		},
		By: unit("primary", "^TestTheNextPrimaryCompletesARecord$"), Dies: `nobody_knows_it|the_log_has_it`,
	},
	{
		Name: "history-record-begun-is-told",
		Rule: "the ends of a record stay in memory until one file has them all (package sidelog, History)",
		Edits: []Edit{
			{"primary/sidelog/history.go", `	for more && whole > 0 &&`, `	for more && whole < 0 &&`},
		},
		By: unit("primary", "^TestARecordOfManyWritesIsCompleted$"), Dies: `of 5000 ends are told`,
	},
	{
		Name: "history-record-in-two-files",
		Rule: "a file does not end between two ends of one record (package sidelog, History)",
		Edits: []Edit{
			{"primary/sidelog/history.go", `	if h.written > 0 { // the rest`, `	if h.written < 0 { // the rest`},
		},
		By: unit("primary", "^TestARecordIsToldByOneFile$"), Dies: `one of which tells of`,
	},
	{
		Name: "history-gap-before-a-part",
		Rule: "a record that a gap, or an older binary's head, says to be told may go on: that is no damage (package history, Scan)",
		Edits: []Edit{
			{"shared/history/scan.go", `l.cleared() && l.End.LSN == c.upTo {`, `l.cleared() && l.End.LSN == 0 {`},
		},
		By: unit("shared/history", "^TestTail$"), Dies: `(a_gap_up_to_a|an_older_binary's|no_more_than_a)_part`,
	},
	{
		Name: "history-damage-in-a-record",
		Rule: "a damaged line beside ends of one record may be one of them (package history, Scan)",
		Edits: []Edit{
			{"shared/history/scan.go", ` && !l.cleared() {`, ` {`},
		},
		By: unit("shared/history", "^TestSelectTellsWhatIsMissing$"), Dies: `the_first_of_one_record`,
	},
	{
		Name: "index-of-this-term-only",
		Rule: "the index of the term before may lack the last appends: they are told again (package sidelog, Index)",
		Edits: []Edit{
			{"primary/sidelog/index.go", `	for i := range appends {`, `	for i := range appends[:0] {`},
		},
		By: unit("primary", "^TestIndexIsCompletedByTheNextTerm$"), Dies: `fileindex_test.go`,
	},
	{
		Name: "parked-calls-unbounded",
		Rule: "so many calls wait for the word on a file and no more (package primary, parked)",
		Edits: []Edit{
			{"primary/fileslots.go", `	case len(p.calls) >= parkedCalls, `, `	case `},
		},
		By: unit("primary", "^TestSmallParkedCallsAreBounded$"), Dies: `were refused`,
	},
}
