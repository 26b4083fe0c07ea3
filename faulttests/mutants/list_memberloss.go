// SPDX-License-Identifier: Apache-2.0

package mutants

// memberLossMutants break rules of the list of servers where a part of it was lost, or is not shown.
var memberLossMutants = []Mutant{
	{
		Name: "recover-beside-a-removed-server",
		Rule: "a recovery holds the guards of servers that were removed, too (PROTOCOL 22.4)",
		Edits: []Edit{
			{"shared/volume/recovery/recovery.go", `slices.Values(append(ids, list.Servers.IDs()...))`, `slices.Values(append(ids[:0], list.Servers.IDs()...))`},
		},
		By:   unit("shared/volume", "^TestRecoveryGuardsRemovedServers$"),
		Dies: `MEMBERS is damaged: false: recovered while server 4 runs`,
	},
	{
		Name: "added-server-is-no-witness",
		Rule: "canaries of servers that were added show that a term is gone (package volume, Witnesses)",
		Edits: []Edit{
			{"shared/volume/members.go", `		if id, _, ok := layout.ParseServerName(x.Name); ok {
`, `		if id, _, ok := layout.ParseServerName(x.Name); ok && id <= ids[len(ids)-1] {
`},
		},
		By:   unit("shared/volume", "^TestAddedServerIsWitness$"),
		Dies: `taken over without epoch 2: <nil>`,
	},
	{
		Name: "recover-gives-an-id-again",
		Rule: "after a recovery no ID is given again that a lost change gave (PROTOCOL 22.4)",
		Edits: []Edit{
			{"shared/volume/recovery/build.go", `max(list.HighestID, shown.HighestID, slices.Max(b.r.known))`, `max(list.HighestID, slices.Max(b.r.v.Cluster().Servers.IDs()))`},
		},
		By:   unit("shared/volume", "^TestRecoveredMembers$"),
		Dies: `MEMBERS shows .*"highest_id":4`,
	},
	{
		Name: "recover-gives-a-version-again",
		Rule: "after a recovery no version of the list is given again (PROTOCOL 22.4)",
		Edits: []Edit{
			{"shared/volume/recovery/build.go", `		next.Version = max(list.Version, shown.Version)
`, `		next.Version = list.Version
`},
		},
		By:   unit("shared/volume", "^TestRecoveredMembers$"),
		Dies: `MEMBERS shows \{"version":4.*want \{"version":[56]`,
	},
	{
		Name: "recover-lists-below-its-level",
		Rule: "a recovery at a lower feature level makes no list of servers (PROTOCOL 22.4)",
		Edits: []Edit{
			{"shared/volume/recovery/build.go", ` && c.Level(table) >= locktable.MembersLevel:`, ` && c.Level(table) > 0:`},
		},
		By:   unit("shared/volume", "^TestRecoveredMembersOfALowerLevel$"),
		Dies: `MEMBERS is there`,
	},
	{
		Name: "recover-overlooks-a-newer-list",
		Rule: "a list in MEMBERS that is newer than the log shows that records are lost (PROTOCOL 22.4)",
		Edits: []Edit{
			{"shared/volume/recovery/recovery.go", `r.shown.Version > list.Version {`, `r.shown.Version == 0 {`},
		},
		By:   unit("shared/volume", "^TestMembersShowLoss$"),
		Dies: `a recovery is needed: false`,
	},
	{
		Name: "list-overtakes-members",
		Rule: "the list changes again only when MEMBERS shows it (PROTOCOL 22.2)",
		Edits: []Edit{
			{"primary/members.go", `made && c.p.shown.Load() != list.Version {`, `made && c.p.shown.Load() > list.Version {`},
		},
		By:   unit("primary", "^TestMembersChangeBehindMEMBERS$"),
		Dies: `members by ann/2: OK`,
	},
	{
		Name: "older-list-adopted",
		Rule: "a log whose list is older than MEMBERS shows is not adopted (PROTOCOL 22.3)",
		Edits: []Edit{
			{"primary/members.go", `	if err := p.term.LostMembers(t); err != nil {
		return err
	}
`, ``},
		},
		By:   unit("primary", "^TestMembersShowLoss$"),
		Dies: `the takeover: `,
	},
	{
		Name: "fenced-claimant-blames-the-log",
		Rule: "a newer list in MEMBERS is held against the log only if no later term can have written it (PROTOCOL 22.3)",
		Edits: []Edit{
			{"shared/volume/members.go", `	if err := r.Check(); err != nil {
		return err
	}
	return lost
`, `	return lost
`},
		},
		By:   unit("primary", "^TestFencedTakeoverBlamesNoLog$"),
		Dies: `the takeover: `,
	},
	{
		Name: "refused-list-claimed-again",
		Rule: "a server that was refused for a list which the log lost does not claim again before that is mended (package volume, Preview)",
		Edits: []Edit{
			{"shared/volume/preview.go", `err == nil && shownErr == nil {`, `err == nil && shownErr != nil {`},
		},
		By:   unit("shared/volume", "^TestMembersShowLoss$"),
		Dies: `a claimant would take over: <nil>`,
	},
	{
		Name: "recover-shows-its-list-early",
		Rule: "before its START a recovery shows no list that the old state would be refused for (PROTOCOL 22.4)",
		Edits: []Edit{
			{"shared/volume/recovery/build.go", `		b.r.show = new(next)
		next.Version++
`, `		next.Version++
		b.r.show = new(next)
`},
		},
		By:   unit("shared/volume", "^TestRecoveredMembers$"),
		Dies: `MEMBERS shows `,
	},
	{
		Name: "damaged-members-believed",
		Rule: "no byte of MEMBERS can be wrong unnoticed (PROTOCOL 22.2)",
		Edits: []Edit{
			{"shared/cluster/shown.go", `	case v.Sum != v.sum():
`, `	case v.Sum == "":
`},
		},
		By:   unit("shared/volume", "^TestAnyDamageOfMembersIsSeen$"),
		Dies: `is read as`,
	},
	{
		Name: "damage-told-as-another-server",
		Rule: "a server that is not in CLUSTER is told that MEMBERS cannot be read (package volume, openedBy)",
		Edits: []Edit{
			{"shared/volume/members.go", `	case readErr != nil:
`, `	case readErr != nil && listed:
`},
		},
		By:   unit("shared/volume", "^TestAddedServerIsToldOfDamage$"),
		Dies: `server 4 opens the volume`,
	},
	{
		Name: "ids-used-up",
		Rule: "a digit too many does not use up the IDs (package cluster, Membership.With)",
		Edits: []Edit{
			{"shared/cluster/membership.go", `id-m.HighestID > maxIDStep:`, `id < m.HighestID:`},
		},
		By:   unit("shared/cluster", "^TestMembershipChanges$"),
		Dies: `add the last ID: `,
	},
	{
		Name: "pushed-removal-believed",
		Rule: "a server ends for a removal only if the volume tells it, too (PROTOCOL 22.3)",
		Edits: []Edit{
			{"cmd/holdfast/node/members.go", `		list := n.newest()
`, `		list := n.newest()
		if x := n.replica.Members(); x != nil && errors.Is(x.Admits(n.opt.Server), cluster.ErrRemoved) {
			return cluster.ErrRemoved
		}
`},
		},
		By:   unit(simulation, "^TestForgedRemovalEndsNoServer$"),
		Dies: `server \d ended: `,
	},
}
