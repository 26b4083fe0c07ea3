// SPDX-License-Identifier: Apache-2.0

package mutants

// fileMutants break protected files.
var fileMutants = []Mutant{
	{
		Name: "early-write", Also: "PWRITE_EARLY",
		Rule: "protected files are written after the check (PROTOCOL 13.3)",
		Edits: []Edit{
			{"primary/commit.go", `	for i := range b.appends {
		a := &b.appends[i]
		if a.call != nil {
			a.call.times = b.times
		}
		a.writer.Append(&a.rec, a.done)
	}
	for _, do := range b.files {`, `	for _, do := range b.files {`},
			{"primary/commit.go", `	if err := p.persist(b); err != nil {`, `	for i := range b.appends {
		b.appends[i].writer.Append(&b.appends[i].rec, b.appends[i].done)
	}
	b.appends = b.appends[:0]
	if err := p.persist(b); err != nil {`},
		},
		By:   everyCall(),
		Dies: `I8: \d+ writeat files/\S+ .* was not durable`,
	},
	{
		Name: "foreign-unchecked", Also: "verification that answers after being fenced",
		Rule: "a mismatch found after logging is answered only after another check (PROTOCOL 13.6)",
		Edits: []Edit{
			{"primary/protected/writer.go", `	if checkErr := w.files.host.Check(); checkErr != nil {
		return checkErr
	}
`, ``},
		},
		By:   unit("primary", "TestFencedTermJudgesNoFile"),
		Dies: `the fenced term answered FILE_QUARANTINED`,
	},
	{
		Name: "file-by-name", Also: "protected file opened after the check",
		Rule: "a file is opened before the check that covers its batch, and compared with the log's identity (PROTOCOL 13.3)",
		Edits: []Edit{
			{"primary/protected/verify.go", `	if file.Inode() != w.state.Inode {`, `	if file.Inode() == 0 {`},
			{"primary/protected/verify.go", `reopen() error {
	if err := w.open(); err != nil {
		return err
	}`, `reopen() error {
	if err := w.files.host.Check(); err != nil {
		return err
	}
	if err := w.open(); err != nil {
		return err
	}`},
			{"primary/protected/verify.go", `	// The descriptor was opened before this check: if it passes, this term was not fenced
	// when the file was the one that was verified.
	return w.files.host.Check()`, `	return nil`},
		},
		By:   unit("primary", "TestForeign|TestStaleName"),
		Dies: `appended to a foreign file`,
	},
	{
		Name: "buffered-files", Also: "",
		Rule: "protected files are written O_DSYNC on network filesystems: plain writes carry stale neighbours (PROTOCOL 13.3, H16)",
		Edits: []Edit{
			{"shared/volume/files.go", `	f, err := r.v.fs.Open(p, vfs.FlagWrite|vfs.FlagDsync)`, `	f, err := r.v.fs.Open(p, vfs.FlagWrite)`},
			{"shared/volume/files.go", `	f, err := r.v.fs.Open(p, vfs.FlagCreate|vfs.FlagDsync)`, `	f, err := r.v.fs.Open(p, vfs.FlagCreate)`},
		},
		By:   staleCaches(),
		Dies: `I5: .*, which are not there`,
	},
	{
		Name: "file-sync-retried", Also: "",
		Rule: "after a failed sync everything since the last good one is written again (PROTOCOL 13.3)",
		Edits: []Edit{
			{"primary/protected/writer.go", `		// The kernel may call these pages clean now: everything since the last
		// good sync is written again through a new descriptor.
		w.closeFile()
		return err`, `		return err`},
		},
		By:   unit("primary", "TestAppendSurvivesAFailedSyncOfItsFile"),
		Dies: `power loss \d+: file holds`,
	},
	{
		Name: "names-undurable", Also: "",
		Rule: "a new file's names are durable before an append to it is admitted (PROTOCOL 13.1)",
		Edits: []Edit{
			{"shared/volume/files.go", `	if err := errors.Join(f.Sync(), r.v.fs.SyncDir(path.Dir(ProtectedPath(name)))); err != nil {`, `	if err := f.Sync(); err != nil {`},
		},
		By:   unit("shared/volume", "TestProtectedFileIsMadeDurable"),
		Dies: `after a power loss: read files/deep|after a power loss it holds`,
	},
	{
		Name: "unbound-unsynced", Also: "",
		Rule: "a file is durable before it is unbound, since nothing is redone afterwards (package volume)",
		Edits: []Edit{
			{"primary/protected/verify.go", `	if err == nil && (v.Op == locktable.OpUnbind || v.Op == locktable.OpSeal) {
		err = w.datasync()
	}
`, ``},
		},
		By:   schedules(),
		Dies: `I5: \S+ has a zero byte at|I5: \S+ receipt of .* overlaps or lies outside of`,
	},
	{
		Name: "redo-in-crumbs", Also: "",
		Rule: "appends that follow each other are compared and written in one piece (package protected, writeRun)",
		Edits: []Edit{
			{"primary/protected/writer.go", `	writeBytes = 1 << 20`, `	writeBytes = 1`},
		},
		By:   unit("primary", "^TestRedoReadsAndWritesInLargePieces$"),
		Dies: `the redo of 300 appends made`,
	},
	{
		Name: "unverified-write", Also: "",
		Rule: "a burst's writer verifies the end before each write: never a hole, never foreign bytes overwritten (PROTOCOL 13.3)",
		Edits: []Edit{
			{"primary/protected/writer.go", `	if err := w.matchesAppends(data, first.Offset, last.Offset+int64(len(last.Data))); err != nil {`, `	if err := w.matchesAppends(nil, 0, 1<<60); err != nil || last == nil {`},
		},
		By:   unit("primary", "TestForeign"),
		Dies: `OK , want FILE_QUARANTINED`,
	},
	{
		Name: "grant-passes-appends", Also: "",
		Rule: "a grant's answer waits for earlier appends to the lock's files (PROTOCOL 8.5)",
		Edits: []Edit{
			{"primary/fileslots.go", `	if len(c.slots) == 0 {
		return nil
	}`, `	if len(c.slots) >= 0 {
		return nil
	}`},
		},
		By:   unit("primary", "TestGrantIsAnsweredAfterEarlierAppendsToItsFiles"),
		Dies: `before the append of the holder before was written`,
	},
	{
		Name: "cached-verification", Also: "",
		Rule: "what may quarantine a file is read past every cache (package volume)",
		Edits: []Edit{
			{"shared/volume/files.go", `	if err == nil && r.Kind().Network {
		err = p.openReader()
	}
`, ``},
			{"shared/volume/files.go", `// openReader opens`, `var _ = (*ProtectedFile).openReader

// openReader opens`},
		},
		By:   unit("shared/volume", "TestProtectedFileIsReadPastCaches"),
		Dies: `the protected file was changed from outside: it ends at 5, before 16|read "", EOF`,
	},
	{
		Name: "lost-append-found", Also: "",
		Rule: "a repeat of an append is not told OK where its bytes may be in no file, also after the rotation (PROTOCOL 13.6)",
		Edits: []Edit{
			{"shared/locktable/files.go", `	if f.Quarantined {
		lost.push(`, `	if f.Generation == 0 {
		lost.push(`},
		},
		By:   unit("primary", "TestLostAppendIsNotFoundAfterARotation"),
		Dies: `OK , want FILE_QUARANTINED`,
	},
	{
		Name: "kept-overwritten", Also: "",
		Rule: "what moves a generation away overwrites nothing, however late it is done (PROTOCOL 13.7)",
		Edits: []Edit{
			{"shared/volume/keep.go", `aside := to + "." + rand.Text()[:6]`, `aside := to + rand.Text()[:0]`},
		},
		By:   unit("shared/volume", "TestKeepGeneration"),
		Dies: `is kept as files/a/log\.g3\s`,
	},
}
