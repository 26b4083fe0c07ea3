// SPDX-License-Identifier: Apache-2.0

package mutants

const (
	permitFile  = "shared/frontend/service/permit.go"
	serviceFile = "shared/frontend/service/service.go"
)

// doorMutants break the checks of callers in the front ends.
var doorMutants = []Mutant{
	{
		Name: "door-executes-for-anybody",
		Rule: "a request to the lock table asks the rules for its caller (package service)",
		Edits: []Edit{{"shared/frontend/service/usage.go", `return p.Check(VerbOf(q.Op), string(q.Lock), string(q.File))`,
			`return p.Check("open", string(q.Lock), string(q.File))`}},
		By: unit("shared/frontend", "TestEveryDoorRefusesTheSame"), Dies: `HTTP, acquire by "bob"`,
	},
	{
		Name: "door-session-asks-nobody",
		Rule: "sessions ask the rules for what they hand in themselves (package session)",
		Edits: []Edit{{"shared/frontend/session/session.go", `x.allowed.Check(service.VerbOf(o.Request.Op), string`,
			`x.allowed.Check("open"+service.VerbOf(o.Request.Op)[:0], string`}},
		By: unit("shared/frontend", "TestEveryDoorRefusesTheSame"), Dies: `session, acquire by "bob"`,
	},
	{
		Name: "door-handover-by-anybody",
		Rule: "only an administrator moves the primary role (package service)",
		Edits: []Edit{{serviceFile, `func (s *Service) Handover(ctx context.Context, q *pb.HandoverRequest) (*pb.Answer, error) {
	if err := s.permit(ctx, access.Admin, "", "")`, `func (s *Service) Handover(ctx context.Context, q *pb.HandoverRequest) (*pb.Answer, error) {
	if err := s.permit(ctx, access.Keep, "", "")`}},
		By: unit("shared/frontend", "TestEveryDoorRefusesTheSame"), Dies: `handover by "alice"`,
	},
	{
		Name: "door-upgrade-by-anybody",
		Rule: "only an administrator raises the feature level of the cluster (package service)",
		Edits: []Edit{{serviceFile, `func (s *Service) Upgrade(ctx context.Context, q *pb.UpgradeRequest) (*pb.Answer, error) {
	if err := s.permit(ctx, access.Admin, "", "")`, `func (s *Service) Upgrade(ctx context.Context, q *pb.UpgradeRequest) (*pb.Answer, error) {
	if err := s.permit(ctx, access.Keep, "", "")`}},
		By: unit("shared/frontend", "TestEveryDoorRefusesTheSame"), Dies: `upgrade by "alice"`,
	},
	{
		Name:  "door-expired-as-good",
		Rule:  "an expired credential only keeps and releases what is held",
		Edits: []Edit{{permitFile, `p.caller.Expired(time.Now()) {`, `p.caller.Expired(time.Time{}) {`}},
		By:    unit("shared/frontend", "TestEveryDoorRefusesTheSame"), Dies: `by "late"`,
	},
	{
		Name:  "door-expiry-takes-locks",
		Rule:  "an expired credential still keeps and releases what is held",
		Edits: []Edit{{permitFile, `v != access.Keep && p.caller.Expiring()`, `v != access.Open && p.caller.Expiring()`}},
		By:    unit("shared/frontend", "TestEveryDoorRefusesTheSame"), Dies: `release by "late"`,
	},
	{
		Name: "door-revoked-goes-on",
		Rule: "sessions and streams end when their credential is revoked",
		Edits: []Edit{{permitFile, `		if err := x.check(); err != nil {
			x.end(err)
		}
	}
}`, `		_ = x.check()
	}
}`}},
		By: unit("shared/frontend", "TestNewRulesHoldForWhatIsUnderWay"), Dies: `PERMISSION_DENIED|timeout|deadline`,
	},
	{
		Name:  "door-other-identity-takes-a-session",
		Rule:  "a session takes a new credential of its own identity only",
		Edits: []Edit{{"shared/frontend/session/conn.go", `err == nil && c.Name() != was {`, `err == nil && was == "" {`}},
		By:    unit("shared/frontend", "TestCredentialIsRenewedInTheSession"), Dies: `bob`,
	},
	{
		Name:  "door-old-rules-are-kept",
		Rule:  "a session asks the rules in force, not those of its beginning",
		Edits: []Edit{{permitFile, `r != p.rules || !p.asked`, `!p.asked || r == nil`}},
		By:    unit("shared/frontend", "TestNewRulesHoldForWhatIsUnderWay"), Dies: `to acquire`,
	},
	{
		Name: "door-forward-without-caller",
		Rule: "a server that forwards passes on whose request it is",
		Edits: []Edit{{"shared/frontend/httpapi/forward.go", `	h.passOn(ctx, r)
`, ``}},
		By: unit("shared/frontend", "TestForwardKeepsItsCaller"), Dies: `"alice" is answered 401`,
	},
	{
		Name:  "door-lists-everything",
		Rule:  "a list of locks leaves out what the caller may not read (package service)",
		Edits: []Edit{{"shared/frontend/service/read.go", `allowed.May(access.Read, name, "")`, `allowed.May(access.Read, "", "")`}},
		By:    unit("shared/frontend", "TestReadersSeeTheirOwnOnly|TestListsAreOfWhatOneMayRead"), Dies: `sees the locks|next is|want \[`,
	},
	{
		Name:  "door-lists-all-files",
		Rule:  "a list of files leaves out what the caller may not read (package service)",
		Edits: []Edit{{"shared/frontend/service/files.go", `allowed.May(access.Read, "", name)`, `allowed.May(access.Read, "", "")`}},
		By:    unit("shared/frontend", "TestReadersSeeTheirOwnOnly|TestListsAreOfWhatOneMayRead"), Dies: `sees the locks|next is|want \[`,
	},
	{
		Name:  "door-list-in-small-pages",
		Rule:  "a list reads few pages through what the caller may not read (package service, readable)",
		Edits: []Edit{{"shared/frontend/service/read.go", `wide = min(2*wide, maxPage)`, `wide = min(wide, maxPage)`}},
		By:    unit("shared/frontend/service", "^TestHiddenNamesCostFewReads$"), Dies: `reads of the table for one answer`,
	},
	{
		Name:  "door-lock-names-hidden-files",
		Rule:  "a lock names those of its files that the caller may read (package service, GetLock)",
		Edits: []Edit{{"shared/frontend/service/read.go", `		if !allowed.May(access.Read, "", string(files[i].name)) {`, `		if !allowed.May(access.Read, q.GetLock(), "") {`}},
		By:    unit("shared/frontend", "^TestLockHidesFilesThatOneMayNotRead$"), Dies: `bob sees the files "open secret"`,
	},
	{
		Name: "door-list-ends-early",
		Rule: "a list goes on behind what the caller may not read (package service)",
		Edits: []Edit{{"shared/frontend/service/read.go", `			if more = len(got) > wide; len(all) == before {
`, `			if more = false; len(all) == before {
`}},
		By: unit("shared/frontend", "TestListsAreOfWhatOneMayRead"), Dies: `by 1: `,
	},
	{
		Name: "door-status-tells-strangers",
		Rule: "who is permitted nothing learns by status where the servers are, and no more (package service)",
		Edits: []Edit{{"shared/frontend/service/status.go", `		forStrangers(r)
`, ``}},
		By: unit("shared/frontend", "TestStatusForStrangers"), Dies: `server id:`,
	},
	{
		Name:  "door-verify-tells-strangers",
		Rule:  "who may neither read nor acquire a lock learns by verify about grants of its own only (package service)",
		Edits: []Edit{{"shared/frontend/service/service.go", `barred != nil && !isOwn {`, `barred != nil && !isOwn && owner == "" {`}},
		By:    unit("shared/frontend", "TestLinesKeepWhatIsHeld"), Dies: `, want DENIED`,
	},
	{
		Name:  "door-line-takes-at-expiry",
		Rule:  "expiry of a credential takes no lock, over lines neither (package service)",
		Edits: []Edit{{"shared/frontend/service/service.go", `barred != nil && !isOwn {`, `barred != nil && (!isOwn || barred != nil) {`}},
		By:    unit("shared/frontend", "TestLinesKeepWhatIsHeld"), Dies: `RENEW,l,me: DENIED, want SUCCESS`,
	},
	{
		Name:  "door-anybody-asks-of-others",
		Rule:  "only an administrator may ask what others may do (package service)",
		Edits: []Edit{{"shared/frontend/service/whoami.go", `p.Check(access.Admin, "", "")`, `p.Check(access.Open, "", "")`}},
		By:    unit("shared/frontend", "TestAdministratorsAskOfOthers"), Dies: `who:alice`,
	},
	{
		Name:  "door-download-goes-on",
		Rule:  "a download breaks off when its credential is revoked (package httpapi)",
		Edits: []Edit{{"shared/frontend/httpapi/files.go", `ctx: ctx, w:`, `ctx: r.Context(), w:`}},
		By:    unit("shared/frontend", "TestDownloadEndsWithItsCredential"), Dies: `alice is sent 3145728 bytes`,
	},
	{
		Name: "door-watch-keeps-its-first-credential",
		Rule: "what is under way on a connection is its caller's with the credential that he showed last (package session)",
		Edits: []Edit{{"shared/frontend/session/watch.go", `x.watches.begin(x.from, id)`,
			`x.watches.begin(serving.WithCaller(x.from, x.caller.Load()), id)`}, {"shared/frontend/session/watch.go",
			`	"github.com/holdfast-lock/holdfast/shared/watch"
`, `	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/watch"
`}},
		By: unit("shared/frontend", "TestRenewedCredentialKeepsItsWatches"), Dies: `the watch ends with`,
	},
	{
		Name:  "door-wait-that-may-be-granted",
		Rule:  "whoever waits while the credential is revoked is not told that nothing happened (package service)",
		Edits: []Edit{{"shared/frontend/service/leave.go", `Status: cluster.StatusUnknown, Message: refusal.Message`, `Status: refusal.Status, Message: refusal.Message`}},
		By:    unit(servicePkg, "^TestQueueIsLeftByOneOfSomeTries$"), Dies: `PERMISSION_DENIED`,
	},
	{
		Name:  "door-watches-any-prefix",
		Rule:  "a watch needs its whole prefix (package service)",
		Edits: []Edit{{"shared/frontend/service/watch.go", `allowed.CheckPrefix(access.Read, x.o.Prefix)`, `allowed.Check(access.Read, "", "")`}},
		By:    unit("shared/frontend", "TestReadersSeeTheirOwnOnly"), Dies: `watches all`,
	},
	{
		Name:  "door-history-of-any-prefix",
		Rule:  "the history of a prefix needs the whole prefix (package service)",
		Edits: []Edit{{"shared/frontend/service/history.go", `allowed.admitPrefix(ctx, access.Read, x.Prefix)`, `allowed.admit(ctx, access.Read, "", "")`}},
		By:    unit("shared/frontend", "TestReadersSeeTheirOwnOnly"), Dies: `history of all`,
	},
	{
		Name:  "door-losses-to-strangers",
		Rule:  "losses are told to the identity that they belong to only (package service)",
		Edits: []Edit{{permitFile, `l.Identity != "" && l.Identity != own }`, `l.Identity != "" && own == "~" }`}},
		By:    unit("shared/frontend", "TestLossesAreToldToTheOwnIdentity"), Dies: `another one is told`,
	},
	{
		Name: "door-socket-outlives-its-credential",
		Rule: "a WebSocket ends when its credential is revoked (package ws)",
		Edits: []Edit{{permitFile, `			ended(e)
`, `			_ = e
`}},
		By: unit("shared/frontend", "TestRevokedCredentialIsCut"), Dies: `the WebSocket ends with|the session ends|deadline|timed out|timeout`,
	},
	{
		Name:  "door-keys-verified-anew",
		Rule:  "a server that reads the same keys again goes on with what it has verified (package auth)",
		Edits: []Edit{{authPkg + "/authenticator.go", `return a.ID == b.ID })`, `return a.ID == "" && b.ID == "" })`}},
		By:    unit(authPkg, "TestSameKeysChangeNothing"), Dies: `are forgotten`,
	},
}
