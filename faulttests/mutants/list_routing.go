// SPDX-License-Identifier: Apache-2.0

package mutants

// routingMutants break rules of clients of a site, which go to the cell that has a name.
var routingMutants = []Mutant{
	{
		Name: "refusal-of-a-cell-is-final",
		Rule: "a client goes where the name is, when a cell has refused it (PROTOCOL 23.7)",
		Edits: []Edit{
			{"clientlib/cells.go", `if !first || site != nil || !errors.Is(err, ErrWrongCell)`, `if first || !errors.Is(err, ErrWrongCell)`},
		},
		By:   unit("clientlib", "^TestLocksOfAllCells$"),
		Dies: `another cell of the site has this`,
	},
	{
		Name: "wrong-cell-leaves-doubt",
		Rule: "a cell that refuses a name has executed no attempt of that request (PROTOCOL 23.7)",
		Edits: []Edit{
			{"clientlib/call.go", `before && ok && said != cluster.StatusWrongCell && !retry`, `before && ok && !retry`},
		},
		By:   unit("clientlib", "^TestRefusedByAnotherCellForGood$"),
		Dies: `may have been executed`,
	},
	{
		Name: "cell-is-whoever-answers",
		Rule: "a client takes nobody for a cell but servers of its cluster (PROTOCOL 23.7)",
		Edits: []Edit{
			{"clientlib/cells.go", `				m.c.servers.known.Check(at.ClusterID)
`, ``},
		},
		By:   unit("clientlib", "^TestAnotherClusterIsNoCell$"),
		Dies: `1 requests reached another cell`,
	},
	{
		Name: "unknown-cluster-is-a-cell",
		Rule: "a cell whose cluster is not told is not asked (PROTOCOL 23.7)",
		Edits: []Edit{
			{"shared/sitemap/sitemap.go", `if c.GetClusterId() == "" || len(clients) == 0 {`, `if len(clients) == 0 {`},
		},
		By:   unit("shared/sitemap", "^TestSiteOfAStatus$"),
		Dies: `without a cluster`,
	},
	{
		Name: "cell-asked-in-plain-text",
		Rule: "servers that are told over TLS are asked over TLS (PROTOCOL 23.7)",
		Edits: []Edit{
			{"clientlib/join/trust.go", `	case !t.Plain():
		return nil, errors.New("it is served`, `	case t == nil && addresses == nil:
		return nil, errors.New("it is served`},
		},
		By:   unit("clientlib/join", "^TestEndpointsOfAnotherCluster$"),
		Dies: `no pin: \[h1:2 h2:2\]`,
	},
	{
		Name: "watch-of-another-cell",
		Rule: "what any cell would answer is asked of the one that has the name (PROTOCOL 23.7)",
		Edits: []Edit{
			{"clientlib/cells.go", `	return c.cells.client(ctx, k, all[0])
}`, `	return c, nil
}`},
		},
		By:   unit("clientlib", "^TestReadsThatAnyCellWouldAnswer$"),
		Dies: `a watch begins with`,
	},
	{
		Name: "watch-of-several-cells",
		Rule: "records of several cells have no common order, and are not shown as if they had (PROTOCOL 23.7)",
		Edits: []Edit{
			{"clientlib/cells.go", `	if len(all) > 1 {
		return nil, k`, `	if len(all) > 2 {
		return nil, k`},
		},
		By:   unit("clientlib", "^TestReadsThatAnyCellWouldAnswer$"),
		Dies: `a watch of all cells|the history of all cells`,
	},
	{
		Name: "list-without-the-lost",
		Rule: "a list that lacks a cell says so (PROTOCOL 23.7)",
		Edits: []Edit{
			{"clientlib/cells.go", `if errs = append(errs, err); more && errors.Join(errs...) != nil {`, `if more && errors.Join(errs...) != nil {`},
		},
		By:   unit("clientlib", "^TestListOfAllCells$"),
		Dies: `without cell 1: \[a0 a2 b0 b2\], error <nil>`,
	},
	{
		Name: "attached-stays-anywhere",
		Rule: "the handle of a token is used at the cell that granted it (PROTOCOL 23.7)",
		Edits: []Edit{
			{"clientlib/lock.go", `	if l.from != nil || c.single {
		return nil`, `	if c != nil {
		return nil`},
		},
		By:   unit("clientlib", "^TestAttachedToAnotherCell$"),
		Dies: `another cell of the site has this`,
	},
	{
		Name: "closed-client-leaves-cells",
		Rule: "Close ends the clients of all cells (package clientlib, close)",
		Edits: []Edit{
			{"clientlib/client.go", `	c.cells.close()
`, ``},
		},
		By:   unit("clientlib", "^TestOneCell$"),
		Dies: `a Client whose owner is closed: <nil>`,
	},
	{
		Name: "cell-is-where-it-was",
		Rule: "where a cell is served is asked again when a client needs it (package clientlib, only)",
		Edits: []Edit{
			{"clientlib/cells.go", `	site := s.fixed
	if site == nil {
`, `	site, _ := s.known("")
	if site == nil {
`},
		},
		By:   unit("clientlib", "^TestCellThatMoved$"),
		Dies: `now that it is known`,
	},
	{
		Name: "outcome-of-any-cell",
		Rule: "the outcome of a request is asked of the cell that made its client (PROTOCOL 23.7)",
		Edits: []Edit{
			{"clientlib/cells.go", `		return id.UnmarshalText([]byte(clusterID)) == nil && cluster.MarkOf(id) == mark
`, `		return id.UnmarshalText([]byte(clusterID)) == nil && cluster.MarkOf(id) != 0
`},
		},
		By:   unit("clientlib", "^TestOutcomeIsAskedWhereTheClientIsFrom$"),
		Dies: `outcome of a client of cell 1`,
	},
	{
		Name: "lone-cluster-is-asked",
		Rule: "a cluster that is no cell is asked nothing for sites (package clientlib, site)",
		Edits: []Edit{
			{"clientlib/cells.go", `	if c.cells.said.Load() == alone {
		return nil, nil
	}
`, ``},
		},
		By:   unit("clientlib", "^TestClusterThatIsNoCell$"),
		Dies: `it was asked`,
	},
	{
		Name: "lost-cell-loses-the-site",
		Rule: "a client with the directory of a site needs no certain cell of it (PROTOCOL 23.7)",
		Edits: []Edit{
			{"clientlib/cells.go", `			errs = append(errs, fmt.Errorf("%v: %w", r.cell.Cell, r.err))
`, `			return nil, r.err
`},
		},
		By:   unit("clientlib", "^TestSiteDirectory$"),
		Dies: `no volume is there`,
	},
	{
		Name: "tag-has-every-cell",
		Rule: "names that begin with one {tag} are of one cell (package cluster, Under)",
		Edits: []Edit{
			{"shared/cluster/cells.go", `	case HashTag(prefix) != prefix: // that`, `	case prefix == "": // that`},
		},
		By:   unit("shared/cluster", "^TestUnder$"),
		Dies: `"\{build\}"`,
	},
	{
		Name: "command-asks-whoever-is-there",
		Rule: "a command takes nobody for a cell but servers of its cluster (package remote, New)",
		Edits: []Edit{
			{"cmd/holdfast/remote/remote.go", `	c.cluster.known.Check(opt.ClusterID)
`, ``},
		},
		By:   unit("cmd/holdfast/remote", "^TestCellIsTheClusterThatWasTold$"),
		Dies: `after 1 requests`,
	},
	{
		Name: "one-bad-cell-hides-all",
		Rule: "what is told of one cell and cannot be used is the trouble of who needs that cell (package sitemap, Of)",
		Edits: []Edit{
			{"shared/sitemap/sitemap.go", `			x.Endpoints = nil
`, `			return nil, x.Unusable
`},
		},
		By:   unit("clientlib", "^TestOneCellOfWhichNonsenseIsTold$"),
		Dies: `no pin`,
	},
	{
		Name: "attached-lock-outlives-its-release",
		Rule: "the Context of a lock that is released ends at once, whoever can be asked (package clientlib, Release)",
		Edits: []Edit{
			{"clientlib/lock.go", `"release"); errors.Is(err, ErrInvalidArgument) {`, `"release"); err != nil {`},
		},
		By:   unit("clientlib", "^TestReleaseWhereNobodyAnswers$"),
		Dies: `its Context lives on`,
	},
	{
		Name: "hung-cell-read-first",
		Rule: "a cell whose volume hangs holds up nobody who wants another one (PROTOCOL 23.7)",
		Edits: []Edit{
			{"clientlib/cells.go", `			wait = time.After(headStart)
`, ``},
		},
		By:   unit("clientlib", "^TestCellWhoseVolumeHangs$"),
		Dies: `cell 0 hangs, and so does`,
	},
	{
		Name: "hung-cell-outlasts-a-call",
		Rule: "a volume that hangs holds up no call for longer than that lasts (PROTOCOL 23.7)",
		Edits: []Edit{
			{"clientlib/cells.go", `	case <-ctx.Done():
		return nil, k.fail(fmt.Errorf("%v: find its`, `	case <-context.Background().Done():
		return nil, k.fail(fmt.Errorf("%v: find its`},
		},
		By:   unit("clientlib", "^TestCellWhoseVolumeHangs$"),
		Dies: `hangs, and so does`,
	},
	{
		Name: "hung-cell-has-no-budget",
		Rule: "a call looks for the servers of a cell for its budget at most (PROTOCOL 23.7)",
		Edits: []Edit{
			{"clientlib/cells.go", `	case <-time.After(s.own.opt.Budget):`, `	case <-time.After(time.Hour):`},
		},
		By:   unit("clientlib", "^TestCellWhoseVolumeHangs$"),
		Dies: `hangs, and so does who uses the other one`,
	},
}
