// SPDX-License-Identifier: Apache-2.0

package mutants

// commitMutants break the commit path: durable, then check, then speak.
var commitMutants = []Mutant{
	{
		Name: "no-check", Also: "M1, NO_CHECK",
		Rule: "a check that began after the sync comes before anything leaves (DESIGN 4)",
		Edits: []Edit{{"primary/commit.go",
			"	if err := p.check(); err != nil {\n		b.fail()\n		return\n	}\n	// The check began",
			"	// The check began"}},
		By: everyCall(), Fast: true,
		Dies: `I8: .* came without a check`,
	},
	{
		Name: "check-first", Also: "M2, CHECK_FIRST",
		Rule: "the check comes after the fdatasync, not before (DESIGN 4)",
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
		Name: "shared-check", Also: "M3",
		Rule: "a check counts only for those who waited before it began (RELIABILITY H14)",
		Edits: []Edit{{"primary/primary.go",
			"	if err := p.reign.Check(); err != nil {\n		return err\n	}\n	p.checked",
			"	if time.Since(p.began)-time.Duration(p.checked.Load()) < 5*time.Millisecond {\n		return p.reign.Err()\n	}\n	if err := p.reign.Check(); err != nil {\n		return err\n	}\n	p.checked"}},
		By: everyCall(), Fast: true,
		Dies: `I8: .* came without a check`,
	},
	{
		Name: "early-answer", Also: "READ_EARLY, answer without basis",
		Rule: "refusals and reads leave with the batch too, when it is durable and checked (DESIGN 4, basis)",
		Edits: []Edit{{"primary/core.go",
			"	if x.done != nil {\n		c.cur.answers", "	if x.done != nil && (x.kind == callRead || out.Status == cluster.StatusHeld) {\n		x.done(out)\n		return\n	}\n	if x.done != nil {\n		c.cur.answers"}},
		By:   schedules(),
		Dies: `I8: the answer (HELD|OK) to (a read|\S+ acquire), .* came without a check`,
	},
	{
		Name: "writes-when-deposed", Also: "old reign's goroutine writing after deposition",
		Rule: "all writes of a reign go through one handle that closes on deposition (DESIGN 3.6)",
		Edits: []Edit{
			{"shared/volume/dir.go", `	return d.gate()
}`, `	return nil
}`},
			{"shared/volume/files.go", `	if err := p.r.Err(); err != nil {
		return err
	}
	if _, err := p.f.WriteAt`, `	if _, err := p.f.WriteAt`},
		},
		By:   unit("shared/volume", "TestProtectedFile"),
		Dies: `write in the name of an ended reign: <nil>`,
	},
	{
		Name: "fence-unseen", Also: "",
		Rule: "whatever is not zero is a set fence (DESIGN 3.5)",
		Edits: []Edit{
			{"shared/volume/reign.go", `	if !allZero(*buf) {`, `	if !allZero((*buf)[sectorSize:]) {`},
		},
		By:   calls("resume"),
		Dies: `I10: .* after the reign was over|I8: .* came without a check`,
	},
	{
		Name: "cached-check", Also: "",
		Rule: "on network filesystems the fence is read past every cache (DESIGN 3.5)",
		Edits: []Edit{
			{"shared/volume/fence.go", `	f, err := fsys.Open(name, flag|FlagDirect)`, `	f, err := fsys.Open(name, flag)`},
		},
		By:   staleCaches(),
		Dies: `I3: .* was acknowledged and is lost|I5: .* quarantined true|I8: .* came without a check|I9: .* was first sent after LSN|I10: .* after the reign was over`,
	},
	{
		Name: "cached-scan", Also: "",
		Rule: "segments are read past every cache (DESIGN 3.5)",
		Edits: []Edit{
			{"shared/volume/dir.go", `	f, err := d.fs.Open(d.name(n), FlagDirect)`, `	f, err := d.fs.Open(d.name(n), FlagRead)`},
		},
		By:   staleClusters(),
		Dies: `I1: a token of|I3: .* was acknowledged and is lost|I9: .* was first sent after LSN|mirror: two states at LSN`,
	},
	{
		Name: "path-unchecked", Also: "",
		Rule: "once a second the fence's path must lead to the same inode and CLUSTER name the same cluster (DESIGN 3.5)",
		Edits: []Edit{
			{"shared/volume/reign.go", `	if info.Inode != r.fenceInode {
		return r.Depose(fmt.Errorf("check: %w: the fence's name`, `	if info.Inode == 0 {
		return r.Depose(fmt.Errorf("check: %w: the fence's name`},
		},
		By:   unit("shared/volume", "TestCheckEndsAReign"),
		Dies: `the reign goes on: <nil>`,
	},
}
