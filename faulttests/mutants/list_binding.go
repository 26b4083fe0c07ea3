// SPDX-License-Identifier: Apache-2.0

package mutants

// bindingMutants break rules of protected files, their bindings and what requests about them left behind.
var bindingMutants = []Mutant{
	{
		Name: "already-leaves-no-receipt",
		Rule: "what was answered OK was executed: a late duplicate of a Bind or Seal that found its file so already does nothing (package locktable, KindAlready)",
		Edits: []Edit{
			{"shared/locktable/files.go", `	if q.Client.Anonymous() || !t.level2(q) {
		dec := decided(&r)`, `	if q.Client != "" {
		dec := decided(&r)`},
		},
		By:   unit("shared/locktable", "TestWhatWasAnsweredOKDoesNothingLater"),
		Dies: `request 5 was answered at generation 1|request 3 found the file bound`,
	},
	{
		Name: "quarantined-unbound",
		Rule: "a quarantined file is rotated before it is unbound: without a binding nobody knows that its last appends may be in no file (PROTOCOL 13.7)",
		Edits: []Edit{
			{"shared/locktable/files.go", `		if f.Quarantined { // its last`, `		if f.Quarantined && f.Lock == "" { // its last`},
			{"shared/locktable/apply.go", `r.Remember && (f.Quarantined || `, `r.Remember && (`},
		},
		By:   unit("primary", "TestLostAppendIsNotFoundAfterAnUnbind"),
		Dies: `unbind by c1/4: OK`,
	},
	{
		Name: "lost-appends-unbound",
		Rule: "what was lost in a quarantined generation is known when its file is unbound, too (package locktable, past)",
		Edits: []Edit{
			{"shared/locktable/files.go", `	return t.past.lostOf(rc)`, `	return ""`},
		},
		By:   unit("shared/locktable", "TestALostAppendOutlivesTheBinding"),
		Dies: `got OK`,
	},
	{
		Name: "fifth-quarantine-forgets",
		Rule: "however many generations of a file were quarantined, what was lost in one is not told as done (package locktable, lostList)",
		Edits: []Edit{
			{"shared/locktable/files.go", `remember && !oldest.none()`, `!remember && oldest.none()`},
		},
		By:   unit("shared/locktable", "TestEveryQuarantinedGenerationIsKnown"),
		Dies: `got OK`,
	},
	{
		Name: "unbound-inode-forgotten",
		Rule: "offsets of an inode are given once: an Unbind remembers where its binding ended (PROTOCOL 13.8, H16)",
		Edits: []Edit{
			{"shared/locktable/past.go", `	t.rememberUse(f)
	t.mark(`, `	t.mark(`},
		},
		By:   unit("primary", "TestLateWriteMeetsNoOtherAppend"),
		Dies: `AAAAtwo|INVALID_ARGUMENT`,
	},
	{
		Name: "rotated-inode-forgotten",
		Rule: "offsets of an inode are given once: a Rotate remembers where the generation before ended (PROTOCOL 13.8, H16)",
		Edits: []Edit{
			{"shared/locktable/files.go", `	if r.Remember {
		t.rememberUse(f)
	}`, ``},
		},
		By:   unit("shared/locktable", "TestOffsetsOfAnInodeAreGivenOnce"),
		Dies: `got OK`,
	},
	{
		Name: "used-inode-bound-by-another-name",
		Rule: "an inode counts, and not the name that it has now (package locktable, past)",
		Edits: []Edit{
			{"shared/locktable/files.go", `facts.Size < used && !t.fresh(&facts, used) {`, `facts.Size < used && !t.fresh(&facts, used) && t.past.generation == 1 && q.Op == OpAppend {`},
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
			{"shared/locktable/apply.go", `if r.Generation <= t.past.generation {`, `if r.Generation == 0 {`},
		},
		By:   unit("shared/frontend", "TestFollowGoesOnInNoOtherFile"),
		Dies: `HER FILE`,
	},
	{
		Name: "older-unbind-remembers",
		Rule: "records of older binaries make the state that they always made (package locktable, Record.Remember)",
		Edits: []Edit{
			{"shared/locktable/files.go", `	f := t.files[r.File]
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
			{"shared/volume/resume.go", `			if b.Pending {
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
			{"shared/volume/recovery/build.go", ` || f.Generation != rec.Generation`, ``},
		},
		By:   unit("shared/volume", "TestRecoverWritesNothingOfARotatedGeneration"),
		Dies: `to be written into generation 2`,
	},
	{
		Name: "recover-inode-numbers-collide",
		Rule: "a file that a recovery keeps may have the inode number that the log has for another file (package volume, builder.checkFiles)",
		Edits: []Edit{
			{"shared/volume/recovery/build.go", `!kept && b.taken[state.Inode]`, `!kept && state.Inode == 0 && b.taken[state.Inode]`},
		},
		By:   unit("shared/volume", "TestRecoverTellsInodesApart"),
		Dies: `comes twice`,
	},
	{
		Name: "recover-frees-old-inodes",
		Rule: "where the log may have gone on, nobody knows how far an inode was written: a recovery lets none be bound again (PROTOCOL 17.3, H16)",
		Edits: []Edit{
			{"shared/volume/recovery/build.go", `	if b.r.plan.Complete || b.r.source.elsewhere {
		return`, `	if b.r.plan != nil {
		return`},
		},
		By:   unit("shared/volume", "TestRecoverLeavesOldInodesToWhoeverStillSleeps"),
		Dies: `bound again where the lost append may be written`,
	},
	{
		Name: "log-forgets-a-holder",
		Rule: "no record forgets a client that holds or waits (package locktable, legal)",
		Edits: []Edit{
			{"shared/locktable/apply.go", `c == nil || c.held > 0 || len(c.waits) > 0 {`, `c == nil {`},
		},
		By:   unit("shared/locktable", "^TestIllegalRecordsChangeNothing$"),
		Dies: `forgetting a (holder|waiter): got <nil>`,
	},
	{
		Name: "forgotten-client-comes-back",
		Rule: "an opened client that was forgotten stays so, and its late requests are refused (package locktable, admit)",
		Edits: []Edit{
			{"shared/locktable/decide.go", `		if q.Client.Opened() {`, `		if q.Client == "@" {`},
			{"shared/locktable/apply.go", `		if r.Client.Opened() {`, `		if r.Client == "@" {`},
		},
		By:   unit("shared/locktable", "^TestForget$"),
		Dies: `client @\d+: invariant 8`,
	},
	{
		Name: "older-checkpoints-excuse-all",
		Rule: "only a checkpoint of a binary that kept less is excused for it (package volume, sameState)",
		Edits: []Edit{
			{"shared/volume/fsck/log.go", `		if f.Since != 0 { // a present binary`, `		if f.Since == 0 && f.End < 0 { // a present binary`},
		},
		By:   unit("shared/volume", "TestFsckOfAnOlderBinarysCheckpoint"),
		Dies: `TestFsckOfAnOlderBinarysCheckpoint/by_nobody`,
	},
	{
		Name: "lost-under-an-earlier-binding",
		Rule: "what was lost in a generation concerns the appends of its own binding (package locktable, Table.lost)",
		Edits: []Edit{
			{"shared/locktable/files.go", `f.Generation && rc.lsn > f.Since {`, `f.Generation {`},
		},
		By:   unit("shared/locktable", "TestAnEarlierBindingIsNotLost"),
		Dies: `got FILE_QUARANTINED`,
	},
	{
		Name: "lost-whatever-the-generation",
		Rule: "of a file whose generation began at an unknown LSN only the appends to that generation are lost (package locktable, LostAppends)",
		Edits: []Edit{
			{"shared/locktable/files.go", `return g >= l.first() && g <= l.Generation && rc.lsn`, `return g <= l.Generation && rc.lsn`},
		},
		By:   unit("shared/locktable", "TestLostAppendsOfAnOlderState"),
		Dies: `got FILE_QUARANTINED`,
	},
	{
		Name: "hash-without-seal",
		Rule: "the state hash sees every part of a file (package locktable, Hash)",
		Edits: []Edit{
			{"shared/locktable/hash.go", `	if f.Sealed {
		b = append(b, 's')
	}
`, ``},
		},
		By:   unit("shared/locktable", "TestHashSeesAllOfAFile"),
		Dies: `have one hash`,
	},
	{
		Name: "hash-without-since",
		Rule: "the state hash sees since when a file has its generation (package locktable, Hash)",
		Edits: []Edit{
			{"shared/locktable/hash.go", `	if f.Since != 0 {
		b =`, `	if f.Since == 1<<63 {
		b =`},
		},
		By:   unit("shared/locktable", "TestHashSeesAllOfAFile"),
		Dies: `have one hash`,
	},
	{
		Name: "hash-without-merged-generations",
		Rule: "the state hash sees from which generation on appends are lost (package locktable, Hash)",
		Edits: []Edit{
			{"shared/locktable/files.go", `		if x.Oldest != 0 {
			b = appendNumbers`, `		if x.Oldest > x.Generation {
			b = appendNumbers`},
		},
		By:   unit("shared/locktable", "TestHashSeesAllOfAFile"),
		Dies: `have one hash`,
	},
	{
		Name: "clone-shares-the-past",
		Rule: "a clone does not see what is remembered later (package locktable, Clone)",
		Edits: []Edit{
			{"shared/locktable/apply.go", `maps.Clone(t.inodes), t.past.clone()`, `maps.Clone(t.inodes), t.past`},
		},
		By:   unit("shared/locktable", "TestThePastIsCopied"),
		Dies: `the clone has changed`,
	},
	{
		Name: "export-of-the-later-past",
		Rule: "an export does not see what is remembered later (package locktable, Exporter)",
		Edits: []Edit{
			{"shared/locktable/export.go", `past: t.past.clone(), level`, `past: t.past, level`},
		},
		By:   unit("shared/locktable", "TestThePastIsCopied"),
		Dies: `the export is of another state`,
	},
	{
		Name: "lost-files-without-bound",
		Rule: "what is remembered of unbound files is bounded: a record for more is illegal (package locktable, past)",
		Edits: []Edit{
			{"shared/locktable/apply.go", `(f.Quarantined || t.past.full(f))`, `f.Quarantined`},
		},
		By:   unit("shared/locktable", "TestLostFilesAreBounded"),
		Dies: `a record that would remember one more`,
	},
	{
		Name: "already-anywhere",
		Rule: "a record says of a file only what is so (package locktable, legal)",
		Edits: []Edit{
			{"shared/locktable/apply.go", `	case KindAlready:
		if r.Generation != f.Generation || r.Offset != f.End {`, `	case KindAlready:
		if r.Generation == 0 {`},
		},
		By:   unit("shared/locktable", "TestIllegalRecordsOfFiles"),
		Dies: `already`,
	},
	{
		Name: "restored-past-twice",
		Rule: "a state that names an inode of an ended binding twice is damaged (package locktable, Restore)",
		Edits: []Edit{
			{"shared/locktable/past.go", `if _, twice := p.findUsed(s.Inode); twice {`, `if s.Inode == 0 {`},
		},
		By:   unit("shared/locktable", "TestRestoreRefusesATwofoldPast"),
		Dies: `an inode: `,
	},
	{
		Name: "restored-marks-fall",
		Rule: "the marks of a state that is restored are the highest there are (package locktable, Restore)",
		Edits: []Edit{
			{"shared/locktable/past.go", `t.mark(max(p.generation, s.Generation), max(p.forgotten, s.Forgotten))`, `t.mark(s.Generation, s.Forgotten)`},
		},
		By:   unit("shared/locktable", "TestMarksComeInAnyOrder"),
		Dies: `the marks are`,
	},
	{
		Name: "most-used-inode-forgotten",
		Rule: "of too many inodes the least used is forgotten (package locktable, past)",
		Edits: []Edit{
			{"shared/locktable/past.go", `p.used[i].end < p.used[smallest].end`, `p.used[i].end > p.used[smallest].end`},
		},
		By:   unit("shared/locktable", "TestForgottenInodesCountAsUsed"),
		Dies: `inode`,
	},
	{
		Name: "made-file-unknown",
		Rule: "a file that the service makes for a binding is new, whatever its inode's number (package protected, openUnbound)",
		Edits: []Edit{
			{"primary/protected/verify.go", `return factsOf(file, size), err`, `return locktable.FileFacts{Inode: file.Inode(), Size: size}, err`},
		},
		By:   unit("primary", "TestAFileThatTheServiceMadeIsNew"),
		Dies: `INVALID_ARGUMENT`,
	},
	{
		Name: "made-generation-unknown",
		Rule: "a file that the service makes for a rotation is new, whatever its inode's number (package protected, openNext)",
		Edits: []Edit{
			{"primary/protected/verify.go", `facts := factsOf(file, size)`, `facts := locktable.FileFacts{Inode: file.Inode(), Size: size}`},
		},
		By:   unit("primary", "TestAFileThatTheServiceMadeIsNew"),
		Dies: `INVALID_ARGUMENT`,
	},
	{
		Name: "any-file-is-made",
		Rule: "a file that was there is none that the service made (package volume, AdoptProtected)",
		Edits: []Edit{
			{"shared/volume/files.go", `func (p *ProtectedFile) Made() bool { return p.made }`, `func (p *ProtectedFile) Made() bool { return true }`},
		},
		By:   unit("primary", "TestAFileThatTheServiceMadeIsNew"),
		Dies: `OK`,
	},
	{
		Name: "recovered-inode-used-less",
		Rule: "a rotation does not lower what a recovery could not know of an inode (package locktable, past)",
		Edits: []Edit{
			{"shared/locktable/past.go", `		u.end = max(u.end, p.used[i].end)
`, ``},
		},
		By:   unit("shared/volume", "TestRecoverLeavesOldInodesToWhoeverStillSleeps"),
		Dies: `bound again where the lost append may be written`,
	},
	{
		Name: "recover-remembers-foreign-inodes",
		Rule: "inodes of the volume that was lost are not those of the fresh one (package volume, changePast)",
		Edits: []Edit{
			{"shared/volume/recovery/build.go", `		p.Inode, p.End, p.Forgotten = 0, 0, 0
`, `		p.Forgotten = 0
`},
		},
		By:   unit("shared/volume", "TestRecoverTellsInodesApart"),
		Dies: `of the volume that was lost is remembered`,
	},
	{
		Name: "seal-anywhere",
		Rule: "a record seals a file where it ends (package locktable, legal)",
		Edits: []Edit{
			{"shared/locktable/apply.go", `r.Generation != f.Generation || r.Offset != f.End {
			return fmt.Errorf("file %q is at generation %d, offset %d, quar`, `r.Generation != f.Generation || r.Offset != f.End && r.Kind == KindAppend {
			return fmt.Errorf("file %q is at generation %d, offset %d, quar`},
		},
		By:   unit("shared/locktable", "TestIllegalRecordsOfFiles"),
		Dies: `seal elsewhere`,
	},
	{
		Name: "sealed-unbound",
		Rule: "a record that unbinds a sealed file is illegal: bound anew it would be open again (package locktable, legal)",
		Edits: []Edit{
			{"shared/locktable/apply.go", `if f.Sealed || r.Remember`, `if r.Remember`},
		},
		By:   unit("shared/locktable", "TestSeal"),
		Dies: `unbind of a sealed file`,
	},
	{
		Name: "recover-again-collides",
		Rule: "a recovery of what another one left knows the inodes that this one could not speak for (package volume, builder.entities)",
		Edits: []Edit{
			{"shared/volume/recovery/build.go", ` && !known[state.Inode] && `, ` && !known[1<<63] && `},
		},
		By:   Killer{Pkg: "shared/volume", Run: "^TestRecoverCrashesAnywhere$", Flags: "-test.short"},
		Dies: `comes twice`,
	},
	{
		Name: "marks-for-old-servers",
		Rule: "a client is opened with no mark while a server of feature level 1 follows (package locktable, level2)",
		Edits: []Edit{
			{"shared/locktable/decide.go", `	if t.level2(q) {
		r.Mark`, `	if q.Mark != 0 {
		r.Mark`},
		},
		By:   unit("shared/locktable", "TestDecidedForOlderServers"),
		Dies: `open_client was decided for level 1: LSN 2: .* has field 29`,
	},
	{
		Name: "already-for-old-servers",
		Rule: "what is so already is answered without a record while a server of feature level 1 follows (package locktable, already)",
		Edits: []Edit{
			{"shared/locktable/files.go", `if q.Client.Anonymous() || !t.level2(q) {`, `if q.Client.Anonymous() {`},
		},
		By:   unit("shared/locktable", "TestDecidedForOlderServers"),
		Dies: `was decided for level 1: LSN \d+ is of kind 25`,
	},
	{
		Name: "unbind-remembers-for-old-servers",
		Rule: "an Unbind has no Remember while a server of feature level 1 follows (package locktable, level2)",
		Edits: []Edit{
			{"shared/locktable/files.go", `KindUnbind, t.level2(q)`, `KindUnbind, true`},
		},
		By:   unit("shared/locktable", "TestDecidedForOlderServers"),
		Dies: `unbind was decided for level 1: LSN \d+: unbind has field 30`,
	},
	{
		Name: "rotate-remembers-for-old-servers",
		Rule: "a Rotate has no Remember while a server of feature level 1 follows (package locktable, level2)",
		Edits: []Edit{
			{"shared/locktable/files.go", `f.Generation+1, t.level2(q)`, `f.Generation+1, true`},
		},
		By:   unit("shared/locktable", "TestDecidedForOlderServers"),
		Dies: `rotate was decided for level 1: LSN \d+: rotate has field 30`,
	},
	{
		Name: "lost-appends-forgotten-for-old-servers",
		Rule: "a file that was quarantined stays bound while its lost appends cannot be remembered (package locktable, decideFile)",
		Edits: []Edit{
			{"shared/locktable/files.go", `if !r.Remember && !f.Lost[0].none() {`, `if !r.Remember && !f.Lost[mostLost-1].none() {`},
		},
		By:   unit("shared/locktable", "TestDecidedForOlderServers"),
		Dies: `unbind of c/\d+: got OK`,
	},
	{
		Name: "oldest-loss-forgotten-for-old-servers",
		Rule: "a rotation is refused where it would forget a quarantined generation (package locktable, decideFile)",
		Edits: []Edit{
			{"shared/locktable/files.go", `if !r.Remember && f.Quarantined && !f.Lost[mostLost-1].none() {`, `if !r.Remember && f.Sealed && !f.Lost[mostLost-1].none() {`},
		},
		By:   unit("shared/locktable", "TestDecidedForOlderServers"),
		Dies: `rotate of c/\d+: got OK`,
	},
	{
		Name: "remembers-for-nobody",
		Rule: "a table that remembers goes on remembering: no old server can load it (package locktable, level2)",
		Edits: []Edit{
			{"shared/locktable/decide.go", ` || q.Level >= 2 || !t.past.none() }`, ` || q.Level >= 2 }`},
		},
		By:   unit("shared/locktable", "TestDecidedForOlderServers"),
		Dies: `a table that older servers cannot load forgets for them`,
	},
	{
		Name: "level-untold-is-own",
		Rule: "a server that tells no feature level has 1 (package election, LowestLevel)",
		Edits: []Edit{
			{"election/view.go", `lowest = min(lowest, max(1, w.status.FeatureLevel))`, `if w.status.FeatureLevel != 0 {
				lowest = min(lowest, w.status.FeatureLevel)
			}`},
		},
		By:   unit("election", "TestLowestLevel"),
		Dies: `one that tells none: level 3, want 1`,
	},
	{
		Name: "level-of-the-silent",
		Rule: "a server that is not reached keeps nobody to old forms (package election, LowestLevel)",
		Edits: []Edit{
			{"election/view.go", `if w := p.latest(); !w.at.IsZero() && now.Sub(w.at) <= e.opt.Timing.MajorityWindow {
			lowest`, `if w := p.latest(); !w.at.IsZero() {
			lowest`},
		},
		By:   unit("election", "TestLowestLevel"),
		Dies: `after a silence: level 3, want 4`,
	},
	{
		Name: "level-not-asked",
		Rule: "the core loop decides for the lowest level of the servers that are reached (package primary, SetLevel)",
		Edits: []Edit{
			{"primary/core.go", `q.Mark, q.Level = c.mark, c.recordLevel()`, `q.Mark, q.Level = c.mark, 0`},
		},
		By:   unit("faulttests/sim", "TestOlderReplicaKeepsThePrimaryToOldForms"),
		Dies: `server 3 is older: client @\d+-`,
	},
	{
		Name: "level-told-once",
		Rule: "the primary hears of the servers' levels as they change (package node, supervise)",
		Edits: []Edit{
			{"cmd/holdfast/node/node.go", `		p.SetLevel(n.elector.LowestLevel()) // before it serves, too: not one record may be too new
`, ``},
		},
		By:   unit("faulttests/sim", "TestOlderReplicaKeepsThePrimaryToOldForms"),
		Dies: `server 3 is older: client @\d+-`,
	},
	{
		Name: "level-not-sent",
		Rule: "a server's feature level crosses the wire (package peergrpc)",
		Edits: []Edit{
			{"cmd/holdfast/node/peergrpc/convert.go", `, FeatureLevel: s.GetFeatureLevel(),`, `,`},
		},
		By:   unit("cmd/holdfast/node/peergrpc", "TestNothingIsLostOnTheWay"),
		Dies: `ping \d: got .*FeatureLevel:0`,
	},
	{
		Name: "segments-of-level-1",
		Rule: "a segment of the log tells the feature level of the cluster (PROTOCOL 21.1)",
		Edits: []Edit{
			{"shared/volume/volume.go", `		FeatureLevel: v.cluster.Level(t),
		SegmentSize:`, `		FeatureLevel: 1,
		SegmentSize:`},
		},
		By:   unit("shared/volume", "TestNoServerServesWhatANewerBinaryWrote"),
		Dies: `has feature level 1`,
	},
	{
		Name: "newer-segments-are-read",
		Rule: "a binary does not take over a log that one of a higher feature level wrote (package wal, acceptHeader)",
		Edits: []Edit{
			{"wal/scan.go", `	case h.FeatureLevel > s.opt.FeatureLevel:`, `	case h.FeatureLevel > s.opt.FeatureLevel+1:`},
		},
		By:   unit("shared/volume", "TestNoServerServesWhatANewerBinaryWrote"),
		Dies: `took over what a newer binary wrote`,
	},
}
