// SPDX-License-Identifier: Apache-2.0

package mutants

// cellMutants break rules of cells, and of the sites that they make.
var cellMutants = []Mutant{
	{
		Name: "tag-is-no-tag",
		Rule: "names with the same text in their first {} have one place (PROTOCOL 23.1)",
		Edits: []Edit{
			{"shared/cluster/cells.go", `			return tag
`, `			return name
`},
		},
		By:   unit("shared/cluster", "^TestPlacesOfNamesNeverChange$"),
		Dies: `"\{billing\}/job" has tag "\{billing\}/job"`,
	},
	{
		Name: "places-move",
		Rule: "the place of a name is the same for ever (PROTOCOL 23.1)",
		Edits: []Edit{
			{"shared/cluster/cells.go", `binary.BigEndian.Uint64(sum[:])`, `binary.LittleEndian.Uint64(sum[:])`},
		},
		By:   unit("shared/cluster", "^TestPlacesOfNamesNeverChange$"),
		Dies: `"a" has tag "a", place cabd1bca128197ca`,
	},
	{
		Name: "shortest-pin-counts",
		Rule: "of several pinned prefixes of a name the longest counts (PROTOCOL 23.1)",
		Edits: []Edit{
			{"shared/cluster/cells.go", `len(p.Prefix) > len(longest.Prefix)`, `len(p.Prefix) < len(longest.Prefix)`},
		},
		By:   unit("shared/cluster", "^TestRoute$"),
		Dies: `"billing/job" goes to cell 2, want cell 3`,
	},
	{
		Name: "map-goes-back",
		Rule: "of what one cell says the highest version counts (PROTOCOL 23.5)",
		Edits: []Edit{
			{"shared/cluster/sitemap.go", `	case old != nil && old.Version > o.Version:
		return nil
`, ``},
		},
		By:   unit("shared/cluster", "^TestNewestVersionCounts$"),
		Dies: `p/x goes to`,
	},
	{
		Name: "two-owners-unseen",
		Rule: "names that two cells own are found in the map of a site (PROTOCOL 23.5)",
		Edits: []Edit{
			{"shared/cluster/sitemap.go", `		if done || s.from < next {
`, `		if done && s.from < next {
`},
		},
		By:   unit("shared/cluster", "^TestCheckIsRight$"),
		Dies: `has 2 owners, and Check says <nil>`,
	},
	{
		Name: "cells-of-two-sites",
		Rule: "cells of two sites make no map (PROTOCOL 23.5)",
		Edits: []Edit{
			{"shared/cluster/sitemap.go", `		if other.Site != o.Site {
`, `		if other.Site == (ID{}) {
`},
		},
		By:   unit("shared/cluster", "^TestSiteMap$"),
		Dies: `a cell of another site: cell 1 is told in two ways`,
	},
	{
		Name: "foreign-names-decided",
		Rule: "a request for what another cell has is refused (PROTOCOL 23.2)",
		Edits: []Edit{
			{"shared/locktable/decide.go", `; foreign { // after repeats`, `; foreign && q.Lock == "" { // after repeats`},
		},
		By:   unit("shared/locktable", "^TestEveryOperationIsRefused$"),
		Dies: `lock "p/x" belongs to cell 1|acquire of "p/x"`,
	},
	{
		Name: "foreign-names-before-repeats",
		Rule: "a repeat gets the answer of its receipt before anything is said of its names (PROTOCOL 23.2)",
		Edits: []Edit{
			{"shared/locktable/decide.go", `	hash := q.ContentHash()
	if dec, answered := t.admit(q, q.ID, hash); answered {
`, `	hash := q.ContentHash()
	if dec, foreign := t.refuseForeign(q); foreign {
		return dec
	}
	if dec, answered := t.admit(q, q.ID, hash); answered {
`},
		},
		By:   unit("shared/locktable", "^TestTranscripts$"),
		Dies: `cells.txt differs`,
	},
	{
		Name: "foreign-grant",
		Rule: "no record grants a lock of another cell (PROTOCOL 23.2)",
		Edits: []Edit{
			{"shared/locktable/apply.go", `t.legalAfter(r), t.legalSlot(r), t.legalName(r)); err != nil {`, `t.legalAfter(r), t.legalSlot(r)); err != nil {`},
		},
		By:   unit("shared/locktable", "^TestForeignNamesAreIllegal$"),
		Dies: `a grant: got <nil>`,
	},
	{
		Name: "foreign-file-bound",
		Rule: "no record binds a file of another cell (PROTOCOL 23.2)",
		Edits: []Edit{
			{"shared/locktable/apply.go", `		return errors.Join(t.legalName(r), t.legalInode(r.Inode))
`, `		return t.legalInode(r.Inode)
`},
		},
		By:   unit("shared/locktable", "^TestForeignNamesAreIllegal$"),
		Dies: `a file: got <nil>`,
	},
	{
		Name: "own-said-twice",
		Rule: "what a cell owns is said once (PROTOCOL 23.2)",
		Edits: []Edit{
			{"shared/locktable/own.go", `	case t.owned != nil:
		return fmt`, `	case t.owned != nil && r.Own == "":
		return fmt`},
		},
		By:   unit("shared/locktable", "^TestForeignNamesAreIllegal$"),
		Dies: `the same again, before any lock: got <nil>`,
	},
	{
		Name: "used-volume-becomes-a-cell",
		Rule: "a volume with locks does not become a cell (PROTOCOL 23.2)",
		Edits: []Edit{
			{"shared/locktable/own.go", `	case t.HasNames():
`, `	case t.HasNames() && r.Own == "":
`},
		},
		By:   unit("shared/locktable", "^TestForeignNamesAreIllegal$"),
		Dies: `a cell that was none: got <nil>`,
	},
	{
		Name: "own-not-hashed",
		Rule: "what a cell owns is part of the hash (package locktable)",
		Edits: []Edit{
			{"shared/locktable/own.go", `	return t.sum(t.owned.appendTo)
`, `	return 0
`},
			{"shared/locktable/own.go", `	ck.sum(o.appendTo)
`, ``},
		},
		By:   unit("shared/locktable", "^TestOwnIsState$"),
		Dies: `it is no part of the hash`,
	},
	{
		Name: "own-not-cloned",
		Rule: "a copy of a table has what the cell owns (package locktable, Clone)",
		Edits: []Edit{
			{"shared/locktable/apply.go", `	c.owned = t.owned     // likewise
`, ``},
		},
		By:   unit("shared/locktable", "^TestOwnIsState$"),
		Dies: `cloned`,
	},
	{
		Name: "own-exported-late",
		Rule: "an export has what the cell owned at its beginning (package locktable, Exporter)",
		Edits: []Edit{
			{"shared/locktable/export.go", `		if x.owned != nil {
`, `		if x.owned = x.t.owned; x.owned != nil {
`},
		},
		By:   unit("shared/locktable", "^TestOwnIsState$"),
		Dies: `an export has what came after it began`,
	},
	{
		Name: "term-logs-no-cell",
		Rule: "each term logs what the cell owns, before anything else, if its log does not have it (PROTOCOL 23.3)",
		Edits: []Edit{
			{"primary/takeover.go", `	c.apply(c.table.DecideOwn(c.p.term.Born(), c.p.Epoch(), nil), nil)
`, ``},
		},
		By:   unit("primary", "^TestCellRefusesWhatOthersOwn$"),
		Dies: `acquire by c1/1: OK`,
	},
	{
		Name: "log-of-another-cell-adopted",
		Rule: "a log that is not that of this cell is not adopted (PROTOCOL 23.3)",
		Edits: []Edit{
			{"primary/takeover.go", `errors.Join(p.listed(a.Table), p.term.FitsCell(a.Table))`, `p.listed(a.Table)`},
		},
		By:   unit("primary", "^TestLogOfAnotherCellIsNotAdopted$"),
		Dies: `the term ended with`,
	},
	{
		Name: "foreign-file-made",
		Rule: "for a request that is refused, no file is made (PROTOCOL 23.2)",
		Edits: []Edit{
			{"primary/fileslots.go", ` || !c.table.Own().Owns(string(q.File)) {
`, ` {
`},
		},
		By:   unit("primary", "^TestCellRefusesWhatOthersOwn$"),
		Dies: `a file of another cell was made`,
	},
	{
		Name: "cell-unsummed",
		Rule: "what CLUSTER says of a cell counts only with its checksum (PROTOCOL 23.3)",
		Edits: []Edit{
			{"shared/volume/cell.go", `	case c.CellSum != cellSum(c.Cell):
`, `	case c.CellSum == "":
`},
		},
		By:   unit("shared/volume", "^TestDamagedCellIsNoCell$"),
		Dies: `another cell: <nil>`,
	},
	{
		Name: "init-finishes-another-cell",
		Rule: "an init for one cell does not finish that of another (PROTOCOL 23.3)",
		Edits: []Edit{
			{"shared/volume/init.go", `	if begun.CellSum != c.CellSum {
`, `	if begun.CellSum == "" && c.CellSum != "" {
`},
		},
		By:   unit("shared/volume", "^TestTwoInitsOfCellsAtOnce$"),
		Dies: `CLUSTER is that of`,
	},
	{
		Name: "restored-volume-is-no-cell",
		Rule: "a restored volume is the cell that the backup is of (PROTOCOL 23.4)",
		Edits: []Edit{
			{"shared/volume/backup/restore.go", `p.Servers, r.cell, opt.Random`, `p.Servers, nil, opt.Random`},
		},
		By:   unit("shared/volume", "^TestCellIsRestored$"),
		Dies: `the restored volume is`,
	},
	{
		Name: "recovered-as-another-cell",
		Rule: "a copy of one cell is not recovered into another (PROTOCOL 23.4)",
		Edits: []Edit{
			{"shared/volume/recovery/recovery.go", `	if of := r.v.Cluster(); of.Cell != nil {
`, `	if of := r.v.Cluster(); of.Cell != nil && of.Format == 0 {
`},
		},
		By:   unit("shared/volume", "^TestCellIsRestored$"),
		Dies: `recovered as another cell`,
	},
	{
		Name: "fsck-overlooks-the-cell",
		Rule: "fsck compares CLUSTER with what the log says that the cell owns (PROTOCOL 23.4)",
		Edits: []Edit{
			{"shared/volume/fsck/fsck.go", `		k.checkCell()
`, ``},
			{"shared/volume/fsck/files.go", `func (k *fsck) checkCell() {`, `func (k *fsck) CheckCell() {`},
		},
		By:   unit("shared/volume", "^TestFsckComparesTheCell$"),
		Dies: `fsck finds`,
	},
	{
		Name: "site-init-begins-anew",
		Rule: "an init of a site goes on with the one that was begun, and with no other (PROTOCOL 23.6)",
		Edits: []Edit{
			{"shared/volume/site/site.go", `	p.Site = begun.Site
	if begun`, `	if begun.Site = p.Site; begun`},
		},
		By:   unit("shared/volume/site", "^TestInterruptedSiteInit$"),
		Dies: `SITE.init is that of`,
	},
	{
		Name: "site-takes-other-servers",
		Rule: "an init of a site with other servers does not go on with what another began (PROTOCOL 23.6)",
		Edits: []Edit{
			{"shared/volume/site/site.go", `	if begun.text() != p.text() {
`, `	if begun.text() == "" {
`},
		},
		By:   unit("shared/volume/site", "^TestSiteInitRefuses$"),
		Dies: `other servers: <nil>`,
	},
	{
		Name: "wrong-cell-without-the-right-one",
		Rule: "whoever asked the wrong cell is told the right one, over a session, too (PROTOCOL 23.2)",
		Edits: []Edit{
			{"shared/wire/convert/frame.go", ` || out.Status == cluster.StatusWrongCell {`, ` {`},
		},
		By:   unit("shared/wire/convert", "^TestWrongCellNamesTheRightOne$"),
		Dies: `a frame without the cell`,
	},
	{
		Name: "foreign-lock-reads-free",
		Rule: "a lock of another cell is not told as free (PROTOCOL 23.2)",
		Edits: []Edit{
			{"shared/frontend/service/read.go", `	if why, _ := s.own.Refuses(name, ""); why != "" {
`, `	if why, _ := s.own.Refuses("", ""); why != "" {
`},
			{"shared/frontend/service/read.go", `	if foreign != "" {
`, `	if foreign != "" && lock.view.Name == "" {
`},
		},
		By:   unit("shared/frontend", "^TestStatusTellsTheCell$"),
		Dies: `/v1/locks/p/l: 200`,
	},
}
