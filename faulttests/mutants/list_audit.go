// SPDX-License-Identifier: Apache-2.0

package mutants

const (
	sidelogPkg  = "primary/sidelog"
	auditFile   = "primary/sidelog/audit.go"
	auditorFile = "shared/frontend/service/audit.go"
)

// auditMutants break what the audit tells, and what it costs others.
var auditMutants = []Mutant{
	{
		Name: "audit-waits", Rule: "what finds no room in the audit is counted, and nobody waits or fills the memory (package sidelog, Audit)",
		Edits: []Edit{{auditFile, `	if !a.add(e) {
		a.lost++`, `	if !a.add(e) {
		a.waiting = append(a.waiting, e)`}},
		By: unit(sidelogPkg, "^TestTheAuditWaitsForNothing$"), Dies: `and 0 lost`,
	},
	{
		Name: "audit-lost-untold", Rule: "a line tells how many events found no room (package sidelog, Audit)",
		Edits: []Edit{{auditFile, `	tellsLost := lost > 0 && !more`, `	tellsLost := lost > 0 && more && !more`}},
		By:    unit(sidelogPkg, "^TestTheAuditWaitsForNothing$"), Dies: `and 0 lost`,
	},
	{
		Name: "audit-hang-untold", Rule: "status warns while a write of the audit does not come back (package sidelog, Audit)",
		Edits: []Edit{{auditFile, `	case !a.began.IsZero() && now.Sub(a.began) >= auditStuck:`, `	case !a.began.IsZero() && now.Sub(a.began) < 0:`}},
		By:    unit(sidelogPkg, "^TestTheAuditWaitsForNothing$"), Dies: `status says`,
	},
	{
		Name: "audit-floods", Rule: "of many refusals of one caller some have a line, and the rest is counted (package sidelog, Audit)",
		Edits: []Edit{{auditFile, `	return a.refused[k] <= told
`, `	return a.refused[k] <= told || told > 0
`}},
		By: unit(sidelogPkg, "^TestManyRefusalsAreCounted$"), Dies: `an identity: 75 lines`,
	},
	{
		Name: "audit-strangers-unbounded", Rule: "all strangers together have a bound, since they choose their addresses (package sidelog, Audit)",
		Edits: []Edit{{auditFile, `a.refused[all] > strangersTold {`, `a.refused[all] < 0 {`}},
		By:    unit(sidelogPkg, "^TestStrangersHaveABoundTogether$"), Dies: `of strangers: `,
	},
	{
		Name: "audit-fills-the-disk", Rule: "what is left of a full disk is left to the log (package sidelog, Audit)",
		Edits: []Edit{{auditFile, `	if a.cfg.Full() {`, `	if a.cfg.Full() && n < 0 {`}},
		By:    unit(sidelogPkg, "^TestTroublesOfTheVolume$"), Dies: `the_log_is_full`,
	},
	{
		Name: "audit-kept-for-ever", Rule: "files of the audit are removed when there is too much of them (package sidelog, Audit)",
		Edits: []Edit{{auditFile, `remove || total > a.cfg.TotalBytes`, `remove || total < 0`}},
		By:    unit(sidelogPkg, "^TestFilesEndAndAreRemoved$"), Dies: `bytes are kept`,
	},
	{
		Name: "audit-removed-by-a-wrong-clock", Rule: "no file of the audit is removed by a clock that has not gone evenly (package sidelog, Audit)",
		Edits: []Edit{{auditFile, `	if a.tidy.clock.believed(now, day) {`, `	if a.tidy.clock.believed(now, day) || oldest == "" {`}},
		By:    unit(sidelogPkg, "^TestAClockThatIsAheadRemovesNothing$"), Dies: `files `,
	},
	{
		Name: "audit-file-of-another", Rule: "each process finds a free name for its files, also where a cache hides others' (package auditdir, Begin)",
		Edits: []Edit{{"shared/volume/auditdir/auditdir.go", `!errors.Is(err, fs.ErrExist) {`, `!errors.Is(err, fs.ErrExist) || next.N > 0 {`}},
		By:    unit("shared/volume/auditdir", "^TestEachProcessHasItsFiles$"), Dies: `exist`,
	},
	{
		Name: "audit-readable", Rule: "only its owner may read the audit (package auditdir, NewWriter)",
		Edits: []Edit{{"shared/volume/auditdir/auditdir.go", `vfs.FlagPrivate|vfs.FlagDsync`, `vfs.FlagDsync`}},
		By:    unit(sidelogPkg, "^TestTheAuditIsPrivate$"), Dies: `mode `,
	},
	{
		Name: "audit-keeps-secrets", Rule: "no line of the audit has a key, a ticket or a proof (package audit, AppendLine)",
		Edits: []Edit{{"shared/audit/audit.go", `		*s = cut(withoutSecrets(*s), maxText)`, `		*s = cut(*s, maxText)`}},
		By:    unit("shared/audit", "^TestSecretsAreLeftOut$"), Dies: ` is in `,
	},
	{
		Name: "audit-breaks-untold", Rule: "who breaks a lock in a session is told of (package session, Answer)",
		Edits: []Edit{{"shared/frontend/session/session.go", `	x.v.s.Executed(&o.Request, x.caller.Load(), x.c.RemoteAddr(), &out)
`, ``}},
		By: unit("shared/frontend", "^TestBreaksAreToldThroughEveryDoor$"), Dies: `session: the audit has `,
	},
	{
		Name: "audit-foreign-untold", Rule: "who uses a grant of another identity is told of (package service, Executed)",
		Edits: []Edit{{auditorFile, `	if out.Status == cluster.StatusPermissionDenied {`, `	if out.Status == cluster.StatusPermissionDenied && from != nil {`}},
		By:    unit("shared/frontend", "^TestForeignGrantsAreTold$"), Dies: `release: `,
	},
	{
		Name: "audit-refusals-untold", Rule: "each refusal is told, through every front end (package service, Permission)",
		Edits: []Edit{{"shared/frontend/service/permit.go", `		p.s.auditRefusal(err, p.caller, p.from, v, lock, file)`, `		_ = v`}},
		By:    unit("shared/frontend", "^TestEveryDoorRefusesTheSame$"), Dies: `and the audit has \[\]`,
	},
	{
		Name: "audit-questions-told", Rule: "who asks what he may is refused nothing (package service, May)",
		Edits: []Edit{{"shared/frontend/service/permit.go", `bool { return p.why(v, lock, file) == nil }`, `bool { return p.Check(v, lock, file) == nil }`}},
		By:    unit("shared/frontend", "^TestEventsOfTheAudit$|^TestEveryDoorRefusesTheSame$"), Dies: `the audit has `,
	},
}
