// SPDX-License-Identifier: Apache-2.0

package mutants

// madeMutants break what tells a file that the service made from one that was used, and what
// goes on where a volume was changed by an older binary or by damage.
var madeMutants = []Mutant{
	{
		Name: "left-file-is-not-new",
		Rule: "a file that this term made, and whose inode was not bound since, is new at the next look, too (package volume, ProtectedFile)",
		Edits: []Edit{{"shared/volume/files.go",
			"	f, err := r.openExisting(name)\n	if err != nil {\n		return nil, err\n	}\n	return r.durable(name, f)\n",
			"	f, err := r.openExisting(name)\n	if err != nil {\n		return nil, err\n	}\n	p, err := r.durable(name, f)\n	if err == nil {\n		p.made = false\n	}\n	return p, err\n"}},
		By:   unit("primary", "^TestAFileThatTheServiceMadeForACallerThatLeftIsNew$"),
		Dies: `the repeat: INVALID_ARGUMENT`,
	},
	{
		Name:  "made-outlives-its-binding",
		Rule:  "that the service made a file says nothing any more once it was bound (package volume, Term)",
		Edits: []Edit{{"shared/volume/files.go", "	delete(r.made.all, inode)\n", ""}},
		By:    unit("primary", "^TestAnInodeThatWasBoundIsNotNew$"),
		Dies:  `made_test.go:\d+: .*OK`,
	},
	{
		Name:  "made-outlives-a-rotation",
		Rule:  "that the service made a file says nothing any more once it was rotated to (package primary, follow)",
		Edits: []Edit{{"primary/core.go", "		c.p.term.Bound(r.Inode)\n		c.dropSlot", "		c.dropSlot"}},
		By:    unit("primary", "^TestAnInodeThatWasBoundIsNotNew$"),
		Dies:  `made_test.go:\d+: .*OK`,
	},
	{
		Name:  "unchanged-file-counts-as-used",
		Rule:  "an empty file that is as it was made is not the one that had its inode's number before (package locktable, checkFacts)",
		Edits: []Edit{{"shared/locktable/files.go", " || f.Unchanged && f.Size == 0 &&", " || f.Unchanged && f.Size < 0 &&"}},
		By:    unit("primary", "^TestAFileThatAnEarlierPrimaryMadeIsNew$"),
		Dies:  `the repeat: INVALID_ARGUMENT`,
	},
	{
		Name:  "unchanged-behind-a-recovery",
		Rule:  "what was lost may have bound an empty file whose write is still to come (package locktable, checkFacts)",
		Edits: []Edit{{"shared/locktable/files.go", "f.Size == 0 && used < math.MaxInt64", "f.Size == 0 && used <= math.MaxInt64"}},
		By:    unit("shared/locktable", "^TestAnUnchangedFileIsAnotherOne$"),
		Dies:  `file_test.go:\d+: .*OK`,
	},
	{
		Name:  "changed-file-counts-as-unchanged",
		Rule:  "a file that was written, cut or moved since it was made is told from one that was not (package osfs, Stat)",
		Edits: []Edit{{"shared/volume/osfs/file.go", "st.Mask&want == want && st.Btime == st.Ctime", "st.Mask&want == want"}},
		By:    unit("shared/volume/osfs", "^TestUnchangedSinceItWasMade$"),
		Dies:  `a file that was (cut|moved) is as it was made`,
	},
	{
		Name:  "file-made-for-a-refusal",
		Rule:  "no file is made for an append that is refused whatever the file is (package primary, needsFile)",
		Edits: []Edit{{"primary/fileslots.go", "!waits && !c.table.MayAppend(q)", "!waits && !c.table.MayAppend(q) && bound"}},
		By:    unit("primary", "^TestNoFileIsMadeForAnAppendThatIsRefusedAnyway$"),
		Dies:  `the file was made: <nil>`,
	},
	{
		Name:  "pipelined-append-refused",
		Rule:  "an append behind one that waits for the file's first look is decided after it (package primary, needsFile)",
		Edits: []Edit{{"primary/fileslots.go", "waits := ok && s.verifying;", "waits := false;"}},
		By:    unit("primary", "^TestNoFileIsMadeForAnAppendThatIsRefusedAnyway$"),
		Dies:  `of two together: OFFSET_MISMATCH`,
	},
	{
		Name:  "older-recovery-not-named",
		Rule:  "who is refused for a flag of no claim is told that an older recovery may have set it (package epochdir, CheckFlag)",
		Edits: []Edit{{"shared/volume/internal/epochdir/fence.go", "%s is of another claim: the directory of that epoch was removed, and its number taken again; %s\", layout.ErrDamaged, name, olderRecovery)", "%s is of another claim: the directory of that epoch was removed, and its number taken again\", layout.ErrDamaged, name)"}},
		By:    unit("shared/volume", "^TestAnInterruptedOlderRecoveryIsNamed$"),
		Dies:  `take over: .*its number taken again`,
	},
	{
		Name:  "older-recovery-not-in-the-plan",
		Rule:  "a plan of a recovery names the older one that may have been interrupted (package epochdir, TakenTwice)",
		Edits: []Edit{{"shared/volume/internal/epochdir/survey.go", "taken again; %s\", layout.EpochDir(e.Epoch), layout.EpochDir(e.By), olderRecovery))", "taken again\", layout.EpochDir(e.Epoch), layout.EpochDir(e.By)))"}},
		By:    unit("shared/volume", "^TestAnInterruptedOlderRecoveryIsNamed$"),
		Dies:  `a recovery says: .*taken again`,
	},
	{
		Name:  "history-line-unsummed",
		Rule:  "a line of the history whose checksum does not fit is damaged (package history, ParseLine)",
		Edits: []Edit{{"shared/history/line.go", "	if !sumFits(b) {\n", "	if sumFits(b); false {\n"}},
		By:    unit("shared/history", "^(TestALineThatDoesNotFitItsChecksumIsDamaged|TestReachOfAFile)$"),
		Dies:  `a digit flipped: <nil>`,
	},
	{
		Name:  "lone-line-is-a-witness",
		Rule:  "a line that tells of more than the next one does not count (package history, Reach)",
		Edits: []Edit{{"shared/history/scan.go", "	r.last = tells\n", "	r.last, r.borne = tells, max(r.borne, tells)\n"}},
		By:    unit("shared/history", "^TestReachOfAFile$"),
		Dies:  `LSN (20|920), [12] odd; want [134]0,`,
	},
	{
		Name:  "tail-behind-a-lone-line",
		Rule:  "the history is gone on with from where its lines do not contradict each other (package history, Tail)",
		Edits: []Edit{{"shared/history/scan.go", "c.s == nil && covers > 0 && covers < c.upTo {", "c.s == nil && covers > 0 && covers < 0 {"}},
		By:    unit("shared/history", "^TestTail$"),
		Dies:  `too_(high|low)_.*: got \d+ true`,
	},
	{
		Name: "fsck-keeps-damaged-lines-to-itself",
		Rule: "fsck tells of damaged lines near the end of the history (package fsck, checkHistory)",
		Edits: []Edit{{"shared/volume/fsck/files.go", `		if w.Odd > 0 {
`, `		if w.Odd < 0 {
`}},
		By:   unit("shared/volume", "^TestFsckSaysOfTheHistoryWhatServersSay$"),
		Dies: `fsck does not tell of a damaged line`,
	},
	{
		Name:  "damaged-line-ends-the-reach",
		Rule:  "fsck, recovery and takeover read past a damaged line (package history, Reach)",
		Edits: []Edit{{"shared/history/scan.go", "	case err != nil:\n		r.odd++\n		return\n", "	case err != nil || r.odd > 0:\n		r.odd++\n		return\n"}},
		By:    unit("shared/volume", "^TestFsckSaysOfTheHistoryWhatServersSay$"),
		Dies:  `ahead behind a damaged line: fsck finds`,
	},
	{
		Name:  "space-overflows",
		Rule:  "a filesystem that reports more room than fits has much room (package osfs, Space)",
		Edits: []Edit{{"shared/volume/osfs/osfs.go", "int64(min(blocks, math.MaxInt64/uint64(unit)) * uint64(unit))", "int64(min(blocks, math.MaxUint64) * uint64(unit))"}},
		By:    unit("shared/volume/osfs", "^TestSpaceOfAFilesystemWithoutABound$"),
		Dies:  `2251799813685248 blocks of 4096 bytes: -`,
	},
	{
		Name:  "look-reads-every-fence",
		Rule:  "a look passes over what a claimant passes over (package volume, Preview)",
		Edits: []Edit{{"shared/volume/preview.go", "if began, ok := readFencedNote(fsys, e.Epoch); ok {", "if began, ok := readFencedNote(fsys, e.Epoch); ok && began > e.Epoch {"}},
		By:    unit("shared/volume", "^TestLookSkipsWhatATakeoverSkips$"),
		Dies:  `it finds the end at LSN 0: .*missing|fences were read`,
	},
	{
		Name: "own-view-removed",
		Rule: "a primary removes temporaries of views while it writes none (package primary, writeViews)",
		Edits: []Edit{
			{"primary/views.go", "	if p.term.Check() != nil {\n		return\n	}\n	if err := p.term.RemoveTemporaries(); err != nil && p.term.Err() == nil {\n		p.opt.Log.Warn().Err(err).Msg(\"remove what earlier primaries left of the views\") // it only takes space\n	}\n", ""},
			{"primary/housekeeper.go", "	before, err := p.source.Epoch, error(nil)\n", "	before, err := p.source.Epoch, p.term.RemoveTemporaries()\n"},
		},
		By:   unit("primary", "^TestNoPrimaryRemovesAViewThatItWrites$"),
		Dies: `it removed 1 of its own`,
	},
	{
		Name: "place-joined-after-the-given-up",
		Rule: "a call joins its place before what its client gives up is dropped: that may grant the place (package primary, decide)",
		Edits: []Edit{{"primary/core.go",
			"	if d.Pending {\n		c.joinPlace(x) // first: it may be granted after what is given up\n	}\n	if q.LowWater > 0 {\n		c.dropGivenUp(q.Client)\n	}\n",
			"	if q.LowWater > 0 {\n		c.dropGivenUp(q.Client)\n	}\n	if d.Pending {\n		c.joinPlace(x)\n	}\n"}},
		By:   unit("primary", "^TestARequestThatGivesUpThePlaceAheadOfItIsToldItsGrant$"),
		Dies: `told ERROR|told \w+ ".*"; it holds 1 locks`,
	},
	{
		Name: "takeover-copies-in-one-call",
		Rule: "a takeover copies what it cannot link in pieces (package vfs, CopyFile)",
		Edits: []Edit{{"shared/volume/vfs/pieces.go",
			`	w := InPieces(io.NewOffsetWriter(f, 0), f.Sync)
	if err := CopyPieces(w, src, func() error { return nil }); err != nil {
		return err
	}
	return f.Sync()
`,
			`	b, err := ReadFile(fsys, from, FlagRead)
	if err != nil {
		return err
	}
	if _, err := io.NewOffsetWriter(f, 0).Write(b); err != nil {
		return err
	}
	return f.Sync()
`}},
		By:   unit("shared/volume", "^TestATakeoverThatCopiesDoesNotLookLikeOneThatHangs$"),
		Dies: `a call took .*another server takes over`,
	},
	{
		Name: "look-hears-of-more-than-it-read",
		Rule: "a look reads the log after it has read how far the history tells (package volume, Preview)",
		Edits: []Edit{{"shared/volume/preview.go",
			"			return a.End.LSN, told, nil\n", "			return a.End.LSN, v.historyReach(ctx), nil\n"}},
		By:   unit("shared/volume", "^TestALookBesideAPrimaryFindsNothingLost$"),
		Dies: `the log ends at \d+, the history tells of \d+: <nil>`,
	},
	{
		Name:  "unchanged-behind-a-quarantine",
		Rule:  "a file whose binding ended in a quarantine may be as it was made, and wait for a late write (package locktable, fresh)",
		Edits: []Edit{{"shared/locktable/files.go", " && !t.mayLack()\n", "\n"}},
		By:    unit("shared/locktable", "^TestAnUnchangedFileIsAnotherOne$"),
		Dies:  `file_test.go:\d+: .*OK`,
	},
	{
		Name:  "unbound-quarantine-is-over",
		Rule:  "appends that may be in no file count, too, when their file is not bound any more (package locktable, mayLack)",
		Edits: []Edit{{"shared/locktable/files.go", "	if len(t.past.lost) > 0 {\n		return true\n	}\n	for _, f", "	for _, f"}},
		By:    unit("shared/locktable", "^TestAnUnchangedFileIsAnotherOne$"),
		Dies:  `file_test.go:\d+: .*OK`,
	},
	{
		Name: "lost-append-is-done-for-a-moment", Also: "",
		Rule: "an append that a file's writer knows to be in no file is not told as done before the table knows it (package primary, writing)",
		Edits: []Edit{{"primary/protected/writer.go",
			"	w.condemned.Store(true)\n", ""}},
		By:   unit("primary", "^TestALostAppendIsNotToldAsDoneBeforeTheTableKnowsIt$"),
		Dies: `its repeat was told OK`,
	},
}
