// SPDX-License-Identifier: Apache-2.0

package mutants

// memberMutants break rules of the list of servers.
var memberMutants = []Mutant{
	{
		Name: "removed-id-again",
		Rule: "an ID that was removed, or passed over, is given to no other server (PROTOCOL 22.1)",
		Edits: []Edit{
			{"shared/cluster/membership.go", `	case c.Kind == AddServer && id <= m.HighestID:
`, `	case c.Kind == AddServer && id == 0:
`},
		},
		By:   unit("shared/cluster", "^TestMembershipChanges$"),
		Dies: `add a removed one: `,
	},
	{
		Name: "record-brings-a-server-back",
		Rule: "no record of the log lists a server again that was removed (PROTOCOL 22.1)",
		Edits: []Edit{
			{"shared/cluster/membership.go", `		if old.Removed(x.ID) {
`, `		if old.Removed(x.ID) && x.ID == 0 {
`},
		},
		By:   unit("shared/locktable", "^TestMembersFollow$"),
		Dies: `a removed ID: got`,
	},
	{
		Name: "list-version-skipped",
		Rule: "versions of the list follow each other (PROTOCOL 22.1)",
		Edits: []Edit{
			{"shared/cluster/membership.go", `m.Version != old.Version+1 ||`, `m.Version <= old.Version ||`},
		},
		By:   unit("shared/locktable", "^TestMembersFollow$"),
		Dies: `a version too many: got`,
	},
	{
		Name: "list-changed-at-any-version",
		Rule: "a change for one version of the list is refused at another (PROTOCOL 22.1)",
		Edits: []Edit{
			{"shared/cluster/membership.go", `	if c.IfVersion != 0 && c.IfVersion != m.Version {
`, `	if c.IfVersion > m.Version {
`},
		},
		By:   unit("shared/cluster", "^TestMembershipChanges$"),
		Dies: `another version: `,
	},
	{
		Name: "added-server-counts",
		Rule: "a server that is added joins, and is no member (PROTOCOL 22.1)",
		Edits: []Edit{
			{"shared/cluster/membership.go", `		c.Server.Joining = true
`, ``},
		},
		By:   unit("shared/cluster", "^TestMembershipChanges$"),
		Dies: `add: `,
	},
	{
		Name: "address-makes-a-member",
		Rule: "new addresses make no member of a server that joins (package cluster, Membership.With)",
		Edits: []Edit{
			{"shared/cluster/membership.go", `		c.Server.Joining = m.Servers[i].Joining
`, ``},
		},
		By:   unit("shared/cluster", "^TestMembershipChanges$"),
		Dies: `set keeps joining: `,
	},
	{
		Name: "last-member-removed",
		Rule: "one member stays (package cluster, Membership.With, Validate)",
		Edits: []Edit{
			{"shared/cluster/membership.go", `len(next.Servers.Voters()) == 0 {`, `len(next.Servers) == 0 {`},
			{"shared/cluster/membership.go", `	if len(m.Servers.Voters()) == 0 {
`, `	if len(m.Servers) == 0 {
`},
		},
		By:   unit("shared/cluster", "^TestMembershipChanges$"),
		Dies: `the last member is removed: <nil>`,
	},
	{
		Name: "list-not-hashed",
		Rule: "the list of servers is part of the hash (package locktable)",
		Edits: []Edit{
			{"shared/locktable/members.go", `	return t.sum(t.members.appendTo)
`, `	return 0
`},
			{"shared/locktable/members.go", `	ck.sum(m.appendTo)
`, ``},
		},
		By:   unit("shared/locktable", "^TestMembersAreState$"),
		Dies: `the list is no part of the hash`,
	},
	{
		Name: "list-not-cloned",
		Rule: "a copy of a table has its list of servers (package locktable, Clone)",
		Edits: []Edit{
			{"shared/locktable/apply.go", `	c.members = t.members // a list is never changed
`, ``},
		},
		By:   unit("shared/locktable", "^TestMembersAreState$"),
		Dies: `a clone has version 0`,
	},
	{
		Name: "list-exported-late",
		Rule: "an export has the list of its beginning (package locktable, Exporter)",
		Edits: []Edit{
			{"shared/locktable/export.go", `		if x.members != nil {
`, `		if x.members = x.t.members; x.members != nil {
`},
		},
		By:   unit("shared/locktable", "^TestMembersAreState$"),
		Dies: `an export has the list that came after it began`,
	},
	{
		Name: "list-below-its-level",
		Rule: "below feature level 5 the list of servers does not change (PROTOCOL 22.1)",
		Edits: []Edit{
			{"shared/locktable/members.go", `q.Level < MembersLevel {`, `q.Level < MembersLevel-1 {`},
		},
		By:   unit("primary", "^TestMembersNeedTheirLevel$"),
		Dies: `members by ann/1: OK`,
	},
	{
		Name: "primary-removes-itself",
		Rule: "a primary does not remove itself (PROTOCOL 22.1)",
		Edits: []Edit{
			{"primary/members.go", `x.Server.ID == c.p.opt.Server {`, `x.Server.ID == 0 {`},
		},
		By:   unit("primary", "^TestMembersChangeOnce$"),
		Dies: `members by ann/2: OK`,
	},
	{
		Name: "list-told-early",
		Rule: "a list counts when its record is committed and checked (PROTOCOL 22.2)",
		Edits: []Edit{
			{"primary/core.go", `		c.cur.members = &list
`, `		c.p.setMembers(&list)
`},
		},
		By:   unit("primary", "^TestMembersAreToldWhenCommitted$"),
		Dies: `the term tells `,
	},
	{
		Name: "old-members-stay",
		Rule: "the primary writes MEMBERS again where it is not as the log has it (PROTOCOL 22.2)",
		Edits: []Edit{
			{"primary/members.go", `		again := t.C
`, `		var again <-chan time.Time
`},
		},
		By:   unit("primary", "^TestOldMembersAreWrittenAgain$"),
		Dies: `MEMBERS was "`,
	},
	{
		Name: "removed-server-adopts",
		Rule: "a server that the adopted log does not list as a member does not begin (PROTOCOL 22.3)",
		Edits: []Edit{
			{"primary/members.go", `	return t.MembersOr(p.term.FirstServers()).Admits(p.opt.Server)
`, `	return nil
`},
		},
		By:   unit("primary", "^TestRemovedServerFindsItselfMissing$"),
		Dies: `the removed server: `,
	},
	{
		Name: "unlisted-server-claims",
		Rule: "a server reads MEMBERS before it claims (PROTOCOL 22.3)",
		Edits: []Edit{
			{"cmd/holdfast/node/members.go", `	if err := newest.Admits(n.opt.Server); err != nil {
		return err
	}
`, ``},
			{"cmd/holdfast/node/members.go", `		if list, err := n.vol.ReadMembers(); err == nil {
			n.believe(list)
			n.learned.Notify()
		}
`, ``},
			{"cmd/holdfast/node/members.go", `	n.believe(list)
	newest := n.newest()
`, `	_ = list
	newest := n.newest()
`},
		},
		By:   unit(simulation, "^TestRemovedServerWakesUp$"),
		Dies: `MEMBERS is lost: false: epoch \d+ was claimed, want`,
	},
	{
		Name: "unreadable-members-stop-a-claim",
		Rule: "MEMBERS that cannot be read keeps nobody from claiming (PROTOCOL 22.3)",
		Edits: []Edit{
			{"cmd/holdfast/node/members.go", `claiming without the list of servers")
		return nil
`, `claiming without the list of servers")
		return err
`},
		},
		By:   unit(simulation, "^TestDamagedMembersStopNobody$"),
		Dies: `nobody is primary`,
	},
	{
		Name: "removed-server-lives-on",
		Rule: "a server that learns at a claim that it was removed ends (PROTOCOL 22.3)",
		Edits: []Edit{
			{"cmd/holdfast/node/node.go", `		if errors.Is(err, cluster.ErrRemoved) {
			return err
		}
`, ``},
		},
		By:   unit(simulation, "^TestRemovedServerWakesUp$"),
		Dies: `MEMBERS is lost: true: epoch \d+ was claimed`,
	},
	{
		Name: "pushed-removal-unheard",
		Rule: "a replica that is told that it was removed ends (PROTOCOL 22.3)",
		Edits: []Edit{
			{"cmd/holdfast/node/node.go", `	g.Go(func() error { return n.followMembers(inner) })
`, ``},
		},
		By:   unit(simulation, "^TestRemovedReplicaEnds$"),
		Dies: `the server goes on`,
	},
	{
		Name: "removed-server-starts",
		Rule: "a server that was removed does not open the volume (PROTOCOL 22.3)",
		Edits: []Edit{
			{"shared/volume/members.go", `	case listed:
		return list, nil
	case errors.Is`, `	case listed, id == 3:
		return list, nil
	case errors.Is`},
		},
		By:   unit("shared/volume", "^TestWhoMayOpen$"),
		Dies: `server 3 opens the volume: <nil>`,
	},
	{
		Name: "removed-server-fails-as-others",
		Rule: "a server that was removed ends with exit code 78 (PROTOCOL 22.3)",
		Edits: []Edit{
			{"cmd/holdfast/cli/exit.go", `	if errors.Is(err, cluster.ErrRemoved) {
		return exitRemoved
	}
`, ``},
		},
		By:   unit("cmd/holdfast/cli", "^TestRemovedServerHasItsExitCode$"),
		Dies: `server 2 ends with code 5`,
	},
	{
		Name: "members-of-another-cluster",
		Rule: "MEMBERS of another cluster counts for nothing (package volume, ReadMembers)",
		Edits: []Edit{
			{"shared/cluster/shown.go", `	case v.Cluster != id:
`, `	case v.Cluster == id && v.Version == 0:
`},
		},
		By:   unit("shared/volume", "^TestMembersAreRead$"),
		Dies: `of another cluster: version 4`,
	},
	{
		Name: "fsck-reads-no-members",
		Rule: "fsck compares MEMBERS with the log (PROTOCOL 22.4)",
		Edits: []Edit{
			{"shared/volume/fsck/fsck.go", `		k.checkMembers()
`, ``},
		},
		By:   unit("shared/volume", "^TestFsckComparesMembers$"),
		Dies: `found \[\]`,
	},
	{
		Name: "recover-leaves-members",
		Rule: "a recovery shows the list of what it recovered (PROTOCOL 22.4)",
		Edits: []Edit{
			{"shared/volume/recovery/publish.go", `	if err := volume.RestoreMembers(r.fs, r.v.Cluster(), s.Epoch, r.show); err != nil {
		return err
	}
`, ``},
		},
		By:   unit("shared/volume", "^TestRecoveredMembers$"),
		Dies: `MEMBERS shows `,
	},
	{
		Name: "recover-guards-first-servers",
		Rule: "a recovery holds the guards of servers that were added, too (PROTOCOL 22.4)",
		Edits: []Edit{
			{"shared/volume/recovery/recovery.go", `	for _, id := range r.known {
`, `	for _, id := range r.v.Cluster().Servers.IDs() {
`},
		},
		By:   unit("shared/volume", "^TestRecoveryGuardsAddedServers$"),
		Dies: `recovered while server 4 runs`,
	},
	{
		Name: "restored-volume-has-the-old-list",
		Rule: "the servers of a restored volume are those of its CLUSTER (PROTOCOL 22.4)",
		Edits: []Edit{
			{"shared/volume/recovery/recovery.go", `			fromCopy.table = c.Table.ForgetMembers()
`, ``},
		},
		By:   unit("shared/volume", "^TestRestoredMembers$"),
		Dies: `its log has a list of its own`,
	},
	{
		Name: "restored-volume-has-who-joined",
		Rule: "a restored volume has the members of the old one (package backup, NewPlan)",
		Edits: []Edit{
			{"shared/volume/backup/restore.go", `.Servers.Voters()
`, `.Servers
`},
		},
		By:   unit("shared/volume", "^TestRestoredMembers$"),
		Dies: `its servers are`,
	},
	{
		Name: "change-of-nothing-passes",
		Rule: "a request to change the servers that says no change is refused before anything looks at the change (package locktable, Validate)",
		Edits: []Edit{{"shared/locktable/request.go", `			return fmt.Errorf("no change of the servers is given")
`, `			return nil
`}},
		By: unit("shared/locktable", "^TestChangeOfNothingIsRefused$"), Dies: `got OK`,
	},
	{
		Name: "replaced-by-the-named-only",
		Rule: "whoever serves in the place of a replaced primary is welcome (package cli, replace)",
		Edits: []Edit{
			{"cmd/holdfast/cli/member.go", `return id != old && serves(r, id)`, `return id == next && serves(r, id)`},
		},
		By:   unit("cmd/holdfast/cli", "^TestMember$"),
		Dies: `replace by a late one: got`,
	},
}
