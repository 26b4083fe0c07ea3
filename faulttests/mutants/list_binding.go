// SPDX-License-Identifier: Apache-2.0

package mutants

// bindingMutants break rules of protected files, their bindings and what requests about them left behind.
var bindingMutants = []Mutant{
	{
		Name: "already-leaves-no-receipt",
		Rule: "what was answered OK was executed: a late duplicate of a Bind or Seal that found its file so already does nothing (package locktable, KindAlready)",
		Edits: []Edit{
			{"shared/locktable/decide_file.go", `	if q.Client.Anonymous() {
		dec := decided(&r)`, `	if q.Client != "" {
		dec := decided(&r)`},
		},
		By:   unit("shared/locktable", "TestWhatWasAnsweredOKDoesNothingLater"),
		Dies: `request 5 was answered at generation 1|request 3 found the file bound`,
	},
	{
		Name: "quarantined-unbound",
		Rule: "a quarantined file is rotated before it is unbound: without a binding nobody knows that its last appends may be in no file (DESIGN 5.4)",
		Edits: []Edit{
			{"shared/locktable/decide_file.go", `		if f.Quarantined { // its last`, `		if f.Quarantined && f.Lock == "" { // its last`},
			{"shared/locktable/legal.go", `r.Remember && (f.Quarantined || `, `r.Remember && (`},
		},
		By:   unit("primary", "TestLostAppendIsNotFoundAfterAnUnbind"),
		Dies: `answered OK|OK`,
	},
	{
		Name: "lost-appends-unbound",
		Rule: "what was lost in a quarantined generation is known when its file is unbound, too (package locktable, past)",
		Edits: []Edit{
			{"shared/locktable/file.go", `	return t.past.lostOf(rc)`, `	return ""`},
		},
		By:   unit("shared/locktable", "TestALostAppendOutlivesTheBinding"),
		Dies: `got OK`,
	},
	{
		Name: "fifth-quarantine-forgets",
		Rule: "however many generations of a file were quarantined, what was lost in one is not told as done (package locktable, lostList)",
		Edits: []Edit{
			{"shared/locktable/file.go", `remember && !oldest.none()`, `!remember && oldest.none()`},
		},
		By:   unit("shared/locktable", "TestEveryQuarantinedGenerationIsKnown"),
		Dies: `got OK`,
	},
	{
		Name: "unbound-inode-forgotten",
		Rule: "offsets of an inode are given once: an Unbind remembers where its binding ended (RELIABILITY H16)",
		Edits: []Edit{
			{"shared/locktable/past.go", `	t.rememberUse(f)
	t.mark(`, `	t.mark(`},
		},
		By:   unit("primary", "TestLateWriteMeetsNoOtherAppend"),
		Dies: `AAAAtwo|INVALID_ARGUMENT`,
	},
	{
		Name: "rotated-inode-forgotten",
		Rule: "offsets of an inode are given once: a Rotate remembers where the generation before ended (RELIABILITY H16)",
		Edits: []Edit{
			{"shared/locktable/file.go", `	if r.Remember {
		t.rememberUse(f)
	}`, ``},
		},
		By:   unit("shared/locktable", "TestOffsetsOfAnInodeAreGivenOnce"),
		Dies: `rotated.*\n.*got OK`,
	},
	{
		Name: "used-inode-bound-by-another-name",
		Rule: "an inode counts, and not the name that it has now (package locktable, past)",
		Edits: []Edit{
			{"shared/locktable/decide_file.go", `!facts.Made && facts.Size < used {`, `!facts.Made && facts.Size < used && t.past.generation == 1 && q.Op == OpAppend {`},
		},
		By:   unit("shared/locktable", "TestOffsetsOfAnInodeAreGivenOnce"),
		Dies: `got OK`,
	},
	{
		Name: "forgotten-inodes-are-free",
		Rule: "an inode that was forgotten for want of room counts as used as far as any that was (package locktable, past)",
		Edits: []Edit{
			{"shared/locktable/past.go", `	return p.forgotten
`, `	return 0
`},
		},
		By:   unit("shared/locktable", "TestForgottenInodesCountAsUsed"),
		Dies: `at size (19|999)`,
	},
	{
		Name: "generation-of-a-name-again",
		Rule: "a name never has a generation twice: readers name their place by it (package locktable, past)",
		Edits: []Edit{
			{"shared/locktable/past.go", `{ return t.past.generation + 1 }`, `{ return 1 }`},
			{"shared/locktable/legal.go", `if r.Generation <= t.past.generation {`, `if r.Generation == 0 {`},
		},
		By:   unit("primary/api", "TestFollowGoesOnInNoOtherFile"),
		Dies: `HER FILE`,
	},
	{
		Name: "older-unbind-remembers",
		Rule: "records of older binaries make the state that they always made (package locktable, Record.Remember)",
		Edits: []Edit{
			{"shared/locktable/file.go", `	f := t.files[r.File]
	if r.Remember {
		t.rememberFile(f)
	}`, `	f := t.files[r.File]
	t.rememberFile(f)`},
		},
		By:   unit("shared/locktable", "TestRecordsOfOlderBinaries"),
		Dies: `remembered: `,
	},
	{
		Name: "redo-of-what-was-rotated",
		Rule: "appends before a Rotate are in the file that was moved away: no takeover writes them into the new one (package volume, scanner.redo)",
		Edits: []Edit{
			{"shared/volume/adopt.go", `	case locktable.KindUnbind, locktable.KindRotate:
		s.a.Redo`, `	case locktable.KindUnbind:
		s.a.Redo`},
		},
		By:   unit("primary", "TestTakeoverRedoesNothingOfARotatedGeneration"),
		Dies: `the new generation holds`,
	},
	{
		Name: "warm-pending-forgotten",
		Rule: "appends that the base carries are in no log behind it: a takeover with a warm table reads the base for them (package volume, resume)",
		Edits: []Edit{
			{"shared/volume/resume.go", `			if b.pending {
				return nil, errCold
			}
`, ``},
		},
		By:   unit("primary", "TestWarmTakeoverWritesWhatTheBaseCarries"),
		Dies: `the file holds "one`,
	},
	{
		Name: "recover-pending-of-any-generation",
		Rule: "a recovery carries on no append to a generation that was rotated away (package volume, recovery.build)",
		Edits: []Edit{
			{"shared/volume/recover_build.go", ` || f.Generation != rec.Generation`, ``},
		},
		By:   unit("shared/volume", "TestRecoverWritesNothingOfARotatedGeneration"),
		Dies: `to be written into generation 2`,
	},
	{
		Name: "recover-inode-numbers-collide",
		Rule: "a file that a recovery keeps may have the inode number that the log has for another file (package volume, builder.checkFiles)",
		Edits: []Edit{
			{"shared/volume/recover_build.go", `!kept && b.taken[state.Inode]`, `!kept && state.Inode == 0 && b.taken[state.Inode]`},
			{"shared/volume/recover_build.go", `!kept && b.taken[state.Inode]`, `!kept && b.taken[state.Inode*0]`},
		},
		By:   unit("shared/volume", "TestRecoverTellsInodesApart"),
		Dies: `comes twice`,
	},
	{
		Name: "recover-frees-old-inodes",
		Rule: "where the log may have gone on, nobody knows how far an inode was written: a recovery lets none be bound again (RELIABILITY H16)",
		Edits: []Edit{
			{"shared/volume/recover_build.go", `	if b.r.plan.Complete || b.r.source.elsewhere {
		return`, `	if b.r.plan != nil {
		return`},
		},
		By:   unit("shared/volume", "TestRecoverLeavesOldInodesToWhoeverStillSleeps"),
		Dies: `bound again where the lost append may be written`,
	},
	{
		Name: "close-while-holding",
		Rule: "a client that holds or waits is not closed (package locktable, OpCloseClient)",
		Edits: []Edit{
			{"shared/locktable/decide.go", `	case c.held > 0 || len(c.waits) > 0:
		return refuse(q, cluster.StatusInvalidArgument,
			fmt.Sprintf("client`, `	case c.held < 0:
		return refuse(q, cluster.StatusInvalidArgument,
			fmt.Sprintf("client`},
			{"shared/locktable/legal.go", `c == nil || c.held > 0 || len(c.waits) > 0 {`, `c == nil {`},
		},
		By:   unit("shared/locktable", "TestCloseClient"),
		Dies: `want INVALID_ARGUMENT`,
	},
	{
		Name: "chosen-client-closed",
		Rule: "only an opened client is closed: a self-chosen ID could come back, and its late requests with it (package locktable, OpCloseClient)",
		Edits: []Edit{
			{"shared/locktable/request.go", `		if !q.Client.Opened() {`, `		if q.Client == "" {`},
		},
		By:   unit("shared/locktable", "TestCloseClient"),
		Dies: `want INVALID_ARGUMENT`,
	},
	{
		Name: "older-checkpoints-excuse-all",
		Rule: "only a checkpoint of a binary that kept less is excused for it (package volume, sameState)",
		Edits: []Edit{
			{"shared/volume/fsck_log.go", `		if f.Since != 0 { // a binary`, `		if f.Since == 0 && f.End < 0 { // a binary`},
		},
		By:   unit("shared/volume", "TestFsckOfAnOlderBinarysCheckpoint"),
		Dies: `TestFsckOfAnOlderBinarysCheckpoint/by_nobody`,
	},
}
