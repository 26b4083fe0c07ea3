// SPDX-License-Identifier: Apache-2.0

package mutants

// coreMutants break rules of the core loop, the commit path, the push and the views.
var coreMutants = []Mutant{
	{
		Name: "hang-is-no-failure", Also: "",
		Rule: "a hang on one file concerns that file: committed appends stay pending, new ones are refused (PROTOCOL 13.4)",
		Edits: []Edit{
			{"primary/protected/fault.go", `	if age < hangAfter {`, `	if age < 1000*hangAfter {`},
		},
		By: unit("primary", "TestAppendsToAHangingFileAreRefused"), Dies: `append 0: NONE`,
	},
	{
		Name: "hang-outlives-its-end", Also: "",
		Rule: "a file whose call came back while it was called hanging works (package protected, Writer.watch)",
		Edits: []Edit{
			{"primary/protected/writer.go", `		w.busy.Store(0) // before the report that the file works
`, ``},
			{"primary/protected/writer.go", `				w.busy.Store(0)
`, ``},
		},
		By: unit("primary", "TestIdleFileDoesNotHang"), Dies: `STORAGE_UNAVAILABLE`,
	},
	{
		Name: "slow-is-a-hang", Also: "",
		Rule: "a file hangs when one call does not come back, and not when many are slow (package protected, Writer.watch)",
		Edits: []Edit{
			{"primary/protected/fault.go", `	age := min(now.Sub(w.born.Add(time.Duration(at-1))), w.files.term.UnansweredOf(w.name, now))`,
				`	age := now.Sub(w.born.Add(time.Duration(at - 1)))`},
		},
		By: unit("primary", "TestASlowFileDoesNotHang"), Dies: `it cannot be appended to`,
	},
	{
		Name: "parked-for-ever", Also: "",
		Rule: "what waits for the word on a file that hangs is refused (PROTOCOL 13.4)",
		Edits: []Edit{
			{"primary/fileslots.go", `		if s.verifying && s.writer.Failing() != "" {`, `		if s.verifying && s.writer == nil {`},
		},
		By: unit("primary", "TestCallsThatWaitForAHangingFileAreRefused"), Dies: `is not answered`,
	},
	{
		Name: "parked-though-abandoned", Also: "",
		Rule: "a call that nobody waits for is not kept (package primary, parked)",
		Edits: []Edit{
			{"primary/fileslots.go", `	if !slices.ContainsFunc(p.calls, gone) {`, `	if !slices.ContainsFunc(p.calls[:0], gone) {`},
		},
		By: unit("primary", "TestRepeatsOfAParkedAppendDoNotPileUp"), Dies: `have left \d+ MiB`,
	},
	{
		Name: "parked-data-unshared", Also: "",
		Rule: "repeats of a parked append share its data (package primary, parked)",
		Edits: []Edit{
			{"primary/fileslots.go", `		q.Data = first.req.Data
`, `		_ = first
`},
		},
		By: unit("primary", "TestRepeatsOfAParkedAppendDoNotPileUp"), Dies: `have left \d+ MiB`,
	},
	{
		Name: "parked-unbounded", Also: "",
		Rule: "what waits for the word on files is bounded in bytes (package primary, parked)",
		Edits: []Edit{
			{"primary/fileslots.go", `!shared && *all+len(q.Data) > parkedBytes:`, `!shared && p.bytes+len(q.Data) > parkedBytes:`},
		},
		By: unit("primary", "TestParkedCallsAreBounded"), Dies: `of 140 appends`,
	},
	{
		Name: "parked-repeats-unbounded", Also: "",
		Rule: "of one request so many calls wait and no more (package primary, parked)",
		Edits: []Edit{
			{"primary/fileslots.go", `p.times[key]+1 >= maxJoined:`, `p.times[key]+1 >= 1000*maxJoined:`},
		},
		By: unit("primary", "TestParkedCallsAreBounded"), Dies: `repeats of one request wait`,
	},
	{
		Name: "pending-untold", Also: "",
		Rule: "an append that is committed and not in its file is told so in time (PROTOCOL 13.4)",
		Edits: []Edit{
			{"primary/protected/fault.go", `	w.answerLate(now)
`, ``},
		},
		By: unit("primary", "TestCommittedAppendThatIsNotInItsFileIsToldSo"), Dies: `context deadline exceeded`,
	},
	{
		Name: "pending-repeat-untold", Also: "",
		Rule: "so is its repeat (PROTOCOL 13.4)",
		Edits: []Edit{
			{"primary/protected/fault.go", `		time.AfterFunc(max(lateLook, fullWait-now.Sub(x.since)), func() { x.examine() })
`, ``},
			{"primary/protected/fault.go", `f != nil && (now.Sub(x.since) >= x.patience(f) || now.Sub(f.since) >= x.patience(f)); !late {`, `f != nil && now.Sub(x.since) >= x.patience(f) || f == nil && why != ""; !late {`},
		},
		By: unit("primary", "TestCommittedAppendThatIsNotInItsFileIsToldSo"), Dies: `its repeat.*context deadline exceeded`,
	},
	{
		Name: "pending-told-as-refused", Also: "",
		Rule: "what is committed is told as committed: whoever takes it for refused appends it twice (PROTOCOL 13.4)",
		Edits: []Edit{
			{"shared/locktable/request.go", `	out.Status, out.Committed = cluster.StatusUnknown, true
`, `	out.Status = cluster.StatusStorageUnavailable
`},
		},
		By: unit("primary", "TestCommittedAppendThatIsNotInItsFileIsToldSo"), Dies: `STORAGE_UNAVAILABLE, committed false`,
	},
	{
		Name: "told-append-forgotten", Also: "",
		Rule: "an append that was told as not written stays pending (PROTOCOL 13.4)",
		Edits: []Edit{
			{"primary/protected/writer.go", `			k.done = nil
`, `			k.done, k.settled = nil, true
			w.pending.Add(-1)
`},
		},
		By: unit("primary", "TestCommittedAppendThatIsNotInItsFileIsToldSo"), Dies: `its repeat: OK`,
	},
	{
		Name: "grant-waits-for-ever", Also: "",
		Rule: "a grant waits at most 5 s for a file of its lock that fails (PROTOCOL 8.5)",
		Edits: []Edit{
			{"primary/protected/fault.go", `		why = f.text
`, `		why, late = f.text, x.inFile
`},
		},
		By: unit("primary", "TestGrantDoesNotWaitForAFileThatFails"), Dies: `after 10s: NONE`,
	},
	{
		Name: "grant-passes-a-slow-file", Also: "",
		Rule: "a grant's answer waits for earlier appends to the lock's files as long as these work (PROTOCOL 8.5)",
		Edits: []Edit{
			{"primary/protected/fault.go", `		if late = f != nil && (`, `		if f == nil && now.Sub(x.since) >= fileWait {
			continue
		}
		if late = f != nil && (`},
		},
		By: unit("primary", "TestGrantWaitsForAFileThatIsSlow"), Dies: `granted after 5`,
	},
	{
		Name: "grant-silent-on-what-it-passed", Also: "",
		Rule: "a grant that does not wait says so (PROTOCOL 8.5)",
		Edits: []Edit{
			{"primary/protected/fault.go", `	case pending:
		out.Message = `, `	case pending && reason == "":
		out.Message = `},
		},
		By: unit("primary", "TestGrantDoesNotWaitForAFileThatFails"), Dies: `does not say`,
	},
	{
		Name: "read-of-what-is-not-written", Also: "",
		Rule: "a read of a file is told when every append that it counts is in the file, or refused (package primary, File)",
		Edits: []Edit{
			{"primary/protected/fault.go", `	case pending && x.inFile: // a read of the file`, `	case pending && x.inFile && reason == "": // a read of the file`},
		},
		By: unit("primary", "TestReadOfAHangingFileIsRefused"), Dies: `told OK`,
	},
	{
		Name: "full-volume-unseen", Also: "",
		Rule: "what there is no room for is refused before it is committed (docs/promises.md)",
		Edits: []Edit{
			{"primary/fileslots.go", `known && s.Left < need {`, `known && s.Left < 0 {`},
		},
		By: unit("primary", "TestAppendToAFullVolumeIsRefused"), Dies: `want STORAGE_UNAVAILABLE`,
	},
	{
		Name: "old-sample-believed", Also: "",
		Rule: "a sample of the free space that is old says nothing (package volume, Volume.Space)",
		Edits: []Edit{
			{"shared/volume/volume.go", `	if s == nil || time.Since(s.at) > spaceAge {`, `	if s == nil {`},
		},
		By: unit("shared/volume", "TestSpaceIsThatOfAMomentAgo"), Dies: `a minute ago is told`,
	},
	{
		Name: "storage-refusal-waited-for", Also: "",
		Rule: "a call that storage refuses is told so within 2 s (package clientlib)",
		Edits: []Edit{
			{"shared/retry/pause.go", `	return time.Since(r.since) >= storagePatience`, `	return time.Since(r.since) >= 100*storagePatience`},
		},
		By: unit("clientlib", "TestStorageThatRefusesIsToldSoon"), Dies: `told after`,
	},
	{
		Name: "committed-asked-again", Also: "",
		Rule: "an append that is committed is answered, whatever its status (package clientlib)",
		Edits: []Edit{
			{"shared/retry/retry.go", `	if committed {`, `	if committed && s == cluster.StatusOK {`},
		},
		By: unit("clientlib", "TestCommittedAppendThatIsNotWrittenIsTold"), Dies: `told after`,
	},
	{
		Name: "committed-forwarded-again", Also: "",
		Rule: "likewise through a replica (package httpapi)",
		Edits: []Edit{
			{"shared/frontend/httpapi/forward.go", `retry.OfStatus(x.status, x.committed), nil`, `retry.OfStatus(x.status, false), nil`},
		},
		By: unit("shared/frontend", "TestCommittedAppendIsAnAnswer"), Dies: `replica, after`,
	},
	{
		Name: "committed-asked-again-by-hand", Also: "",
		Rule: "likewise on the command line (package remote)",
		Edits: []Edit{
			{"shared/retry/retry.go", `	if committed {`, `	if committed && s != cluster.StatusUnknown {`},
		},
		By: unit("cmd/holdfast/remote", "TestCommittedIsNotAskedAgain"), Dies: `told .* tries`,
	},
	{
		Name: "replica-out-for-good", Also: "",
		Rule: "a replica that was dropped counts again when it is less than the bound behind (package replication, barrier)",
		Edits: []Edit{
			{"primary/replication/barrier.go", `(everything || lsn >= s.goal && now.Sub(s.since) < a.bound)`, `everything`},
		},
		By: unit("primary", "TestAReplicaIsBackUnderLoad"), Dies: `nobody waits for it`,
	},
	{
		Name: "slow-replica-back", Also: "",
		Rule: "one that shows what was committed later than that does not (package replication, barrier)",
		Edits: []Edit{
			{"primary/replication/barrier.go", `lsn >= s.goal && now.Sub(s.since) < a.bound)`, `lsn >= s.goal)`},
		},
		By: unit("primary", "TestAReplicaThatIsSlowIsNotBack"), Dies: `is waited for`,
	},
	{
		Name: "clock-back-silences", Also: "",
		Rule: "a time of day that was ahead for a moment silences nothing (package history, Limiter)",
		Edits: []Edit{
			{"shared/history/record.go", `	l.at = min(l.at, now) // the time of day may have been ahead
`, ``},
		},
		By: unit("shared/history", "TestReleasesAreToldAfterTheClockWasSetBack"), Dies: `is only counted`,
	},
	{
		Name: "clock-ahead-removes", Also: "",
		Rule: "nothing is removed for its age by a clock that has not gone evenly for long (package sidelog, evenClock)",
		Edits: []Edit{
			{"primary/sidelog/history.go", `	if !h.clock.believed(now, day) {`, `	if !h.clock.believed(now, day) && oldest < 0 {`},
		},
		By: unit("primary", "TestHistoryIsRemovedOnlyByAClockThatIsBelieved"), Dies: `the history says \["new`,
	},
	{
		Name: "clock-step-unseen", Also: "",
		Rule: "a step of the time of day begins that anew (package sidelog, evenClock)",
		Edits: []Edit{
			{"primary/sidelog/history.go", `c.since.IsZero() || step.Abs() > clockStep`, `c.since.IsZero() || step.Abs() < 0`},
		},
		By: unit("primary/sidelog", "TestClockThatWasSetIsNotBelieved"), Dies: `7776000 s ahead: true`,
	},
	{
		Name: "view-temporaries-stay", Also: "",
		Rule: "the primary removes what killed ones left of views (PROTOCOL 3.3)",
		Edits: []Edit{
			{"primary/views.go", `p.term.RemoveTemporaries(); err`, `error(nil); err`},
		},
		By: unit("primary", "TestTemporariesOfKilledProcessesAreRemoved"), Dies: `lock_state.json\d+ stays for ever`,
	},
	{
		Name: "probe-temporaries-stay", Also: "",
		Rule: "a server removes what killed processes of older versions left of their probes (package volume, fsck)",
		Edits: []Edit{
			{"shared/volume/claim.go", `, isTemporary(x, layout.ServerPrefix(v.opt.Server)+"probe")`, ``},
		},
		By: unit("primary", "TestTemporariesOfKilledProcessesAreRemoved"), Dies: `probe\d+ stays for ever`,
	},
	{
		Name: "what-looks-temporary-goes", Also: "",
		Rule: "nothing else is removed (PROTOCOL 3.3)",
		Edits: []Edit{
			{"shared/volume/checkpoint.go", ` && digits != "" && strings.Trim(digits, "0123456789") == ""`, ` && strings.Contains(digits, "")`},
		},
		By: unit("primary", "TestTemporariesOfKilledProcessesAreRemoved"), Dies: `is nobody's temporary`,
	},
	{
		Name: "views-late", Also: "",
		Rule: "while the table is not large the views are at most 1 s behind (docs/promises.md)",
		Edits: []Edit{
			{"primary/views.go", `	pause := max(interval/10, took, interval-interval/10-2*took)`, `	pause := max(interval/10, took, interval)`},
		},
		By: unit("primary", "TestViewsAreCurrent|TestPauseBehindViews"), Dies: `behind`,
	},
	{
		Name: "views-unbudgeted", Also: "",
		Rule: "the views of a large table cost 2 % of a core and of the disk (package primary, viewer)",
		Edits: []Edit{
			{"primary/views.go", `		pause = max(pause, viewShare*cost)`, `		pause = max(pause, cost)`},
		},
		By: unit("primary", "TestPauseBehindViews"), Dies: `100000 rows`,
	},
	{
		Name: "views-only-when-small", Also: "",
		Rule: "the views of a large table are written, too (package primary, viewer)",
		Edits: []Edit{
			{"primary/views.go", `	defer stop()
	if err := v.p.term.Check(); err != nil {`, `	defer stop()
	if v.at = x.At.LSN; x.At.LSN > 4096 {
		return 1, 0, nil
	}
	if err := v.p.term.Check(); err != nil {`},
		},
		By: unit("primary", "TestViewsOfALargeTableAreWritten"), Dies: `locks of 6000`,
	},
	{
		Name: "views-of-another-stay", Also: "",
		Rule: "a primary writes the views again when they are not its own (PROTOCOL 3.3)",
		Edits: []Edit{
			{"primary/views.go", `	return epoch != v.p.Epoch()`, `	return epoch > v.p.Epoch()`},
		},
		By: unit("primary", "TestViewsOfAnotherTermAreWrittenAgain"), Dies: `of epoch|lock_state.json`,
	},
	{
		Name: "views-error-is-the-end", Also: "",
		Rule: "views that cannot be written depose nobody and are not written without a pause (package primary, viewer)",
		Edits: []Edit{
			{"primary/views.go", `		return v.backoff
`, `		return v.p.opt.ViewInterval / 10
`},
		},
		By: unit("primary", "TestViewsThatCannotBeWrittenAreTriedAgain"), Dies: `tries in 11 minutes`,
	},
	{
		Name: "views-untimed", Also: "",
		Rule: "a view says when it was taken and that it is whole (docs/promises.md)",
		Edits: []Edit{
			{"shared/volume/checkpoint/codec.go", `Complete: x.Taken != "",`, `Complete: x.Taken == "never",`},
		},
		By: unit("primary", "TestViewsFollowTheTable"), Dies: `complete false`,
	},
	{
		Name: "clock-runs-while-storage-stalls", Also: "",
		Rule: "the serving clock stands still while storage stalls (PROTOCOL 11.4)",
		Edits: []Edit{
			{"primary/core.go", `	return !c.p.quorum.Load() || c.spare == nil && now.Sub(c.since) > lateness`, `	return !c.p.quorum.Load()`},
		},
		By: unit("primary", "TestClockStandsStillBesideACommitThatHangs"), Dies: `has stalled for 40 s`,
	},
	{
		Name: "abandoned-wait-is-heard", Also: "",
		Rule: "a caller that left is not heard when its place is granted (package primary, endWait)",
		Edits: []Edit{
			{"primary/core.go", `if !x.abandoned.Load() && (r.Kind`, `if (r.Kind`},
		},
		By: unit("primary", "TestGrantToWhoHasLeftRenewsNothing"), Dies: `that nobody waited for`,
	},
	{
		Name: "push-higher-epoch-unheard", Also: "",
		Rule: "a primary told of a higher epoch checks at once (PROTOCOL 2.4)",
		Edits: []Edit{
			{"primary/replication/pusher.go", `	if err == nil && ack.Epoch > m.Epoch {`, `	if err == nil && ack.Epoch > m.Epoch+1000 {`},
		},
		By: unit("primary", "TestReplicaThatKnowsAHigherEpochIsHeard"), Dies: `it serves on`,
	},
	{
		Name: "acks-told-at-the-end", Also: "",
		Rule: "what is held back for replicas is not told by the end of the term (package replication, barrier)",
		Edits: []Edit{
			{"primary/replication/barrier.go", `slices.Clone(a.mu.held[:n]), !a.mu.ended`, `slices.Clone(a.mu.held[:n]), true`},
		},
		By: unit("primary", "TestHeldBackOrdersAreNotToldByTheEnd"), Dies: `what no replica shows is told`,
	},
	{
		Name: "history-removed-unchecked", Also: "",
		Rule: "old history is removed behind a check (PROTOCOL 9.3)",
		Edits: []Edit{
			{"primary/sidelog/history.go", `	if err := h.cfg.Check(); err != nil {
		return err
	}
`, ``},
		},
		By: unit("primary", "TestFencedPrimaryRemovesNoHistory"), Dies: `was removed`,
	},
	{
		Name: "replica-two-pieces-at-once", Also: "",
		Rule: "one decoder in one snapshot (package replica, incoming)",
		Edits: []Edit{
			{"replica/replica.go", `	if in == nil || in.busy || c.Offset`, `	if in == nil || c.Offset`},
		},
		By: unit("replica", "TestOnePieceAtATime"), Dies: `beside another`,
	},
	{
		Name: "older-snapshot-unsaid", Also: "",
		Rule: "a replica that knows more than the primary's canary tells says so (package node, compare)",
		Edits: []Edit{
			{"cmd/holdfast/node/canary.go", `known := n.mu.known; c.At.LSN > 0 && c.At.LSN < known.LSN`, `known := n.mu.known; c.At.LSN > known.LSN`},
		},
		By: unit(simulation, "TestReplicaNoticesABackup"), Dies: `stands at \d+ and warns of \[\]`,
	},
	{
		Name: "held-too-long-untold", Also: "",
		Rule: "the end of MaxHold is told as held_too_long (package clientlib)",
		Edits: []Edit{
			{"clientlib/loss.go", `		return l.lost(LossHeldTooLong, `, `		return l.lost(LossNotRenewed, `},
		},
		By: unit("clientlib", "TestTheMostALockIsHeld"), Dies: `lost: `,
	},
	{
		Name: "run-held-too-long-untold", Also: "",
		Rule: "run tells it, too (docs/guide.md)",
		Edits: []Edit{
			{"clientlib/state.go", `count.limit > 0 && count.deadline >= count.limit`, `count.limit > 0 && count.deadline > count.limit`},
		},
		By: unit("clientlib", "TestTheMostALockIsHeld"), Dies: `does not say that this was the end`,
	},
}
