// SPDX-License-Identifier: Apache-2.0

package mutants

// commitMutants break the commit path: durable, then check, then speak.
func commitMutants() []Mutant {
	return []Mutant{
		{
			Name: "no-check", Also: "M1, NO_CHECK",
			Rule: "a check that began after the sync comes before anything leaves (DESIGN 4)",
			Edits: []Edit{{"primary/commit.go",
				"	if err := p.check(); err != nil {\n		b.fail()\n		return\n	}\n	// The check began",
				"	// The check began"}},
			By: everyCall(), Fast: true,
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
			By: everyCall(),
		},
		{
			Name: "shared-check", Also: "M3",
			Rule: "a check counts only for those who waited before it began (RELIABILITY H14)",
			Edits: []Edit{{"primary/primary.go",
				"	if err := p.reign.Check(); err != nil {\n		return err\n	}\n	p.checked",
				"	if time.Since(time.Unix(0, p.checked.Load())) < 5*time.Millisecond {\n		return p.reign.Err()\n	}\n	if err := p.reign.Check(); err != nil {\n		return err\n	}\n	p.checked"}},
			By: everyCall(), Fast: true,
		},
		{
			Name: "no-datasync", Also: "M6",
			Rule: "a frame is durable before it is acknowledged (DESIGN 4)",
			Edits: []Edit{{"wal/log.go",
				"	if err := l.seg.file.Datasync(); err != nil {\n		return fmt.Errorf(\"sync %s: %w\", l.seg.name, err)\n	}\n", ""}},
			By: everyCall(), Fast: true,
		},
		{
			Name: "early-answer", Also: "READ_EARLY, answer without basis",
			Rule: "refusals and reads leave with the batch too, when it is durable and checked (DESIGN 4, basis)",
			Edits: []Edit{{"primary/core.go",
				"	if x.done != nil {\n		c.cur.answers", "	if x.done != nil && (x.kind == callRead || out.Status == cluster.StatusHeld) {\n		x.done(out)\n		return\n	}\n	if x.done != nil {\n		c.cur.answers"}},
			By: schedules(),
		},
		{
			Name: "early-write", Also: "M19, PWRITE_EARLY",
			Rule: "protected files are written after the check (DESIGN 4)",
			Edits: []Edit{
				{"primary/commit.go",
					"	for i := range b.appends {\n		b.appends[i].writer.append(b.appends[i])\n	}\n", ""},
				{"primary/commit.go",
					"	if err := p.persist(b); err != nil {",
					"	for i := range b.appends {\n		b.appends[i].writer.append(b.appends[i])\n	}\n	b.appends = b.appends[:0]\n	if err := p.persist(b); err != nil {"},
			},
			By: everyCall(),
		},
		{
			Name: "renewal-unchecked", Also: "M15",
			Rule: "renewals are not logged but obey the basis like everything else (DESIGN 4)",
			Edits: []Edit{{"primary/leases.go",
				"		out.Status, out.Message = cluster.StatusInvalidToken, \"the token is not the live one of this lock\"\n	}\n	c.answer(x, out)",
				"		out.Status, out.Message = cluster.StatusInvalidToken, \"the token is not the live one of this lock\"\n	}\n	x.done(out)"}},
			By: schedules(),
		},
	}
}
