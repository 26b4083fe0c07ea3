// SPDX-License-Identifier: Apache-2.0

package mutants

// madeMutants break what tells a file that the service made from one that was used, and what
// goes on where a volume was changed by an older binary or by damage.
var madeMutants = []Mutant{
	{
		Name: "left-file-is-not-new",
		Rule: "a file that this reign made, and whose inode was not bound since, is new at the next look, too (package volume, ProtectedFile)",
		Edits: []Edit{{"shared/volume/files.go",
			"	f, err := r.openExisting(name)\n	if err != nil {\n		return nil, err\n	}\n	return r.durable(name, f)\n",
			"	f, err := r.openExisting(name)\n	if err != nil {\n		return nil, err\n	}\n	p, err := r.durable(name, f)\n	if err == nil {\n		p.made = false\n	}\n	return p, err\n"}},
		By:   unit("primary", "^TestAFileThatTheServiceMadeForACallerThatLeftIsNew$"),
		Dies: `the repeat: INVALID_ARGUMENT`,
	},
	{
		Name:  "made-outlives-its-binding",
		Rule:  "that the service made a file says nothing any more once it was bound (package volume, Reign)",
		Edits: []Edit{{"shared/volume/files.go", "	delete(r.made.all, inode)\n", ""}},
		By:    unit("primary", "^TestAnInodeThatWasBoundIsNotNew$"),
		Dies:  `made_test.go:\d+: .*OK`,
	},
	{
		Name:  "made-outlives-a-rotation",
		Rule:  "that the service made a file says nothing any more once it was rotated to (package primary, follow)",
		Edits: []Edit{{"primary/core.go", "		c.p.reign.Bound(r.Inode)\n		c.dropSlot", "		c.dropSlot"}},
		By:    unit("primary", "^TestAnInodeThatWasBoundIsNotNew$"),
		Dies:  `made_test.go:\d+: .*OK`,
	},
	{
		Name:  "unchanged-file-counts-as-used",
		Rule:  "an empty file that is as it was made is not the one that had its inode's number before (package locktable, checkFacts)",
		Edits: []Edit{{"shared/locktable/decide_file.go", " || f.Unchanged && f.Size == 0 && used < math.MaxInt64", " || used < 0 && used < math.MaxInt64"}},
		By:    unit("primary", "^TestAFileThatAnEarlierPrimaryMadeIsNew$"),
		Dies:  `the repeat: INVALID_ARGUMENT`,
	},
	{
		Name:  "unchanged-behind-a-recovery",
		Rule:  "what was lost may have bound an empty file whose write is still to come (package locktable, checkFacts)",
		Edits: []Edit{{"shared/locktable/decide_file.go", "f.Size == 0 && used < math.MaxInt64", "f.Size == 0 && used <= math.MaxInt64"}},
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
		Edits: []Edit{{"primary/slots.go", "!waits && !c.table.MayAppend(q)", "!waits && !c.table.MayAppend(q) && bound"}},
		By:    unit("primary", "^TestNoFileIsMadeForAnAppendThatIsRefusedAnyway$"),
		Dies:  `the file was made: <nil>`,
	},
	{
		Name:  "pipelined-append-refused",
		Rule:  "an append behind one that waits for the file's first look is decided after it (package primary, needsFile)",
		Edits: []Edit{{"primary/slots.go", "waits := ok && s.verifying;", "waits := false;"}},
		By:    unit("primary", "^TestNoFileIsMadeForAnAppendThatIsRefusedAnyway$"),
		Dies:  `of two together: OFFSET_MISMATCH`,
	},
	{
		Name:  "older-recovery-not-named",
		Rule:  "who is refused for a flag of no claim is told that an older recovery may have set it (package volume, claimedBy)",
		Edits: []Edit{{"shared/volume/fence.go", "%s is of another claim: the directory of that epoch was removed, and its number taken again; %s\", ErrDamaged, name, olderRecovery)", "%s is of another claim: the directory of that epoch was removed, and its number taken again\", ErrDamaged, name)"}},
		By:    unit("shared/volume", "^TestAnInterruptedOlderRecoveryIsNamed$"),
		Dies:  `take over: .*its number taken again`,
	},
	{
		Name:  "older-recovery-not-in-the-plan",
		Rule:  "a plan of a recovery names the older one that may have been interrupted (package volume, takenTwice)",
		Edits: []Edit{{"shared/volume/survey.go", "taken again; %s\", epochDir(e.epoch), epochDir(e.by), olderRecovery))", "taken again\", epochDir(e.epoch), epochDir(e.by)))"}},
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
		Edits: []Edit{{"shared/history/scan.go", "	r.last = covers\n", "	r.last, r.borne = covers, max(r.borne, covers)\n"}},
		By:    unit("shared/history", "^TestReachOfAFile$"),
		Dies:  `LSN 920, 1 odd`,
	},
	{
		Name:  "tail-behind-a-lone-line",
		Rule:  "the history is gone on with from where its lines do not contradict each other (package history, Tail)",
		Edits: []Edit{{"shared/history/scan.go", "c.s == nil && covers > 0 && covers < c.upTo {", "c.s == nil && covers > 0 && covers < 0 {"}},
		By:    unit("shared/history", "^TestTail$"),
		Dies:  `too_high.*UpTo:920`,
	},
	{
		Name:  "fsck-keeps-damaged-lines-to-itself",
		Rule:  "fsck tells of damaged lines near the end of the history (package volume, checkHistory)",
		Edits: []Edit{{"shared/volume/fsck_files.go", "		if w.odd > 0 {\n", "		if w.odd < 0 {\n"}},
		By:    unit("shared/volume", "^TestFsckSaysOfTheHistoryWhatServersSay$"),
		Dies:  `fsck does not tell of a damaged line`,
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
		Rule:  "a look passes over what a claimant passes over (package volume, Look)",
		Edits: []Edit{{"shared/volume/look.go", "if began, ok := readFencedNote(fsys, e.epoch); ok {", "if began, ok := readFencedNote(fsys, e.epoch); ok && began > e.epoch {"}},
		By:    unit("shared/volume", "^TestLookSkipsWhatATakeoverSkips$"),
		Dies:  `it finds the end at LSN 0: .*missing|fences were read`,
	},
	{
		Name: "own-view-removed",
		Rule: "a primary removes temporaries of views while it writes none (package primary, writeViews)",
		Edits: []Edit{
			{"primary/views.go", "	if p.reign.Check() != nil {\n		return\n	}\n	if err := p.reign.RemoveTemporaries(); err != nil && p.reign.Err() == nil {\n		p.opt.Log.Warn().Err(err).Msg(\"remove what earlier primaries left of the views\") // it only takes space\n	}\n", ""},
			{"primary/housekeeper.go", "	if err := p.reign.RemoveOlder(p.source); err != nil", "	if p.reign.RemoveTemporaries() != nil {\n		return\n	}\n	if err := p.reign.RemoveOlder(p.source); err != nil"},
		},
		By:   unit("primary", "^TestNoPrimaryRemovesAViewThatItWrites$"),
		Dies: `it removed 1 of its own`,
	},
}
