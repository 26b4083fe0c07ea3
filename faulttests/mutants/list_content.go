// SPDX-License-Identifier: Apache-2.0

package mutants

// contentMutants break what is promised of the bytes in protected files: where they go,
// when no more come, and what is told of them.
var contentMutants = []Mutant{
	{
		Name: "offset-unchecked",
		Rule: "an append with an expected offset goes there or nowhere (shared/locktable)",
		Edits: []Edit{
			{"shared/locktable/files.go", `	if q.At != nil && *q.At != offset {`, `	if q.At != nil && *q.At > offset {`},
		},
		By:   unit("shared/locktable", "TestExpectedOffset"),
		Dies: `got OK .* want OFFSET_MISMATCH`,
	},
	{
		Name: "offset-unhashed",
		Rule: "a repeat with another expected offset is another request (shared/locktable)",
		Edits: []Edit{
			{"shared/locktable/request.go", `	if q.At != nil {
		b = appendNumbers(append(b, 'o'), uint64(*q.At))
	}
`, ``},
		},
		By:   unit("shared/locktable", "TestExpectedOffset"),
		Dies: `got OK .* want INVALID_ARGUMENT`,
	},
	{
		Name: "seal-unchecked",
		Rule: "nothing is appended to a sealed generation (shared/locktable)",
		Edits: []Edit{
			{"shared/locktable/files.go", `	case f.Sealed:
		dec := refuse`, `	case f.Sealed && f.End < 0:
		dec := refuse`},
			{"shared/locktable/apply.go", `f.Quarantined || f.Sealed || r.Generation`, `f.Quarantined || f.Sealed && r.Kind == KindSeal || r.Generation`},
		},
		By:   unit("shared/locktable", "TestSeal"),
		Dies: `got OK .* want FILE_SEALED`,
	},
	{
		Name: "seal-forgotten",
		Rule: "a seal survives a failover and a checkpoint (shared/locktable)",
		Edits: []Edit{
			{"shared/locktable/export.go", `Reason: s.Reason, Since: s.Since, Sealed: s.Sealed,`, `Reason: s.Reason, Since: s.Since,`},
		},
		By:   unit("shared/locktable", "TestSeal"),
		Dies: `restored table: hash`,
	},
	{
		Name: "seal-unsynced",
		Rule: "every byte of a sealed generation is durable before the answer (PROTOCOL 13.7)",
		Edits: []Edit{
			{"primary/protected/verify.go", `(v.Op == locktable.OpUnbind || v.Op == locktable.OpSeal)`, `v.Op == locktable.OpUnbind`},
		},
		By:   unit("primary", "TestSealIsDurable"),
		Dies: `power loss \d+ left .* of a sealed file`,
	},
	{
		Name: "index-before-check",
		Rule: "the index tells of what was committed and checked (package volume)",
		Edits: []Edit{
			{"primary/commit.go", `	p.countBatch(b)
	for i := range b.appends {
		p.index.Add(&b.appends[i].rec)
	}
`, `	p.countBatch(b)
`},
			{"primary/commit.go", `	// A crash here loses no answer that was given; the next term adopts the frame.
`, `	for i := range b.appends {
		p.index.Add(&b.appends[i].rec)
	}
`},
		},
		By:   unit("primary", "TestIndexIsWrittenBehindTheCheck"),
		Dies: `block \d+: \[\{File:f`,
	},
	{
		Name: "index-not-completed",
		Rule: "what a crash took of the index is told by the next primary from the log (package volume)",
		Edits: []Edit{
			{"primary/takeover.go", `	c.p.index.Adopt(a.Redo) // maybe not indexed by their own term
`, ``},
		},
		By:   unit("primary", "TestIndexIsCompletedByTheNextTerm"),
		Dies: `a gap from 0 to|left \d+ appends in the index`,
	},
	{
		Name: "index-unread",
		Rule: "bytes that the index tells of have its sum (package volume)",
		Edits: []Edit{
			{"shared/volume/fsck/index.go", `!= e.CRC {`, `!= e.CRC && e.LSN == 0 {`},
		},
		By:   unit("primary", "TestIndexFindsForeignBytesAnywhere"),
		Dies: `one byte was changed: \[\]`,
	},
	{
		Name: "index-gap-trusted",
		Rule: "bytes that nothing tells of are said to be so (package volume)",
		Edits: []Edit{
			{"shared/volume/fsck/index.go", `gap > 0 && c.State.LastLength > 0`, `gap > 1<<60`},
		},
		By:   unit("primary", "TestIndexOfAGapSaysNothing"),
		Dies: `with a gap: \[\]`,
	},
	{
		Name: "receipt-of-any-binding",
		Rule: "a receipt of an earlier binding says nothing of a later one (package volume)",
		Edits: []Edit{
			{"shared/volume/internal/inspect/inspect.go", ` && rc.LSN > c.State.Since`, ``},
		},
		By:   unit("shared/volume", "TestAFileBoundAnewIsJudgedByItsOwnAppends"),
		Dies: `the append of LSN 3, .*its receipt says`,
	},
	{
		Name: "index-of-any-binding",
		Rule: "the index of an earlier binding says nothing of a later one (package volume)",
		Edits: []Edit{
			{"shared/volume/fsck/index.go", ` || e.LSN <= c.State.Since`, ``},
			{"shared/locktable/past.go", `{ return t.past.generation + 1 }`, `{ return 1 }`},
			{"shared/locktable/apply.go", `if r.Generation <= t.past.generation {`, `if r.Generation == 0 {`},
		},
		By:   unit("primary", "TestIndexSaysNothingOfAnotherBinding"),
		Dies: `told \{Severity:error Code:file-foreign`,
	},
	{
		Name: "read-unwritten",
		Rule: "where a file ends is told when every append up to there is in it (primary.File)",
		Edits: []Edit{
			{"primary/fileslots.go", `c.answerAfter(x, out, c.writing(name), true)`, `c.answerAfter(x, out, nil, true)`},
		},
		By:   unit("primary", "TestFileIsToldWhenItIsWritten"),
		Dies: `when its end at \d+ was told, the file held`,
	},
	{
		Name: "read-unchecked",
		Rule: "where a file ends is told after a check that began after the question (PROTOCOL 13.9)",
		Edits: []Edit{
			{"primary/fileslots.go", `		x.read(c.view())
`, `		x.read(c.view())
		x.done(out)
		x.done = func(locktable.Outcome) {}
`},
		},
		By:   unit("primary", "TestFencedTermTellsNoFile"),
		Dies: `a term that was fenced told \{Status:OK`,
	},
	{
		Name: "read-behind-the-end",
		Rule: "nothing behind the end that the table told is told, whatever the file holds (package service)",
		Edits: []Edit{
			{"shared/frontend/service/files.go", `	n := min(limit, maxPiece, state.End-off)`, `	n := min(limit, maxPiece, state.End+4-off)`},
		},
		By:   unit("shared/frontend", "TestReadFile"),
		Dies: `one\\ntwo\\nfore|two\\nfore`,
	},
	{
		Name: "read-any-inode",
		Rule: "bytes are read from the inode that the table names (package service)",
		Edits: []Edit{
			{"shared/frontend/service/files.go", `	if f.Inode() != state.Inode {`, `	if f.Inode() == 0 {`},
		},
		By:   unit("shared/frontend", "TestReadRefusesWrongBytes"),
		Dies: `files_test.go:\d+: told "one\\ntwo\\n", STATUS_OK`,
	},
	{
		Name: "follow-any-binding",
		Rule: "a follower is told the bytes of one file (package service)",
		Edits: []Edit{
			{"shared/frontend/service/followfile.go", ` && s.Inode == own.Inode && s.Since == own.Since`, ``},
			{"shared/locktable/past.go", `{ return t.past.generation + 1 }`, `{ return 1 }`},
			{"shared/locktable/apply.go", `if r.Generation <= t.past.generation {`, `if r.Generation == 0 {`},
		},
		By:   unit("shared/frontend", "TestFollowOfAFileBoundAnew"),
		Dies: `STORAGE_UNAVAILABLE .*generation:1 .*want "two\\n" at 4`,
	},
	{
		Name: "follow-without-the-rest",
		Rule: "a follower is told the end of a generation before the next one begins (package service)",
		Edits: []Edit{
			{"shared/frontend/service/followfile.go", `	if err := x.sendRest(ctx); err != nil {
		return err
	}
	now, err`, `	now, err`},
		},
		By:   unit("shared/frontend", "TestFollowFile"),
		Dies: `generation:2 .*want "two\\nthree\\n" at 8 of generation 1`,
	},
}
