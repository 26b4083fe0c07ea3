// SPDX-License-Identifier: Apache-2.0

package mutants

// commitMutants break the commit path: durable, then check, then speak.
var commitMutants = []Mutant{
	{
		Name: "no-check", Also: "NO_CHECK",
		Rule: "a check that began after the sync comes before anything leaves (PROTOCOL 8.3)",
		Edits: []Edit{{"primary/commit.go",
			"	if err := p.check(); err != nil {\n		b.fail()\n		return\n	}\n	// The check began",
			"	// The check began"}},
		By: everyCall(), Fast: true,
		Dies: `I8: .* came without a check`,
	},
	{
		Name: "check-first", Also: "CHECK_FIRST",
		Rule: "the check comes after the fdatasync, not before (PROTOCOL 6.2)",
		Edits: []Edit{
			{"primary/commit.go",
				"	if err := p.check(); err != nil {\n		b.fail()\n		return\n	}\n	// The check began", "	// The check began"},
			{"primary/commit.go",
				"	if err := p.persist(b); err != nil {",
				"	if err := p.check(); err != nil {\n		b.fail()\n		return\n	}\n	if err := p.persist(b); err != nil {"},
		},
		By:   everyCall(),
		Dies: `I8: .* came without a check`,
	},
	{
		Name: "shared-check", Also: "",
		Rule: "a check counts only for those who waited before it began (PROTOCOL 6.2, H14)",
		Edits: []Edit{{"primary/primary.go",
			"	if err := p.term.Check(); err != nil {\n		return err\n	}\n	p.checked",
			"	if time.Since(p.began)-time.Duration(p.checked.Load()) < 5*time.Millisecond {\n		return p.term.Err()\n	}\n	if err := p.term.Check(); err != nil {\n		return err\n	}\n	p.checked"}},
		By: everyCall(), Fast: true,
		Dies: `I8: .* came without a check`,
	},
	{
		Name: "early-answer", Also: "READ_EARLY, answer without basis",
		Rule: "refusals and reads leave with the batch too, when it is durable and checked (PROTOCOL 8.4)",
		Edits: []Edit{{"primary/core.go",
			"	if x.done != nil {\n		c.cur.answers", "	if x.done != nil && (x.kind == callRead || out.Status == cluster.StatusHeld) {\n		x.done(out)\n		return\n	}\n	if x.done != nil {\n		c.cur.answers"}},
		By:   schedules(),
		Dies: `I8: the answer (HELD|OK) to (a read|\S+ acquire), .* came without a check`,
	},
	{
		Name: "writes-when-deposed", Also: "old term's goroutine writing after deposition",
		Rule: "all writes of a term go through one handle that closes on deposition (PROTOCOL 10.1)",
		Edits: []Edit{
			{"shared/volume/internal/epochdir/dir.go", `	return d.Gate()
}`, `	return nil
}`},
			{"shared/volume/files.go", `	if err := p.r.Err(); err != nil {
		return err
	}
	if _, err := p.f.WriteAt`, `	if _, err := p.f.WriteAt`},
		},
		By:   unit("shared/volume", "TestProtectedFile"),
		Dies: `write in the name of an ended term: <nil>`,
	},
	{
		Name: "fence-unseen", Also: "",
		Rule: "whatever is not zero is a set fence (PROTOCOL 5.1)",
		Edits: []Edit{
			{"shared/volume/term.go", `	if !vfs.AllZero(*buf) {`, `	if !vfs.AllZero((*buf)[epochdir.SectorSize:]) {`},
		},
		By:   calls("resume"),
		Dies: `I10: .* after the term was over|I8: .* came without a check`,
	},
	{
		Name: "cached-check", Also: "",
		Rule: "on network filesystems the fence is read past every cache (PROTOCOL 6.1)",
		Edits: []Edit{
			{"shared/volume/internal/epochdir/fence.go", `	f, err := fsys.Open(name, flag|vfs.FlagDirect)`, `	f, err := fsys.Open(name, flag)`},
		},
		By:   staleCaches(),
		Dies: `I3: .* was acknowledged and is lost|I5: .* quarantined true|I8: .* came without a check|I9: .* was first sent after LSN|I10: .* after the term was over`,
	},
	{
		Name: "cached-scan", Also: "",
		Rule: "segments are read past every cache (PROTOCOL 7.4)",
		Edits: []Edit{
			{"shared/volume/internal/epochdir/dir.go", `	f, err := d.FS.Open(d.name(n), vfs.FlagDirect)`, `	f, err := d.FS.Open(d.name(n), vfs.FlagRead)`},
		},
		By:   staleClusters(),
		Dies: `I1: a token of|I3: .* was acknowledged and is lost|I9: .* was first sent after LSN|mirror: two states at LSN`,
	},
	{
		Name: "path-unchecked", Also: "",
		Rule: "once a second the fence's path must lead to the same inode and CLUSTER name the same cluster (PROTOCOL 6.3)",
		Edits: []Edit{
			{"shared/volume/term.go", `	if info.Inode != r.fenceInode {
		return r.End(fmt.Errorf("check: %w: the fence's name`, `	if info.Inode == 0 {
		return r.End(fmt.Errorf("check: %w: the fence's name`},
		},
		By:   unit("shared/volume", "TestCheckEndsATerm"),
		Dies: `the term goes on: <nil>`,
	},
	{
		Name: "places-rest-for-ever",
		Rule: "a batch that nobody waits for rests for 2 ms at most (PROTOCOL 8.3)",
		Edits: []Edit{
			{"primary/core.go", `		if now.Before(c.restEnd) {`, `		if !now.IsZero() {`},
		},
		By:   unit("primary", "^TestPlacesInAQueueAreSyncedByThemselves$"),
		Dies: `0 syncs after three places`,
	},
	{
		Name: "answers-rest",
		Rule: "only a batch that nobody waits for rests (PROTOCOL 8.3)",
		Edits: []Edit{
			{"primary/commit.go", `	return b.places > 0 && b.places == b.Len() && len(b.answers)+len(b.files) == 0`, `	return b.places > 0`},
		},
		By:   unit("primary", "^TestAnswersEndTheRestOfABatch$"),
		Dies: `was answered after`,
	},
}
