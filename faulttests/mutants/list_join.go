// SPDX-License-Identifier: Apache-2.0

package mutants

const nodeMembers = "cmd/holdfast/node/members.go"

// joinMutants break rules of servers that come and go while others run.
var joinMutants = []Mutant{
	{
		Name: "every-cell-begins-alike",
		Rule: "another server of each cell should be primary (PROTOCOL 2.2)",
		Edits: []Edit{{"cmd/holdfast/node/node.go", `	return int(c.Cell.Cell)
`, `	return 0
`}},
		By: unit("faulttests/sim", "^TestCellsBeginWithOneServerEach$"), Dies: `cell 1: server 1 is primary`,
	},
	{
		Name:  "turn-without-end",
		Rule:  "after the server with the highest ID comes the one with the lowest (PROTOCOL 2.2)",
		Edits: []Edit{{"election/rule.go", `return (at + len(voters) - first%len(voters)) % len(voters)`, `return at + len(voters) - first%len(voters)`}},
		By:    unit("election", "^TestDecide$"), Dies: `6. In turn, the highest server goes first`,
	},
	{
		Name:  "joining-server-counts",
		Rule:  "a server that joins makes no majority (PROTOCOL 22.5)",
		Edits: []Edit{{"election/elector.go", `if p.votes && is(p) {`, `if is(p) {`}},
		By:    unit("election", "^TestWhoCounts$"), Dies: `one that joins: a majority: true`,
	},
	{
		Name:  "joining-server-asks",
		Rule:  "a server that joins asks for no votes (PROTOCOL 22.5)",
		Edits: []Edit{{"election/loop.go", ` || !e.votesLocked() ||`, ` ||`}},
		By:    unit("election", "^TestWhoJoinsIsAble$"), Dies: `it asks for votes`,
	},
	{
		Name:  "joining-server-needs-all",
		Rule:  "a server that joins is able where it would have a majority as a member (PROTOCOL 22.5)",
		Edits: []Edit{{"election/elector.go", `return e.reachesLocked(now)+1 > (len(e.mu.voters)+1)/2`, `return e.reachesLocked(now) > (len(e.mu.voters)+1)/2`}},
		By:    unit("election", "^TestWhoJoinsIsAble$"), Dies: `able false`,
	},
	{
		Name: "old-voters-decide",
		Rule: "a claim that other voters decided on is confirmed by those of now (PROTOCOL 22.6)",
		Edits: []Edit{{"election/members.go", `	return !e.mu.changed.IsZero() && !began.After(e.mu.changed)
`, `	return e.mu.changed.IsZero() && began.After(e.mu.changed)
`}},
		By: unit("election", "^TestOtherVotersDecideAnew$"), Dies: `one of three: <nil>`,
	},
	{
		Name:  "joining-server-follows",
		Rule:  "nobody hands over to a server that joins (PROTOCOL 22.5)",
		Edits: []Edit{{"cmd/holdfast/node/peer.go", `fits := !peer.Joining && peer.Reachable`, `fits := peer.Reachable`}},
		By:    unit("faulttests/sim", "^TestServerThatJoinsCountsForNothing$"), Dies: `handed over to server 4`,
	},
	{
		Name: "member-of-another-volume",
		Rule: "a server becomes a member when it was seen to write to the volume (PROTOCOL 22.5)",
		Edits: []Edit{{nodeMembers, `	case !x.Proven:
`, `	case !x.Proven && x.ID == 99:
`}},
		By: unit("cmd/holdfast/node", "^TestWhatAMemberNeeds$"), Dies: `another volume: ""`,
	},
	{
		Name: "member-without-the-state",
		Rule: "a server becomes a member when it has the state (PROTOCOL 22.5)",
		Edits: []Edit{{nodeMembers, `	case is.Epoch != want.Epoch || is.LSN < want.LSN:
`, `	case is.Epoch != want.Epoch:
`}},
		By: unit("cmd/holdfast/node", "^TestWhatAMemberNeeds$"), Dies: `less of the state: ""`,
	},
	{
		Name: "member-that-cannot-claim",
		Rule: "a server becomes a member when it could be primary (PROTOCOL 22.5)",
		Edits: []Edit{{nodeMembers, `	case !is.Able || is.Storage > want.Storage:
`, `	case is.Storage > want.Storage:
`}},
		By: unit("cmd/holdfast/node", "^TestWhatAMemberNeeds$"), Dies: `it could not claim: ""`,
	},
	{
		Name: "member-too-old",
		Rule: "a server becomes a member when it knows the cluster's level (PROTOCOL 22.5)",
		Edits: []Edit{{nodeMembers, `	case is.FeatureLevel < want.FeatureLevel:
`, `	case is.FeatureLevel < want.FeatureLevel && x.ID == 99:
`}},
		By: unit("cmd/holdfast/node", "^TestWhatAMemberNeeds$"), Dies: `an older binary: ""`,
	},
	{
		Name: "no-canary-of-the-new",
		Rule: "a server that joins makes its canary before it is a member (PROTOCOL 22.5)",
		Edits: []Edit{{"cmd/holdfast/node/node.go", `listed && m.Joining {
`, `listed && m.Joining && m.ID == 0 {
`}},
		By: unit("faulttests/sim", "^TestServerJoins$"), Dies: `not within 10s: server 4 is a member`,
	},
	{
		Name: "new-server-is-not-fed",
		Rule: "a term feeds the servers of the list as it is now (PROTOCOL 22.6)",
		Edits: []Edit{{nodeMembers, `			p.Follow(n.replicas())
`, ``}},
		By: unit("faulttests/sim", "^TestServerJoins$"), Dies: `not within 10s: server 4 is a member`,
	},
	{
		Name: "election-by-the-first-list",
		Rule: "elections go by the list as it is now (PROTOCOL 22.6)",
		Edits: []Edit{{nodeMembers, `	n.elector.SetMembers(list.Servers)
`, ``}},
		By: unit("faulttests/sim", "^TestServerJoins$"), Dies: `not within 10s: server 4 is a member`,
	},
	{
		Name: "list-on-the-volume-unread",
		Rule: "a server that hears no primary reads MEMBERS (PROTOCOL 22.6)",
		Edits: []Edit{{nodeMembers, `n.vol.ReadMembers(); err == nil {
`, `n.vol.ReadMembers(); err == nil && n.opt.Server != 2 {
`}, {nodeMembers, `	n.believe(list)
	newest := n.newest()
`, `	if n.opt.Server != 2 {
		n.believe(list)
	}
	newest := n.newest()
`}},
		By: unit("faulttests/sim", "^TestListChangesBehindAServer$"), Dies: `epochs became|does not know the list`,
	},
	{
		Name: "key-of-the-removed",
		Rule: "the key of a server that was removed counts no more (PROTOCOL 22.6)",
		Edits: []Edit{{"cmd/holdfast/node/peertls/keys.go", `	if !k.lists(id) {
`, `	if !k.lists(id) && id == 0 {
`}},
		By: unit("cmd/holdfast/node/peertls", "^TestKeysOfTheList$"), Dies: `it was removed`,
	},
	{
		Name:  "old-address-is-dialed",
		Rule:  "a server that has moved is dialed where it is (PROTOCOL 22.6)",
		Edits: []Edit{{"cmd/holdfast/node/peergrpc/peergrpc.go", `x != nil && x.addr == m.Peer {`, `x != nil {`}},
		By:    unit("cmd/holdfast/node/peergrpc", "^TestPeersFollow$"), Dies: `where it is now, it got 0 pings`,
	},
	{
		Name: "answer-waits-for-the-removed",
		Rule: "no answer waits for a replica that is gone (PROTOCOL 22.6)",
		Edits: []Edit{{"primary/replication/barrier.go", `			delete(a.mu.replicas, id)
`, ``}},
		By: unit("primary/replication", "^TestReplicasComeAndGo$"), Dies: `waits for a replica that is gone`,
	},
	{
		Name: "answer-waits-for-the-new",
		Rule: "answers wait for a new replica when it has caught up (PROTOCOL 22.6)",
		Edits: []Edit{{"primary/replication/barrier.go", `&replicaProgress{out: true, goal: goal, since: time.Now()}
`, `&replicaProgress{goal: goal, since: time.Now()}
`}},
		By: unit("primary/replication", "^TestReplicasComeAndGo$"), Dies: `at once`,
	},
	{
		Name: "member-below-its-level",
		Rule: "no record of members while a server is reached that does not know such (PROTOCOL 22.5)",
		Edits: []Edit{{"primary/members.go", `	if c.recordLevel() < locktable.MembersLevel {
`, `	if c.recordLevel() < locktable.BaseLevel {
`}},
		By: unit("primary", "^TestMemberIsAdmitted$"), Dies: `server 4: OK`,
	},
	{
		Name:  "removal-takes-the-majority",
		Rule:  "a primary removes nobody without whom it has no majority, unless it is forced (PROTOCOL 22.7)",
		Edits: []Edit{{"primary/members.go", `x.Force || c.p.opt.Keeps == nil || c.p.opt.Keeps(next.Servers) {`, `x.Force || c.p.opt.Keeps == nil || len(next.Servers) > 0 {`}},
		By:    unit("primary", "^TestRemovalKeepsAMajority$"), Dies: `OK`,
	},
	{
		Name: "removed-beside-a-guard",
		Rule: "nothing is removed by the volume alone while a server runs on this host (PROTOCOL 22.7)",
		Edits: []Edit{{"cmd/holdfast/alone/alone.go", `		l, err := volume.TakeGuard(fsys, id)
		if err != nil {
`, `		l, err := volume.TakeGuard(fsys, id)
		if errors.Is(err, volume.ErrSameID) {
			continue
		}
		if err != nil {
`}},
		By: unit("cmd/holdfast/alone", "^TestNothingIsRemovedBesideAServer$"), Dies: `a server of this host runs: <nil>`,
	},
	{
		Name: "removed-beside-a-writer",
		Rule: "nothing is removed by the volume alone while a server writes to it (PROTOCOL 22.7)",
		Edits: []Edit{{"cmd/holdfast/alone/alone.go", `		if now != before[id] {
`, `		if now.beat != before[id].beat {
`}},
		By: unit("cmd/holdfast/alone", "^TestNothingIsRemovedBesideAServer$"), Dies: `a server of another host runs: <nil>`,
	},
	{
		Name:  "unlisted-server-ends",
		Rule:  "a server that is started before it is added waits (PROTOCOL 22.5)",
		Edits: []Edit{{"cmd/holdfast/serve/secrets.go", `if time.Since(began) >= wait {`, `if time.Since(began) >= 0*wait {`}},
		By:    unit("cmd/holdfast/serve", "^TestServerWaitsUntilItIsAdded$"), Dies: `added, the servers are|a server that is never added`,
	},
	{
		Name: "client-learns-no-servers",
		Rule: "clients learn where the servers are by now (PROTOCOL 22.6)",
		Edits: []Edit{{"clientlib/servers.go", `	s.learn(r.GetMemberClients())
`, ``}},
		By: unit("clientlib", "^TestNewServersAreLearned$"), Dies: `3 servers are known`,
	},
	{
		Name:  "path-has-the-first-servers",
		Rule:  "a path to the volume leads clients to the servers of now (PROTOCOL 22.6)",
		Edits: []Edit{{"clientlib/join/join.go", `ParseMembers(b, id); err == nil {`, `ParseMembers(b, id); err == nil && list.Version == 0 {`}},
		By:    unit("clientlib/join", "^TestServersOfTheVolumeNow$"), Dies: `want h2:7601 h3:7601`,
	},
	{
		Name: "client-believes-damaged-members",
		Rule: "clients take MEMBERS for missing where its checksum is wrong (PROTOCOL 22.2, 22.6)",
		Edits: []Edit{{"clientlib/join/join.go", `	if list, err := cluster.ParseMembers(b, id); err == nil {
		return list.Servers
`, `	if of, servers, err := parseCluster(b); err == nil && of == id {
		return servers
`}},
		By: unit("clientlib/join", "^TestServersOfTheVolumeNow$"), Dies: `h5:7601 h3:7601\], want h1:7601 h2:7601`,
	},
	{
		Name: "pushed-list-believed",
		Rule: "a list that was pushed is never believed itself (PROTOCOL 22.6)",
		Edits: []Edit{{nodeMembers, `	return n.known.Load()
`, `	if x := n.replica.Members(); x != nil {
		n.believe(*x)
	}
	return n.known.Load()
`}},
		By: unit("faulttests/sim", "^TestForgedListChangesNothing$"), Dies: `the other two have a primary|follows version 1099511627776`,
	},
	{
		Name:  "unlisted-server-is-answered",
		Rule:  "a server that is not listed is not answered (PROTOCOL 22.6)",
		Edits: []Edit{{"election/heartbeat.go", `pong := Pong{Nonce:`, `pong := Pong{From: e.opt.Self, Nonce:`}},
		By:    unit("election", "^TestUnlistedServerIsNotAnswered$"), Dies: `one that is not listed: server 4 gets`,
	},
	{
		Name: "looks-at-other-voters-count",
		Rule: "the volume has no vote by what was seen before the list had other voters (PROTOCOL 22.6)",
		Edits: []Edit{{"election/members.go", `		e.mu.still.restart(e.mu.changed) // the looks were at other servers
`, ``}},
		By: unit("election", "^TestLooksAtOtherVotersCountForNothing$"), Dies: `server 3 is in the place of server 2: `,
	},
	{
		Name:  "joining-server-is-company",
		Rule:  "a server that joins keeps nobody from asking the volume (PROTOCOL 22.5)",
		Edits: []Edit{{"election/elector.go", `if p.votes && is(p) {`, `if is(p) {`}},
		By:    unit("election", "^TestWhoIsLonely$"), Dies: `the volume is asked: false`,
	},
	{
		Name:  "lonely-by-the-first-list",
		Rule:  "who is alone goes by the list as it is now (PROTOCOL 22.6)",
		Edits: []Edit{{"election/volume.go", `return n < e.mu.voters.Majority()`, `return n < e.opt.Members.Majority()`}},
		By:    unit("election", "^TestWhoIsLonely$"), Dies: `the volume is asked: false`,
	},
	{
		Name:  "joining-server-is-lonely",
		Rule:  "a server that joins asks for no permission (PROTOCOL 22.5)",
		Edits: []Edit{{"election/volume.go", `Asked: e.votesLocked() && e.lonelyLocked(now)`, `Asked: e.lonelyLocked(now)`}},
		By:    unit("election", "^TestWhoIsLonely$"), Dies: `the volume is asked: true`,
	},
	{
		Name:  "member-overtakes-members",
		Rule:  "a server becomes a member when MEMBERS shows that it joins (PROTOCOL 22.2, 22.5)",
		Edits: []Edit{{"primary/members.go", `len(recs) > 0 && why != "" {`, `len(recs) < 0 && why != "" {`}},
		By:    unit("primary", "^TestMemberIsAdmitted$"), Dies: `server 4: OK`,
	},
	{
		Name: "members-read-twice",
		Rule: "a server starts by one list, the one that it read first (package volume, Options.Members)",
		Edits: []Edit{{"shared/volume/volume.go", `	if opt.Members == nil {
`, `	if opt.Server != 0 {
`}},
		By: unit("shared/volume", "^TestOpenByTheListThatWasRead$"), Dies: `opened by version 2`,
	},
	{
		Name:  "mistyped-id-is-told-late",
		Rule:  "who starts a server that is not listed is told at once, with what to type (package serve, awaitListed)",
		Edits: []Edit{{"cmd/holdfast/serve/secrets.go", `began, told, wait := time.Now(), time.Time{}, cmp`, `began, told, wait := time.Now(), time.Now(), cmp`}},
		By:    unit("cmd/holdfast/serve", "^TestServerWaitsUntilItIsAdded$"), Dies: `a server that is never added: .* it logs ""`,
	},
	{
		Name:  "waiting-server-is-killed",
		Rule:  "a server that waits to be added has the service manager wait, too (package serve, unlistedState)",
		Edits: []Edit{{"cmd/holdfast/serve/notify.go", `startTime.Microseconds())`, `0*startTime.Microseconds())`}},
		By:    unit("cmd/holdfast/serve", "^TestServiceManagerIsToldOfTheWait$"), Dies: `told "STATUS=waits .*EXTEND_TIMEOUT_USEC=0"`,
	},
	{
		Name:  "added-server-waits-in-status",
		Rule:  "a server that was added waits for that no more, for the service manager either (package serve, listedState)",
		Edits: []Edit{{"cmd/holdfast/serve/secrets.go", `if !told.IsZero() {`, `if told.After(time.Now()) {`}},
		By:    unit("cmd/holdfast/serve", "^TestServiceManagerIsToldOfTheWait$"), Dies: `added, told ""`,
	},
	{
		Name:  "reopening-is-told-as-the-end",
		Rule:  "a server that opens its volume again does not stop for the service manager (package serve, announce)",
		Edits: []Edit{{"cmd/holdfast/serve/notify.go", `errors.Is(context.Cause(ctx), node.ErrReopen)`, `errors.Is(ctx.Err(), node.ErrReopen)`}},
		By:    unit("cmd/holdfast/serve", "^TestServerFindsItsVolumeMountedAnew$"), Dies: `is told "STOPPING=1"`,
	},
	{
		Name: "cause-of-the-end-is-lost",
		Rule: "who tells the service manager knows why the node ended (package serve, run)",
		Edits: []Edit{{"cmd/holdfast/serve/serve.go", `	stop(err)
`, `	stop(nil)
`}},
		By: unit("cmd/holdfast/serve", "^TestServerFindsItsVolumeMountedAnew$"), Dies: `is told "STOPPING=1"`,
	},
	{
		Name:  "alone-is-hasty",
		Rule:  "a removal by the volume alone waits until MEMBERS shows the list before it (PROTOCOL 22.7)",
		Edits: []Edit{{"cmd/holdfast/alone/alone.go", `if out.Status != cluster.StatusStorageUnavailable || time.Now().After(end) {`, `if out.Status != cluster.StatusOK || time.Now().After(end) {`}},
		By:    unit("cmd/holdfast/alone", "^TestRemoveAlone$"), Dies: `STORAGE_UNAVAILABLE`,
	},
}
