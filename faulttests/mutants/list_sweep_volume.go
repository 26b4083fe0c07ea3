// SPDX-License-Identifier: Apache-2.0

package mutants

// sweepVolumeMutants break recovery, fsck, checkpoints and what moves a generation away.
var sweepVolumeMutants = []Mutant{
	{
		Name: "recover-with-a-server-that-starts",
		Rule: "a recovery holds the guard of every server, so that none starts meanwhile",
		Edits: []Edit{
			{"shared/volume/recovery/recovery.go", `	for _, id := range r.known {
`, `	for _, id := range r.known[:0] {
`},
		},
		By: unit("shared/volume", "^TestRecoverRefusesWhileAServerRuns$"), Dies: `a server that starts: <nil>`,
	},
	{
		Name: "recover-loses-unasked",
		Rule: "nothing that was acknowledged is given up without consent (package volume, RecoverOptions)",
		Edits: []Edit{
			{"shared/volume/recovery/recovery.go", `	if !r.plan.Complete && !opt.AcceptLoss {`, `	if !r.plan.Complete && !opt.AcceptLoss && r.plan == nil {`},
		},
		By: unit("shared/volume", "^TestRecoverAsksBeforeItLoses$"), Dies: `recover_test.go:.*Done:true`,
	},
	{
		Name: "recover-does-what-was-not-agreed",
		Rule: "a recovery does what it planned before it set the fences, or refuses",
		Edits: []Edit{
			{"shared/volume/recovery/recovery.go", `	if r.plan.Source != before.Source || r.plan.End`, `	if false && r.plan.Source != before.Source && r.plan.End`},
		},
		By: unit("shared/volume", "^TestRecoverRefusesWhatCameMeanwhile$"), Dies: `recover_plan_test.go:.*Done:true`,
	},
	{
		Name: "recover-reads-before-it-fences",
		Rule: "what a recovery takes is read behind the fences, which nobody can add to",
		Edits: []Edit{
			{"shared/volume/recovery/recovery.go", `	before := *r.plan
	if err := r.survey(ctx); err != nil {
		return nil, err
	}
	if err := r.decide(ctx); err != nil {
		return r.plan, err
	}
`, `	before := *r.plan
`},
		},
		By: unit("shared/volume", "^TestRecoverRefusesWhatCameMeanwhile$"), Dies: `recover_plan_test.go:.*Done:true`,
	},
	{
		Name: "recover-ignores-a-higher-lsn",
		Rule: "an LSN behind the end that somebody was told of says that something is missing",
		Edits: []Edit{
			{"shared/volume/recovery/recovery.go", `	if proven.lsn > source.end.LSN || proven.epoch > last {`, `	if proven.epoch > last {`},
		},
		By: unit("shared/volume", "^TestRecoverCountsWhatSomebodyHasSeen$"), Dies: `an_LSN.*Needed:false`,
	},
	{
		Name: "recover-takes-a-seen-number",
		Rule: "where a higher epoch was seen, numbers are skipped: none is given twice (PROTOCOL 12.6)",
		Edits: []Edit{
			{"shared/volume/recovery/recovery.go", `	if seen.epoch > last || r.opt.Restored`, `	if r.opt.Restored`},
		},
		By: unit("shared/volume", "^TestRecoverCountsWhatSomebodyHasSeen$"), Dies: `an_epoch.*Epoch:5`,
	},
	{
		Name: "recover-takes-the-next-number-behind-a-copy",
		Rule: "where a copy is further than the volume, numbers are skipped: an older state was restored",
		Edits: []Edit{
			{"shared/volume/recovery/recovery.go", ` || r.opt.Restored || source.copied {`, ` || r.opt.Restored {`},
		},
		By: unit("shared/volume", "^TestRecoverCountsWhatSomebodyHasSeen$"), Dies: `a_copy_of_more.*Epoch:5`,
	},
	{
		Name: "recover-prefers-an-equal-copy",
		Rule: "a copy is taken where it is further than the volume, and only there",
		Edits: []Edit{
			{"shared/volume/recovery/recovery.go", `c.At.LSN <= source.end.LSN {`, `c.At.LSN < source.end.LSN {`},
		},
		By: unit("shared/volume", "^TestRecoverCountsWhatSomebodyHasSeen$"), Dies: `a_copy_of_the_end.*Needed:true`,
	},
	{
		Name: "recover-ignores-how-far-a-server-was",
		Rule: "what a server kept outside of the volume tells how far that was, also without a table",
		Edits: []Edit{
			{"shared/volume/recovery/recovery.go", `		proven.saw(c.Epoch, c.At.LSN)
`, ``},
		},
		By: unit("shared/volume", "^TestRecoverCountsWhatSomebodyHasSeen$"), Dies: `how_far_a_server_was.*Needed:false`,
	},
	{
		Name: "recover-ignores-who-recovers",
		Rule: "what the operator has seen counts as told",
		Edits: []Edit{
			{"shared/volume/recovery/recovery.go", `	proven.saw(r.opt.SeenEpoch, r.opt.SeenLSN)
`, ``},
		},
		By: unit("shared/volume", "^TestRecoverCountsWhatSomebodyHasSeen$"), Dies: `an_LSN.*Needed:false`,
	},
	{
		Name: "recover-warns-of-what-was-said",
		Rule: "who restores a backup and does not say how far the volume was is warned",
		Edits: []Edit{
			{"shared/volume/recovery/recovery.go", `if r.opt.Restored && r.opt.SeenLSN == 0 &&`, `if r.opt.Restored && r.opt.SeenLSN != 0 &&`},
		},
		By: unit("shared/volume", "^TestRecoverSaysWhatIsUnknown$"), Dies: `seen 0, end`,
	},
	{
		Name: "recover-notes-another-lsn",
		Rule: "the note on leases names the end of what is known",
		Edits: []Edit{
			{"shared/volume/recovery/recovery.go", `"locks that were granted after LSN "+fmt.Sprint(p.End)+" are unknown`, `"locks that were granted after LSN "+fmt.Sprint(p.SeenLSN)+" are unknown`},
		},
		By: unit("shared/volume", "^TestRecoverSaysWhatIsUnknown$"), Dies: `seen \d+, end \d+: locks`,
	},
	{
		Name: "recover-believes-a-torn-flag",
		Rule: "a flag that does not say by whom it was set may be that of a newer epoch that is gone",
		Edits: []Edit{
			{"shared/volume/recovery/recovery.go", `e.ByErr {`, `false && e.ByErr {`},
		},
		By: unit("shared/volume", "^TestRecoverDoubtsAFlagThatCannotBeRead$"), Dies: `recover_plan_test.go:.*Needed:false`,
	},
	{
		Name: "recover-goes-on-with-the-old-chain",
		Rule: "two recoveries of one state are two histories: no warm table of the one is one of the other",
		Edits: []Edit{
			{"shared/volume/recovery/build.go", `Chain: r.source.end.Chain.Next(r.nonce[:])}`, `Chain: r.source.end.Chain}`},
		},
		By: unit("shared/volume", "^TestTwoRecoveriesAreTwoHistories$"), Dies: `warm: true`,
	},
	{
		Name: "recover-writes-into-quarantined-files",
		Rule: "a recovery carries on no append to a file that it quarantines",
		Edits: []Edit{
			{"shared/volume/recovery/build.go", `!ok || f.Quarantined || f.Generation`, `!ok || f.Generation`},
		},
		By: unit("shared/volume", "^TestRecoverWritesNothingIntoAQuarantinedFile$"), Dies: `to be written`,
	},
	{
		Name: "recover-fears-another-filesystem",
		Rule: "an inode of a fresh volume is not that of the volume that was lost, whatever its number",
		Edits: []Edit{
			{"shared/volume/recovery/build.go", `c.Info.Inode == state.Inode && !b.r.source.elsewhere`, `c.Info.Inode == state.Inode`},
		},
		By: unit("shared/volume", "^TestRecoverKeepsAFileOfAFreshVolume$"), Dies: `Fate:quarantined`,
	},
	{
		Name: "recover-is-always-the-same-nobody",
		Rule: "who holds for nobody is another client in every recovery: its requests are not repeats",
		Edits: []Edit{
			{"shared/volume/recovery/build.go", `fmt.Sprintf("recovered-%d", b.r.plan.LSN)`, `"recovered"`},
		},
		By: unit("shared/volume", "^TestRecoverAgainAndAgain$"), Dies: `STALE_REQUEST`,
	},
	{
		Name: "recover-burns-a-number",
		Rule: "a recovery that finds a newer claim has no name taken",
		Edits: []Edit{
			{"shared/volume/recovery/publish.go", `	if err := r.unchanged(); err != nil {
		return err
	}
`, ``},
		},
		By: unit("shared/volume", "^TestRecoverThatWasOvertakenBurnsNothing$"), Dies: `a number was burned`,
	},
	{
		Name: "recover-passes-who-may-have-begun",
		Rule: "behind an epoch that may have begun meanwhile a recovery does not begin",
		Edits: []Edit{
			{"shared/volume/recovery/publish.go", `if e.Start != nil || e.Unknown() ||`, `if e.Start != nil ||`},
		},
		By: unit("shared/volume", "^TestRecoverDoesNotBeginWhereSomebodyMayHave$"), Dies: `SomebodyMayHave.*Done:true`,
	},
	{
		Name: "recover-passes-who-is-gone",
		Rule: "behind an epoch that came and went meanwhile a recovery does not begin",
		Edits: []Edit{
			{"shared/volume/recovery/publish.go", ` || i == 0 || now[i-1].Epoch != e.Epoch-1 {`, ` {`},
		},
		By: unit("shared/volume", "^TestRecoverDoesNotBeginWhereSomebodyMayHave$"), Dies: `gone.*Done:true`,
	},
	{
		Name: "recover-keeps-a-file-that-is-too-long",
		Rule: "a file with bytes behind the last append that is known does not go on",
		Edits: []Edit{
			{"shared/volume/recovery/build.go", `c.AnyInode, c.AtRest = true, true`, `c.AnyInode = true`},
		},
		By: unit("shared/volume", "^TestRecoverQuarantinesAFileThatIsTooLong$"), Dies: `foreign bytes behind the last append`,
	},
	{
		Name: "recover-gives-one-number-twice",
		Rule: "files whose inode numbers others have now are told apart, however many they are",
		Edits: []Edit{
			{"shared/volume/recovery/build.go", `			free++
`, ``},
		},
		By: unit("shared/volume", "^TestRecoverTellsManyInodesApart$"), Dies: `comes twice`,
	},
	{
		Name: "recover-forgets-whose-inode-it-is",
		Rule: "the inode of a file that is kept is remembered for nobody",
		Edits: []Edit{
			{"shared/volume/recovery/build.go", `if !b.taken[state.Inode] && !known`, `if !known`},
		},
		By: unit("shared/volume", "^TestRecoverTellsManyInodesApart$"), Dies: `an inode that was kept is nobody's`,
	},
	{
		Name: "recover-wants-a-chain-it-cannot-know",
		Rule: "what a recovery adopted ends where its claim says; the chain value there is not known",
		Edits: []Edit{
			{"shared/volume/recovery/source.go", `(a.unchained || c.end == a.at)`, `(c.end == a.at)`},
		},
		By: unit("shared/volume", "^TestRecoverTakesWhatARecoveryTook$"), Dies: `no log and no copy can be read`,
	},
	{
		Name: "recover-takes-a-recoverys-start-for-an-end",
		Rule: "what a recovery adopted ends where its claim says, not where its START does",
		Edits: []Edit{
			{"shared/volume/recovery/source.go", `	if e.ClaimErr == nil && e.Claim.Recovered != nil {
		return &adoptedEnd{at: wal.Position{LSN: e.Claim.Recovered.End}, unchained: true}
	}
`, ``},
		},
		By: unit("shared/volume", "^TestRecoverTakesWhatARecoveryTook$"), Dies: `sealed at LSN 8`,
	},
	{
		Name: "recover-takes-a-late-checkpoint",
		Rule: "a checkpoint behind the adopted end was made late, by a primary that was fenced",
		Edits: []Edit{
			{"shared/volume/recovery/source.go", `		if lsn > until {
			continue
		}
`, ``},
		},
		By: unit("shared/volume", "^TestRecoverTakesWhatARecoveryTook$"), Dies: `sealed at LSN 8`,
	},
	{
		Name: "recover-takes-nothing-for-a-state",
		Rule: "a log of which nothing can be read is no empty state",
		Edits: []Edit{
			{"shared/volume/recovery/source.go", `	if p.broken || b.At.LSN == 0 && a.Table.LSN() == 0 {`, `	if p.broken {`},
		},
		By: unit("shared/volume", "^TestRecoverTakesNothingForAState$"), Dies: `End:0`,
	},
	{
		Name: "recover-ignores-adopted-ends",
		Rule: "the adopted end in a START is an LSN that was given",
		Edits: []Edit{
			{"shared/volume/recovery/seen.go", `			seen.saw(0, e.Start.End.LSN)
`, `			seen.saw(0, 0)
`},
		},
		By: unit("shared/volume", "^TestRecoverCountsWhatNamesTellOf$"), Dies: `NamesTellOf/fence`,
	},
	{
		Name: "recover-ignores-names-of-checkpoints",
		Rule: "the name of a checkpoint tells of an LSN that was given",
		Edits: []Edit{
			{"shared/volume/recovery/seen.go", `				seen.saw(0, lsn)
`, `				seen.saw(0, 0*lsn)
`},
		},
		By: unit("shared/volume", "^TestRecoverCountsWhatNamesTellOf$"), Dies: `NamesTellOf/checkpoint-`,
	},
	{
		Name: "recover-ignores-names-of-segments",
		Rule: "the name of a segment tells of an LSN that was given",
		Edits: []Edit{
			{"shared/volume/recovery/seen.go", `				seen.saw(0, first-1)
`, `				seen.saw(0, 0*first)
`},
		},
		By: unit("shared/volume", "^TestRecoverCountsWhatNamesTellOf$"), Dies: `NamesTellOf/wal-`,
	},
	{
		Name: "recover-ignores-views",
		Rule: "a view of this cluster shows what was committed",
		Edits: []Edit{
			{"shared/volume/recovery/seen.go", `h.Cluster == r.v.Cluster().ID {
			proven.saw`, `h.Cluster != r.v.Cluster().ID {
			proven.saw`},
		},
		By: unit("shared/volume", "^TestRecoverCountsWhatNamesTellOf$"), Dies: `NamesTellOf/lock_state.json`,
	},
	{
		Name: "recover-misses-what-a-recovery-left-out",
		Rule: "the numbers that a recovery left out are not missing",
		Edits: []Edit{
			{"shared/volume/internal/epochdir/survey.go", `		return e.Claim.Recovered.Follows
`, `		return e.Epoch - 1
`},
		},
		By: unit("shared/volume", "^TestARecoveryThatDidNotBeginIsRepeated$"), Dies: `epoch-missing`,
	},
	{
		Name: "recover-repeats-what-servers-passed",
		Rule: "a recovery that did not begin is not repeated when servers have gone on from what it saw",
		Edits: []Edit{
			{"shared/volume/recovery/seen.go", ` || e.Claim.Recovered.Follows < began {`, ` {`},
		},
		By: unit("shared/volume", "^TestARecoveryThatServersPassedIsNotRepeated$"), Dies: `Needed:true`,
	},
	{
		Name: "recover-forgets-an-unfinished-one",
		Rule: "a recovery that did not begin is repeated with what it knew to be missing",
		Edits: []Edit{
			{"shared/volume/recovery/seen.go", `		if !note.Complete {`, `		if !note.Complete && note.Follows == 0 {`},
		},
		By: unit("shared/volume", "^TestARecoveryThatDidNotBeginIsRepeated$"), Dies: `Needed:false`,
	},
	{
		Name: "recover-believes-a-failed-rename",
		Rule: "after a failed rename a recovery looks for its nonce under the new name",
		Edits: []Edit{
			{"shared/volume/recovery/publish.go", `err != nil && !epochdir.HoldsNonce(r.fs, s.Epoch, r.nonce) {`, `err != nil {`},
		},
		By: unit("shared/volume", "^TestRecoverWhoseRenameReportsAFailure$"), Dies: `recover_late_test.go:.*input/output error`,
	},
	{
		Name: "recover-unverified",
		Rule: "a recovery reads what it wrote, as the next claimant will, before it has a name",
		Edits: []Edit{
			{"shared/volume/recovery/publish.go", `	if err == nil && (a.End != s.At`, `	if err = nil; a != nil && false && (a.End != s.At`},
		},
		By: unit("shared/volume", "^TestRecoverReadsWhatItWrote$"), Dies: `gap`,
	},
	{
		Name: "recover-keeps-the-index",
		Rule: "what the index tells of a history that is lost is not taken for foreign bytes",
		Edits: []Edit{
			{"shared/volume/recovery/publish.go", `	if err := index.Remove(r.fs); err != nil {
		return err
	}
`, `	_ = index.Remove
`},
		},
		By: unit("shared/volume", "^TestRecoverRemovesTheIndex$"), Dies: `left 1 files`,
	},
	{
		Name: "recover-leftovers-removed-in-place",
		Rule: "what a recovery built is renamed away before it is removed: half of it never gets a name",
		Edits: []Edit{
			{"shared/volume/claim.go", `		if name != trash {
			if err := vfs.IgnoreMissing(fsys.Rename(name, trash)); err != nil {
				return err
			}
		}
`, `		trash = name
`},
		},
		By: unit("shared/volume", "^TestHalfOfWhatARecoveryBuiltGetsNoName$"), Dies: `half of it has a name`,
	},
	{
		Name: "walk-believes-a-listing",
		Rule: "who claimed below a recovery's number is looked for by name: a listing may be old",
		Edits: []Edit{
			{"shared/volume/internal/epochdir/survey.go", `		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return nil, err
		}
		more = append(more, e)
`, `		if err == nil || errors.Is(err, fs.ErrNotExist) {
			break
		}
`},
		},
		By: unit("shared/volume", "^TestTakeoverFindsWhoIsHidden$"), Dies: `in_an_old_listing.*takes over from 4`,
	},
	{
		Name: "walk-believes-a-name",
		Rule: "and in a listing: a cache may remember a name as free",
		Edits: []Edit{
			{"shared/volume/internal/epochdir/survey.go", `	for _, e := range listed {
`, `	for _, e := range listed[:0] {
`},
		},
		By: unit("shared/volume", "^TestTakeoverFindsWhoIsHidden$"), Dies: `remembered_as_free.*takes over from 4`,
	},
	{
		Name: "walk-looks-once",
		Rule: "who claimed below a recovery's number counts, however many there are",
		Edits: []Edit{
			{"shared/volume/walk.go", `		if err != nil || len(more) == 0 {
			return e, s, err`, `		if err != nil || len(more) >= 0 {
			return e, s, err`},
		},
		By: unit("shared/volume", "^TestTakeoverFindsWhoClaimedWhileARecoverySlept$"), Dies: `takes over from 4`,
	},
	{
		Name: "fsck-believes-one-reading",
		Rule: "fsck believes a contradiction that it finds each time that it reads",
		Edits: []Edit{
			{"shared/volume/fsck/fsck.go", `const passes = 3`, `const passes = 1`},
		},
		By: unit("shared/volume", "^TestFsckBesideAPrimarySeesAFileThatWasCut$"), Dies: `a file that is being written`,
	},
	{
		Name: "fsck-says-nothing-of-a-change",
		Rule: "fsck says that contradictions were gone when it read again",
		Edits: []Edit{
			{"shared/volume/fsck/fsck.go", `again = found; gone > 0 {`, `again = found; gone > 1<<30 {`},
		},
		By: unit("shared/volume", "^TestFsckBesideAPrimarySeesAFileThatWasCut$"), Dies: `nothing says that it changed`,
	},
	{
		Name: "fsck-foreign-claim-unsaid",
		Rule: "fsck names a claim of another cluster",
		Edits: []Edit{
			{"shared/volume/fsck/fsck.go", `	case e.Claim.Cluster != k.v.Cluster().ID:
`, `	case false:
`},
		},
		By: unit("shared/volume", "^TestFsckNames$"), Dies: `warning claim-foreign`,
	},
	{
		Name: "fsck-foreign-cluster-unsaid",
		Rule: "fsck names a CLUSTER that is not the one epoch 0 was made for",
		Edits: []Edit{
			{"shared/volume/fsck/fsck.go", `	case begun.ID != c.ID:
`, `	case false:
`},
		},
		By: unit("shared/volume", "^TestFsckNames$"), Dies: `error cluster-differs`,
	},
	{
		Name: "fsck-gap-unsaid",
		Rule: "fsck names an epoch that is missing: its name must never be free again (PROTOCOL 3.2)",
		Edits: []Edit{
			{"shared/volume/fsck/fsck.go", `if i > 0 && k.epochs[i-1].Epoch < e.Before() || i`, `if i`},
		},
		By: unit("shared/volume", "^TestFsckNames$"), Dies: `error epoch-missing`,
	},
	{
		Name: "fsck-unfenced-unsaid",
		Rule: "fsck names an older epoch without a fence: its primary might speak",
		Edits: []Edit{
			{"shared/volume/fsck/fsck.go", `	case !decides && !e.Fenced:
`, `	case false:
`},
		},
		By: unit("shared/volume", "^TestFsckNames$"), Dies: `error unfenced`,
	},
	{
		Name: "fsck-flag-unread",
		Rule: "fsck names a flag that does not say by whom it was set",
		Edits: []Edit{
			{"shared/volume/fsck/fsck.go", `	case e.Fenced && e.By < e.Epoch:
`, `	case false:
`},
		},
		By: unit("shared/volume", "^TestFsckNames$"), Dies: `warning flag-damaged`,
	},
	{
		Name: "fsck-nonce-uncompared",
		Rule: "fsck compares the nonce of claim.json with that of START",
		Edits: []Edit{
			{"shared/volume/fsck/fsck.go", `	case !e.NonceFits():
`, `	case false:
`},
		},
		By: unit("shared/volume", "^TestFsckNames$"), Dies: `warning nonce-differs`,
	},
	{
		Name: "fsck-fence-half-read",
		Rule: "fsck looks at what lies between the blocks of a fence",
		Edits: []Edit{
			{"shared/volume/fsck/fsck.go", `(!vfs.AllZero(b[epochdir.SectorSize:min(len(b), layout.FenceSpacing)]) || `, `(`},
		},
		By: unit("shared/volume", "^TestFsckNames$"), Dies: `warning fence-bytes`,
	},
	{
		Name: "fsck-everything-decides",
		Rule: "damage below the newest term that started loses nothing: a warning",
		Edits: []Edit{
			{"shared/volume/fsck/fsck.go", `	decides := k.newest == nil
`, `	decides := true
`},
		},
		By: unit("shared/volume", "^TestFsckNames$"), Dies: `warning fence-missing`,
	},
	{
		Name: "fsck-files-of-the-top-only",
		Rule: "fsck sizes protected files in directories, too",
		Edits: []Edit{
			{"shared/volume/fsck/files.go", `			k.walkFiles(p)
`, ``},
		},
		By: unit("shared/volume", "^TestFsckNames$"), Dies: `error file-long`,
	},
	{
		Name: "fsck-foreign-view-unsaid",
		Rule: "fsck names a view of another cluster, which is not ahead of this one's log",
		Edits: []Edit{
			{"shared/volume/fsck/files.go", `		case v.head.Cluster != k.v.Cluster().ID:
`, `		case false:
`},
		},
		By: unit("shared/volume", "^TestRecoverDoesNotBelieveAForeignView$"), Dies: `view-foreign|view-ahead`,
	},
	{
		Name: "fsck-history-ahead-unsaid",
		Rule: "fsck names a history that tells of more than the log has",
		Edits: []Edit{
			{"shared/volume/fsck/files.go", `		if w.LSN > k.adoption.End.LSN && `, `		if w.LSN > k.adoption.End.LSN+1 && `},
		},
		By: unit("shared/volume", "^TestFsckSeesAHistoryThatIsAhead$"), Dies: `history-ahead|LSN 45 of 44`,
	},
	{
		Name: "fsck-quarantine-unsaid",
		Rule: "fsck names a file that is quarantined",
		Edits: []Edit{
			{"shared/volume/fsck/files.go", `			k.warn("file-quarantined", p, adviceRotate, "quarantined: %s", f.Reason)
`, ``},
		},
		By: unit("shared/volume", "^TestFsckSaysThatAFileIsQuarantined$"), Dies: `fsck finds`,
	},
	{
		Name: "fsck-unbound-unsaid",
		Rule: "fsck names files that are bound to no lock",
		Edits: []Edit{
			{"shared/volume/fsck/files.go", `		if _, ok := table.File(name); !ok {`, `		if _, ok := table.File(name); !ok && name == "" {`},
		},
		By: unit("shared/volume", "^TestFsckNames$"), Dies: `info file-unbound`,
	},
	{
		Name: "fsck-writable-unsaid",
		Rule: "fsck says what others than the owner may write to (PROTOCOL 1.4)",
		Edits: []Edit{
			{"shared/volume/fsck/files.go", `info.Mode&0o022 != 0`, `info.Mode&0o002 == 0o777`},
		},
		By: unit("shared/volume", "^TestFsckNamesWhoMayWrite$"), Dies: `warning writable`,
	},
	{
		Name: "fsck-special-files-unsaid",
		Rule: "fsck names what is neither file nor directory",
		Edits: []Edit{
			{"shared/volume/fsck/files.go", `		case x.Type == vfs.TypeOther:
`, `		case false:
`},
		},
		By: unit("shared/volume", "^TestFsckNames$"), Dies: `warning special-file`,
	},
	{
		Name: "fsck-knows-every-server",
		Rule: "fsck names claims of servers that are no members",
		Edits: []Edit{
			{"shared/volume/fsck/files.go", `	if !ok || !k.knows(id) {
`, `	if !ok || id == 0 {
`},
		},
		By: unit("shared/volume", "^TestFsckNames$"), Dies: `info unknown-name servers/7`,
	},
	{
		Name: "fsck-start-uncompared",
		Rule: "fsck compares START with the log that it adopted",
		Edits: []Edit{
			{"shared/volume/fsck/log.go", `	case !has:
`, `	case false:
`},
		},
		By: unit("shared/volume", "^TestFsckNames$"), Dies: `error start-differs`,
	},
	{
		Name: "fsck-torn-tail-unsaid",
		Rule: "fsck says that there are bytes behind the end of the log",
		Edits: []Edit{
			{"shared/volume/fsck/log.go", `	if off < len(b) && !vfs.AllZero(b[off:]) {`, `	if off < len(b) && false {`},
		},
		By: unit("shared/volume", "^TestFsckNames$"), Dies: `info torn-tail`,
	},
	{
		Name: "fsck-padding-unread",
		Rule: "fsck looks at the bytes behind a frame",
		Edits: []Edit{
			{"shared/volume/fsck/log.go", `		if !vfs.AllZero(b[off+n : end]) {`, `		if false {`},
		},
		By: unit("shared/volume", "^TestFsckNames$"), Dies: `info padding`,
	},
	{
		Name: "fsck-damaged-checkpoint-unsaid",
		Rule: "fsck names a checkpoint that does not verify",
		Edits: []Edit{
			{"shared/volume/fsck/log.go", `		if err != nil {
			k.add(`, `		if err != nil {
			continue
		}
		if err != nil {
			k.add(`},
		},
		By: unit("shared/volume", "^TestFsckNames$"), Dies: `warning checkpoint-damaged`,
	},
	{
		Name: "filecheck-links-uncounted",
		Rule: "a protected file has one name only (PROTOCOL 13.1)",
		Edits: []Edit{
			{"shared/volume/internal/inspect/inspect.go", `	case c.Info.Nlink != 1:
`, `	case false:
`},
		},
		By: unit("shared/volume", "^TestFsckNames$"), Dies: `error file-links`,
	},
	{
		Name: "filecheck-inode-uncompared",
		Rule: "a protected file has the inode that the log says (PROTOCOL 13.1)",
		Edits: []Edit{
			{"shared/volume/internal/inspect/inspect.go", `	case c.Info.Inode != c.State.Inode && !c.AnyInode:
`, `	case false:
`},
		},
		By: unit("shared/volume", "^TestFsckNames$"), Dies: `error file-inode`,
	},
	{
		Name: "filecheck-type-unseen",
		Rule: "a protected file is a regular file (PROTOCOL 13.1)",
		Edits: []Edit{
			{"shared/volume/internal/inspect/inspect.go", `	case c.Info.Type != vfs.TypeFile:
`, `	case false:
`},
		},
		By: unit("shared/volume", "^TestFsckNames$"), Dies: `error file-type`,
	},
	{
		Name: "filecheck-short-file-unseen",
		Rule: "a protected file is as long as it was written",
		Edits: []Edit{
			{"shared/volume/internal/inspect/inspect.go", `	case c.Info.Size < c.Written:
`, `	case false:
`},
		},
		By: unit("shared/volume", "^TestFsckNames$"), Dies: `error file-short`,
	},
	{
		Name: "filecheck-hole-unseen",
		Rule: "zeros where something was written are a hole",
		Edits: []Edit{
			{"shared/volume/internal/inspect/inspect.go", `		case at < c.Written:
`, `		case false:
`},
		},
		By: unit("shared/volume", "^TestFsckNames$"), Dies: `error file-hole`,
	},
	{
		Name: "filecheck-sums-uncompared",
		Rule: "bytes that the log does not have any more have the CRC of their receipt",
		Edits: []Edit{
			{"shared/volume/internal/inspect/inspect.go", `	if got == rc.Length && h.Sum32() == rc.CRC {`, `	if got == rc.Length {`},
		},
		By: unit("shared/volume", "^TestFsckNames$"), Dies: `error file-foreign`,
	},
	{
		Name: "filecheck-judges-at-once",
		Rule: "on a network filesystem a file is looked at again before something is said to be wrong",
		Edits: []Edit{
			{"shared/volume/internal/inspect/inspect.go", `try == vfs.Retries || !c.fs.Kind().Network {`, `try > 0 {`},
		},
		By: unit("shared/volume", "^TestAShortFileIsLookedAtAgain$"), Dies: `1 looks`,
	},
	{
		Name: "filecheck-reads-the-cache",
		Rule: "a protected file is judged by bytes read past every cache",
		Edits: []Edit{
			{"shared/volume/internal/inspect/inspect.go", `c.fs.Open(path, vfs.FlagRead|vfs.FlagDirect)`, `c.fs.Open(path, vfs.FlagRead)`},
		},
		By: unit("shared/volume", "^TestProtectedFilesAreJudgedPastCaches$"), Dies: `fsck:`,
	},
	{
		Name: "keep-unsynced",
		Rule: "a generation is durable before it is moved away: nobody writes to it any more",
		Edits: []Edit{
			{"shared/volume/keep.go", `		err = f.Sync()
`, ``},
		},
		By: unit("shared/volume", "^TestKeepGenerationIsDurable$"), Dies: `a power loss left`,
	},
	{
		Name: "keep-moves-any-inode",
		Rule: "what was replaced is not moved away",
		Edits: []Edit{
			{"shared/volume/keep.go", `	if err == nil && info.Inode != inode {`, `	if err == nil && info.Inode == 0 {`},
		},
		By: unit("shared/volume", "^TestKeepGeneration$"), Dies: `another inode was moved`,
	},
	{
		Name: "keep-moves-a-later-generation",
		Rule: "a later generation that was moved by mistake is told of",
		Edits: []Edit{
			{"shared/volume/keep.go", `err != nil || moved.Inode != inode {`, `err != nil || moved.Inode == 0 {`},
		},
		By: unit("shared/volume", "^TestKeepGenerationThatSleeps$"), Dies: `the generation is kept as`,
	},
	{
		Name: "keep-overwrites-what-came-meanwhile",
		Rule: "a file that somebody put at the kept name stays",
		Edits: []Edit{
			{"shared/volume/keep.go", `!errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("%s was taken`, `err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("%s was taken`},
		},
		By: unit("shared/volume", "^TestKeepGenerationOverwritesNothing$"), Dies: `kept "log.g1", <nil>`,
	},
	{
		Name: "keep-name-undurable",
		Rule: "the kept name is durable",
		Edits: []Edit{
			{"shared/volume/keep.go", `	return fsys.SyncDir(path.Dir(to))
`, `	return nil
`},
		},
		By: unit("shared/volume", "^TestKeepGeneration$"), Dies: `power loss \d+ left`,
	},
	{
		Name: "keep-takes-any-name-aside",
		Rule: "what was moved aside is known by its inode",
		Edits: []Edit{
			{"shared/volume/keep.go", `err == nil && info.Inode == inode {
			return name`, `err == nil && info.Inode != 0 {
			return name`},
		},
		By: unit("shared/volume", "^TestKeepGenerationDoneHalf$"), Dies: `somebody's`,
	},
	{
		Name: "keep-only-once",
		Rule: "done again it finds what it did",
		Edits: []Edit{
			{"shared/volume/keep.go", `	case err == nil && there.Inode == inode:
`, `	case err == nil && there.Inode == inode && from == "":
`},
		},
		By: unit("shared/volume", "^TestKeepGeneration$"), Dies: `is taken`,
	},
	{
		Name: "checkpoint-keeps-one",
		Rule: "the newest checkpoint and the one before are kept (PROTOCOL 9.2)",
		Edits: []Edit{
			{"shared/volume/checkpoint.go", `		if kept < 2 && `, `		if kept < 1 && `},
		},
		By: unit("shared/volume", "^TestRemovalKeepsWhatItMust$"), Dies: `the base before the newest`,
	},
	{
		Name: "checkpoint-previous-is-the-newest",
		Rule: "what lies behind the checkpoint before the newest is needed by nobody, not what lies behind the newest (PROTOCOL 9.2)",
		Edits: []Edit{
			{"shared/volume/checkpoint.go", `	return all[1], nil`, `	return all[0], nil`},
		},
		By: unit("shared/volume", "^TestRemovalKeepsWhatItMust$"), Dies: `the base before the newest`,
	},
	{
		Name: "removal-of-the-source",
		Rule: "nothing of the epoch that was adopted from is removed (PROTOCOL 9.3)",
		Edits: []Edit{
			{"shared/volume/checkpoint.go", `		if e == src.Epoch || e == before {`, `		if e == before {`},
		},
		By: unit("shared/volume", "^TestRemovalKeepsWhatItMust$"), Dies: `epochs/0000000005 holds \d+ files: it lost some`,
	},
	{
		Name: "removal-of-the-one-before",
		Rule: "the newest term before the adopted one that started is kept until what was adopted is verified (PROTOCOL 9.3)",
		Edits: []Edit{
			{"shared/volume/checkpoint.go", `		if e == src.Epoch || e == before {`, `		if e == src.Epoch || before == 0 {`},
		},
		By: unit("shared/volume", "^TestRemovalKeepsWhatItMust$"), Dies: `epochs/0000000003 holds \d+ files: it lost some`,
	},
	{
		Name: "removal-leaves-what-never-began",
		Rule: "the contents of epochs that never started are removed, also of those above the adopted one (PROTOCOL 9.3)",
		Edits: []Edit{
			{"shared/volume/checkpoint.go", `		if e >= r.epoch {`, `		if e > src.Epoch {`},
		},
		By: unit("primary", "^TestWhatClaimsLeft"), Dies: `there is still no end of what is left`,
	},
	{
		Name: "before-never-began",
		Rule: "the term that is kept for the case of damage is one that started, or may have (PROTOCOL 9.3)",
		Edits: []Edit{
			{"shared/volume/checkpoint.go", `err != nil || x.Start != nil || x.Unknown() {`, `err != nil || x.Start == nil {`},
		},
		By: unit("shared/volume", "^TestStartedBefore$"), Dies: `over one that never began: 2`,
	},
	{
		Name: "before-is-not-unknown",
		Rule: "an epoch that may have started is not passed over when one is kept for the case of damage (PROTOCOL 9.3)",
		Edits: []Edit{
			{"shared/volume/checkpoint.go", `err != nil || x.Start != nil || x.Unknown() {`, `err != nil || x.Start != nil {`},
		},
		By: unit("shared/volume", "^TestStartedBefore$"), Dies: `with one that may have begun: 1`,
	},
	{
		Name: "checkpoint-damaged-counts",
		Rule: "a damaged checkpoint is not one of the two that are kept",
		Edits: []Edit{
			{"shared/volume/checkpoint.go", `kept < 2 && !slices.Contains(damaged, lsn)`, `kept < 2 && !slices.Contains(damaged, 0)`},
		},
		By: unit("shared/volume", "^TestDamagedCheckpointsAreNotKept$"), Dies: `the base before is`,
	},
	{
		Name: "unread-receipts-of-another",
		Rule: "the receipts of a checkpoint that nobody has read are those that its state names",
		Edits: []Edit{
			{"shared/volume/checkpoint/decode.go", `	if !d.view && (h.Receipts != d.receipts ||`, `	if d.build && (h.Receipts != d.receipts ||`},
		},
		By: unit("shared/volume", "^TestReceiptsOfAnotherCheckpointAreDamage$"), Dies: `damaged are`,
	},
	{
		Name: "unread-state-unverified",
		Rule: "the sum of a state that nobody has read is verified",
		Edits: []Edit{
			{"shared/volume/checkpoint/read.go", `	return newDecoder(false).readFiles(fsys, dir, lsn, rest)
`, `	return newDecoder(false).readFile(fsys, dir+"/"+layout.CheckpointDir(lsn)+"/"+layout.RequestsName, 1, rest)
`},
		},
		By: unit("shared/volume", "^TestUnreadCheckpointIsVerified$"), Dies: `lock_state.json: byte`,
	},
}
