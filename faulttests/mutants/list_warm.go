// SPDX-License-Identifier: Apache-2.0

package mutants

// warmMutants break the takeover with a warm table, which leaves most of what it adopts
// unread, and the exports that warm tables and checkpoints are made of.
var warmMutants = []Mutant{
	{
		Name: "one-base-linked", Also: "",
		Rule: "a base that nobody has read is adopted with the one before (package volume, resume)",
		Edits: []Edit{
			{"shared/volume/resume.go", `		a.bases = append(a.bases, lsn)
`, `		if len(a.bases) == 0 {
			a.bases = append(a.bases, lsn)
		}
`},
		},
		By: unit("shared/volume", "TestWarmTakeoverKeeps"), Dies: `no segment begins at or before LSN \d+, of`,
	},
	{
		Name: "fallback-log-left", Also: "",
		Rule: "with a base that nobody has read, the log is adopted from the one before, or from its beginning (package volume, resume)",
		Edits: []Edit{
			{"shared/volume/resume.go", `	if a.Unread.From, err = v.fallback(path, a.Unread.Bases); err != nil {
		return nil, err
	}
`, `	if len(a.Unread.Bases) > 0 {
		a.Unread.From = a.Unread.Bases[0]
	}
`},
		},
		By: unit("shared/volume", "TestWarmTakeoverKeeps"), Dies: `no segment begins at or before LSN \d+, of`,
	},
	{
		Name: "unread-unverified", Also: "",
		Rule: "what was adopted unread is verified before older terms are removed (package primary, housekeeper)",
		Edits: []Edit{
			{"primary/housekeeper.go", `	return err == nil
}`, `	p.damaged = nil
	return err == nil || len(p.unread.Bases) < 1<<20
}`},
		},
		By:   unit("primary", "TestWhatAWarmTakeover"),
		Dies: `is kept for the base before.* older terms were removed when there were 1 bases`,
	},
	{
		Name: "unread-log-unverified", Also: "",
		Rule: "the adopted segments that nobody has read are verified too (package volume, unread)",
		Edits: []Edit{
			{"shared/volume/unread.go", `	return damaged, errors.Join(err, r.verifyLog(u, resting))`, `	if u.UpTo > 1<<62 {
		err = errors.Join(err, r.verifyLog(u, resting))
	}
	return damaged, err`},
		},
		By: unit("primary", "TestWhatAWarmTakeover"), Dies: `a_closed_segment.* older terms were removed when there were 1 bases`,
	},
	{
		Name: "unread-base-unverified", Also: "",
		Rule: "the adopted checkpoints that nobody has read are verified (package volume, unread)",
		Edits: []Edit{
			{"shared/volume/unread.go", `	for _, at := range u.Bases {
		if cerr`, `	for _, at := range u.Bases[len(u.Bases):] {
		if cerr`},
		},
		By: unit("primary", "TestWhatAWarmTakeover"), Dies: `the_base.* is kept for the base before`,
	},
	{
		Name: "unread-log-read-short", Also: "",
		Rule: "verification reads the log up to the last adopted record, not to the first thing that looks like its end (package volume, unread)",
		Edits: []Edit{
			{"shared/volume/unread.go", `	if len(u.Bases) > 0 && u.Bases[0].LSN <= u.UpTo {
		opt.AtLeast = u.Bases[0]
	}
`, ``},
			{"shared/volume/unread.go", `From: u.From, UpTo: u.UpTo,`, `From: u.From, UpTo: u.From.LSN + 1,`},
		},
		By: unit("shared/volume", "TestWarmTakeoverReadsTheTail"), Dies: `the damage of \S+ was not found: <nil>`,
	},
	{
		Name: "older-removed-unread", Also: "",
		Rule: "older terms are removed only when what was adopted unread has been verified (package primary, housekeeper)",
		Edits: []Edit{
			{"primary/housekeeper.go", `	if p.verifying {
		before,`, `	if p.verifying && p.damaged != nil {
		before,`},
		},
		By: unit("primary", "TestWhatAWarmTakeover"), Dies: `older terms were removed when there were 1 bases`,
	},
	{
		Name: "older-removed-unsound", Also: "",
		Rule: "where what was adopted is damaged, older terms stay until there is a checkpoint (package primary, housekeeper)",
		Edits: []Edit{
			{"primary/housekeeper.go", `	if !h.unsound {
		h.removeOlder()
`, `	h.removeOlder()
	if !h.unsound {
`},
		},
		By: unit("primary", "TestWhatAWarmTakeover"), Dies: `older terms were removed when there were 1 bases`,
	},
	{
		Name: "damage-not-replaced", Also: "",
		Rule: "where what was adopted is damaged a checkpoint is written at once (package primary, housekeeper)",
		Edits: []Edit{
			{"primary/housekeeper.go", `if !h.unsound && p.logBytes.Load() <= p.logLimit.Load() ||`, `if p.logBytes.Load() <= p.logLimit.Load() ||`},
		},
		By: unit("primary", "TestWhatAWarmTakeover"), Dies: `there is still no removal`,
	},
	{
		Name: "damaged-base-kept", Also: "",
		Rule: "a damaged checkpoint is not the one before: what lies behind it stays (package primary, housekeeper)",
		Edits: []Edit{
			{"primary/housekeeper.go", `	if err := p.term.RemoveCheckpoints(p.damaged...); err != nil {`, `	if err := p.term.RemoveCheckpoints(); err != nil {`},
		},
		By: unit("primary", "TestWhatAWarmTakeover"), Dies: `is kept for the base before`,
	},
	{
		Name: "verified-log-removed",
		Rule: "a checkpoint that is written while what was adopted unread is verified removes nothing (PROTOCOL 9.2)",
		Edits: []Edit{
			{"primary/housekeeper.go", `	if p.verifying {
		return nil`, `	if p.verifying && p.damaged != nil {
		return nil`},
		},
		By: unit("primary", "^TestCheckpointRemovesNothingThatIsBeingVerified$"), Dies: `was removed before it was verified`,
	},
	{
		Name: "verification-holds-checkpoints-up",
		Rule: "the log is kept short while what was adopted unread is verified: many terms may end before (PROTOCOL 9.1)",
		Edits: []Edit{
			{"primary/housekeeper.go", `func() { rest(); h.keepLogShort() }`, `rest`},
		},
		By: unit("primary", "^TestCheckpointRemovesNothingThatIsBeingVerified$"), Dies: `there is still no checkpoint`,
	},
	{
		Name: "verification-before-checkpoints",
		Rule: "a term that begins with too much log writes a checkpoint first: many terms may end before they have verified (PROTOCOL 9.1)",
		Edits: []Edit{
			{"primary/housekeeper.go", `	h.removeOlder()
	h.keepLogShort()
`, `	h.removeOlder()
`},
		},
		By: unit("primary", "^TestLogStaysBounded"), Dies: `that_end_before.* there are \d+ KiB of log`,
	},
	{
		Name: "verification-before-removal",
		Rule: "what two terms left that are older than the adopted one is removed at once: many terms may end before they have verified (PROTOCOL 9.3)",
		Edits: []Edit{
			{"primary/housekeeper.go", `	h.removeOlder()
	h.keepLogShort()
`, `	h.keepLogShort()
`},
		},
		By: unit("primary", "^TestLogStaysBoundedOverManyShortTerms$/^that_end"), Dies: `that_end_before.* there are \d+ KiB of log`,
	},
	{
		Name: "log-counted-by-records",
		Rule: "the adopted log counts as it lies on the volume, or short terms of small frames write no checkpoint (package volume, Adoption)",
		Edits: []Edit{
			{"shared/volume/adopt.go", `			a.LogBytes += g.Size`, `			a.LogBytes += int64(g.Last-g.First) * 100`},
		},
		By: unit("primary", "^TestLogStaysBounded"), Dies: `that_read_everything.* there are \d+ KiB of log`,
	},
	{
		Name: "failed-removal-forgotten",
		Rule: "what could not be removed is tried again (package primary, housekeeper)",
		Edits: []Edit{
			{"primary/housekeeper.go", `	if h.unsound || h.left {`, `	if h.unsound {`},
		},
		By: unit("primary", "^TestRemovalThatFailedIsTriedAgain$"), Dies: `there is still no removal`,
	},
	{
		Name: "export-unstamped", Also: "",
		Rule: "a change during an export is not in it: clients and files carry the LSN of their last change (package locktable, Exporter)",
		Edits: []Edit{
			{"shared/locktable/export.go", `	if len(t.exports) == 0 {
		return 0
	}
	return t.lsn + 1`, `	return 0`},
		},
		By: unit("shared/locktable", "Export"), Dies: `restore an export of LSN \d+: .* comes twice|has another hash than the table had`,
	},
	{
		Name: "export-with-later-grants", Also: "",
		Rule: "a grant that comes during an export is not in it (package locktable, Exporter)",
		Edits: []Edit{
			{"shared/locktable/export.go", `		if l.sharing == nil && l.token != 0 && l.changedAt() <= x.at {`, `		if l.sharing == nil && l.token != 0 {`},
		},
		By:   unit("shared/locktable", "Export"),
		Dies: `restore an export of LSN \d+: .* the grant of \w+: record \d+ is not in the log`,
	},
	{
		Name: "export-with-later-receipts", Also: "",
		Rule: "a receipt that comes during an export is not in it (package locktable, Exporter)",
		Edits: []Edit{
			{"shared/locktable/export.go", `		if c.receipts[i].lsn <= x.at {
			to = append`, `		if c.receipts[i].lsn > 0 {
			to = append`},
		},
		By:   unit("shared/locktable", "Export"),
		Dies: `restore an export of LSN \d+: .* receipt \d+ has record \d+ of epoch`,
	},
	{
		Name: "export-unsaved", Also: "",
		Rule: "what a change takes away during an export is saved with it first (package locktable, Exporter)",
		Edits: []Edit{
			{"shared/locktable/export.go", `		if !passed && l.changedAt() <= x.at {`, `		if !passed && l.changedAt() <= x.at && l.name == "" {`},
		},
		By: unit("shared/locktable", "Export"), Dies: `the export of LSN \d+ has another hash than the table had`,
	},
	{
		Name: "export-loses-its-place", Also: "",
		Rule: "an export that stands at a place in a queue goes on behind it when that place is left (package locktable, Exporter)",
		Edits: []Edit{
			{"shared/locktable/export.go", `		if x.place == w {
			x.place = w.next
		}
`, ``},
		},
		By: unit("shared/locktable", "TestExportStandsAt"), Dies: `restore an export of LSN \d+: .* waits twice`,
	},
}
