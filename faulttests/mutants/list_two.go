// SPDX-License-Identifier: Apache-2.0

package mutants

const (
	volumeVote = "election/volume.go"
	nodeVote   = "cmd/holdfast/node/volumevote.go"
)

// twoMutants break rules of the vote that the volume has in elections, of two servers or by permission.
var twoMutants = []Mutant{
	{
		Name: "one-of-two-waits", Also: "",
		Rule:  "PROTOCOL 2.8: of two servers the volume has a vote",
		Edits: []Edit{{"shared/cluster/members.go", `return len(m) == 2`, `return len(m) == 0`}},
		By:    unit("election", "^TestOneOfTwoFollows$"), Dies: `no such primary`,
	},
	{
		Name: "volume-votes-for-three", Also: "",
		Rule:  "PROTOCOL 2.8: of three servers the volume has a vote by permission only",
		Edits: []Edit{{"shared/cluster/members.go", `return len(m) == 2`, `return len(m) <= 3`}},
		By:    unit("election", "^TestPermissionIsForOneTerm$"), Dies: `is primary, one of three`,
	},
	{
		Name: "three-beats-are-less", Also: "",
		Rule:  "PROTOCOL 2.8: a primary has to miss three beats",
		Edits: []Edit{{volumeVote, `return max(stillBeats*beatEvery, t.StorageTimeout/2)`, `return max((stillBeats-1)*beatEvery, t.StorageTimeout/2)`}},
		By:    unit("election", "^TestVolumeVote$"), Dies: `a moment less`,
	},
	{
		Name: "stale-reads-vote", Also: "",
		Rule:  "PROTOCOL 2.8: what a read may be old by is added at both ends",
		Edits: []Edit{{volumeVote, `t.StorageTimeout/2) + 2*t.Staleness`, `t.StorageTimeout/2)`}},
		By:    unit("election", "^TestVolumeVote$"), Dies: `a stale filesystem:`,
	},
	{
		Name: "old-look-votes", Also: "",
		Rule:  "PROTOCOL 2.8: what was seen has to be recent",
		Edits: []Edit{{volumeVote, `	if !recent || storage`, `	if !recent && e.mu.still.began.IsZero() || storage`}},
		By:    unit("election", "^TestVolumeVote$"), Dies: `the last look is old`,
	},
	{
		Name: "vote-without-own-writes", Also: "",
		Rule:  "PROTOCOL 2.8: the volume votes for a server with a fresh write only",
		Edits: []Edit{{volumeVote, `!recent || storage >= freshFor(e.opt.Timing) ||`, `!recent || storage >= 9*e.opt.Timing.StorageTimeout ||`}},
		By:    unit("election", "^TestVolumeVote$"), Dies: `own writes are old`,
	},
	{
		Name: "stall-is-stillness", Also: "",
		Rule: "PROTOCOL 2.8: the time in which own writes are not fresh is left out",
		Edits: []Edit{{volumeVote, `	if storage >= freshFor(e.opt.Timing) {
		e.mu.still.restart(now)`, `	if storage >= 999*e.opt.Timing.StorageTimeout {
		e.mu.still.restart(now)`}},
		By: unit("election", "^TestStillnessOfAStalledShareCountsForNothing$"), Dies: `primary was 1 and is 2|a stall of the share ended a term`,
	},
	{
		Name: "slow-looks-never-vote", Also: "",
		Rule:  "PROTOCOL 2.8: what was seen counts for a storage timeout, however long a look takes",
		Edits: []Edit{{volumeVote, `max(e.opt.Timing.StorageTimeout, e.timingLocked(now).MajorityWindow)`, `e.timingLocked(now).MajorityWindow`}},
		By:    unit("faulttests/sim", "^TestOneOfTwoFollowsOnASlowShare$"), Dies: `a storage timeout of 5s: primaries`,
	},
	{
		Name: "writes-are-never-fresh", Also: "",
		Rule:  "PROTOCOL 2.8: a write of two seconds ago is fresh, however short the storage timeout",
		Edits: []Edit{{volumeVote, `return max(t.StorageTimeout/2, 2*beatEvery)`, `return t.StorageTimeout / 2`}},
		By:    unit("faulttests/sim", "^TestOneOfTwoFollowsOnASlowShare$"), Dies: `a storage timeout of 1.*: primaries`,
	},
	{
		Name: "own-term-is-stillness", Also: "",
		Rule: "PROTOCOL 2.8: the time in which the server was primary itself is left out",
		Edits: []Edit{{volumeVote, `	e.mu.still.restart(now)
	e.mu.lost =`, `	e.mu.lost =`}},
		By: unit("election", "^TestOwnTermIsNoStillness$"), Dies: `a second after its own term`,
	},
	{
		Name: "takeover-unseen", Also: "",
		Rule:  "PROTOCOL 2.8: a takeover shows on the volume",
		Edits: []Edit{{nodeVote, `s.Takeover = p.Count`, `s.Takeover = 0 * p.Count`}},
		By:    unit("faulttests/sim", "^TestSlowTakeoverOfOneOfTwo$"), Dies: `a takeover was ended`,
	},
	{
		Name: "primary-of-two-is-lonely", Also: "",
		Rule: "PROTOCOL 2.8: the volume votes for a primary of two whom nobody ended",
		Edits: []Edit{{"election/view.go", `	if st.Role.hasTerm() {
		n += e.replacedLocked(now)`, `	if st.Role == RoleCandidate {
		n += e.replacedLocked(now)`}},
		By: unit("election", "^TestLastOfTwoServes$"), Dies: `primary was 1 and is`,
	},
	{
		Name: "two-depose-for-ever", Also: "",
		Rule:  "PROTOCOL 2.8: two servers that depose each other do so less and less often",
		Edits: []Edit{{volumeVote, `		e.mu.deposed++`, `		e.mu.deposed = 0`}},
		By:    unit("election", "^TestTwoThatDeposeEachOtherBackOff$"), Dies: `claims in the first minute`,
	},
	{
		Name: "back-off-for-ever", Also: "",
		Rule: "PROTOCOL 2.8: two servers that hear each other again are done with deposing",
		Edits: []Edit{{volumeVote, `	if e.reachesLocked(now) >= e.mu.voters.Majority() {
		e.mu.deposed, e.mu.extra = 0, 0`, `	if e.reachesLocked(now) > e.mu.voters.Majority() {
		e.mu.deposed, e.mu.extra = 0, 0`}},
		By: unit("election", "^TestTwoThatDeposeEachOtherBackOff$"), Dies: `no such primary`,
	},
	{
		Name: "permission-for-ever", Also: "",
		Rule:  "PROTOCOL 2.8: a permission is for one claim and its term",
		Edits: []Edit{{volumeVote, `e.mu.rests, e.mu.permitted, e.mu.permit = false, false, time.Time{}`, `e.mu.rests = false`}},
		By:    unit("election", "^TestPermissionIsForOneTerm$"), Dies: `by a permission that was used`,
	},
	{
		Name: "permission-outlives-a-primary", Also: "",
		Rule: "PROTOCOL 2.8: a server that is seen to go on ends a permission",
		Edits: []Edit{{volumeVote, `	if l.Ended.Before(e.mu.permit) {
		e.mu.permit = time.Time{}`, `	if l.Ended.Before(e.mu.permit) {
		e.mu.permit = e.mu.permit.Add(0)`}},
		By: unit("election", "^TestPermissionLapses$"), Dies: `a primary outlived`,
	},
	{
		Name: "permitted-term-is-lonely", Also: "",
		Rule:  "PROTOCOL 2.8: a permission holds for the term that the claim becomes",
		Edits: []Edit{{"election/loop.go", `e.mu.rests, e.mu.permitted = rests, rests && began.Before(e.mu.permit)`, `e.mu.rests, e.mu.permitted = rests, false`}},
		By:    unit("election", "^TestPermissionIsForOneTerm$"), Dies: `primary was 3 and is`,
	},
	{
		Name: "takeover-beside-a-primary", Also: "",
		Rule: "PROTOCOL 2.8: no permission while a server is seen to go on (package node, Takeover)",
		Edits: []Edit{{nodeVote, `	if v.Risen != 0 {
		return refuse(`, `	if v.Risen == n.opt.Server {
		return refuse(`}},
		By: unit("faulttests/sim", "^TestTakeoverByTheLastServer$"), Dies: `it is cut off: OK`,
	},
	{
		Name: "takeover-beside-a-majority", Also: "",
		Rule:  "PROTOCOL 2.8: no permission where another server reaches a majority (package node, Takeover)",
		Edits: []Edit{{nodeVote, `p.Reachable && p.Status.Able {`, `p.Reachable && p.Conflict {`}},
		By:    unit("faulttests/sim", "^TestNoTakeoverBesideAMajority$"), Dies: `want "server 4 reaches`,
	},
	{
		Name: "takeover-of-the-unfit", Also: "",
		Rule:  "a server that could not claim says so instead of taking a permission (package node, Takeover)",
		Edits: []Edit{{nodeVote, `if why := n.unfit(); why != "" {`, `if why := n.unfit(); why == "?" {`}},
		By:    unit("faulttests/sim", "^TestTakeoverByTheLastServer$"), Dies: `its volume hangs`,
	},
	{
		Name: "hidden-name-votes", Also: "",
		Rule:  "PROTOCOL 2.8: a name that a cache may hide is no proof that nothing was written (package node, neverWritten)",
		Edits: []Edit{{nodeVote, `return time.Since(a[f]) >= hidden`, `return time.Since(a[f]) >= 0*hidden`}},
		By:    unit("cmd/holdfast/node", "^TestNameThatMayBeHiddenIsNoVote$"), Dies: `network`,
	},
	{
		Name: "missing-name-never-votes", Also: "",
		Rule:  "PROTOCOL 2.8: a name that was missing for longer than a cache may hide it is missing",
		Edits: []Edit{{nodeVote, `return time.Since(a[f]) >= hidden`, `return time.Since(a[f]) >= hidden && hidden == 0`}},
		By:    unit("cmd/holdfast/node", "^TestNameThatMayBeHiddenIsNoVote$"), Dies: `does not serve later`,
	},
	{
		Name: "failed-look-untold", Also: "",
		Rule:  "status says why a server that is alone does not take over (package node, loneReason)",
		Edits: []Edit{{nodeVote, `	case unseen != nil && n`, `	case unseen != nil && v.Yes && n`}},
		By:    unit("cmd/holdfast/node", "^TestNameThatMayBeHiddenIsNoVote$"), Dies: `its status says`,
	},
	{
		Name: "volume-votes-by-the-first-list", Also: "",
		Rule:  "PROTOCOL 2.8, 22: the members of the present list may be primary, and not those of CLUSTER",
		Edits: []Edit{{nodeVote, `range n.members().Voters().IDs()`, `range n.vol.Cluster().Servers.IDs()`}},
		By:    unit("cmd/holdfast/node", "^TestVolumeVoteIsAboutMembers$"), Dies: `an added member goes on`,
	},
	{
		Name: "joining-server-is-looked-for", Also: "",
		Rule:  "PROTOCOL 22.1: a server that joins counts for nothing",
		Edits: []Edit{{nodeVote, `range n.members().Voters().IDs()`, `range n.members().IDs()`}},
		By:    unit("cmd/holdfast/node", "^TestVolumeVoteIsAboutMembers$"), Dies: `a server joins and never ran`,
	},
	{
		Name: "takeover-by-anybody", Also: "",
		Rule: "only an administrator permits a takeover (package service)",
		Edits: []Edit{{serviceFile, `func (s *Service) Takeover(ctx context.Context, q *pb.TakeoverRequest) (*pb.Answer, error) {
	if err := s.permit(ctx, access.Admin, "", "")`, `func (s *Service) Takeover(ctx context.Context, q *pb.TakeoverRequest) (*pb.Answer, error) {
	if err := s.permit(ctx, access.Keep, "", "")`}},
		By: unit("shared/frontend", "TestEveryDoorRefusesTheSame"), Dies: `takeover by "alice"`,
	},
	{
		Name: "takeover-untold", Also: "",
		Rule: "the audit tells who permitted a takeover, or wanted to (package service)",
		Edits: []Edit{{serviceFile, `	s.auditTakeover(ctx, own, q.GetReason(), &out)`, `	if out.Status == 0 {
		s.auditTakeover(ctx, own, q.GetReason(), &out)
	}`}},
		By: unit("shared/frontend", "^TestTakeoversAreAudited$"), Dies: `the audit has`,
	},
	{
		Name: "takeover-of-whoever", Also: "",
		Rule:  "a server is not permitted to take over when another one is named (package service)",
		Edits: []Edit{{serviceFile, `to != 0 && to != own {`, `to != 0 && own == 0 {`}},
		By:    unit("shared/frontend", "^TestTakeoversAreAudited$"), Dies: `takeover of server 2`,
	},
	{
		Name: "takeover-without-yes", Also: "",
		Rule:  "a takeover needs --yes (cli, takeoverCommand)",
		Edits: []Edit{{"cmd/holdfast/cli/takeover.go", `if !f.yes {`, `if !f.yes && len(args) > 0 {`}},
		By:    unit(cliPkg, "^TestTakeover$"), Dies: `without --yes`,
	},
	{
		Name: "takeover-of-the-primary", Also: "",
		Rule:  "a takeover by the server that is primary already is told as that (cli, takeOver)",
		Edits: []Edit{{"cmd/holdfast/cli/takeover.go", `if !serves(r, id) {`, `if id != 0 {`}},
		By:    unit(cliPkg, "^TestTakeover$"), Dies: `it is primary already`,
	},
	{
		Name: "takeover-beside-a-voiceless", Also: "",
		Rule:  "PROTOCOL 2.3, 2.8: a server that cannot write to the volume counts for no majority (package election, lonelyLocked)",
		Edits: []Edit{{volumeVote, `return p.live(now, t) }`, `return p.reached(now, t.MajorityWindow) && !p.conflicted(now) }`}},
		By:    unit("faulttests/sim", "^TestTakeoverBesideAServerWithoutAVolume$"), Dies: `refused: a majority of the servers answers`,
	},
	{
		Name: "own-beat-is-another-primary", Also: "",
		Rule:  "PROTOCOL 2.8: what a server wrote in its own term is no sign of another one (node, readSign)",
		Edits: []Edit{{nodeVote, `c.Epoch != 0 && c.Epoch == n.mu.beatEpoch`, `c.Epoch != 0 && c.Epoch < n.mu.beatEpoch`}},
		By:    unit("faulttests/sim", "^TestTakeoverByThePrimaryThatSteppedDown$"), Dies: `server 1 writes`,
	},
	{
		Name: "takeover-unawaited", Also: "",
		Rule:  "a takeover that comes to nothing is a failure of the command (cli, takeOver)",
		Edits: []Edit{{"cmd/holdfast/cli/takeover.go", `if !awaitStatus(ctx, one, f.wait,`, `if f.wait < 0 && !awaitStatus(ctx, one, f.wait,`}},
		By:    unit(cliPkg, "^TestTakeover$"), Dies: `it does not serve`,
	},
}
