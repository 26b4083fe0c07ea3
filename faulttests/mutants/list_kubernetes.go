// SPDX-License-Identifier: Apache-2.0

package mutants

// kubernetesMutants break what elections of client-go rest on.
var kubernetesMutants = []Mutant{
	{
		Name: "kubernetes-believes-late-answers", Also: "",
		Rule: "a renewal counts only while the lease outlasts RetryPeriod and RenewDeadline (clients/kubernetes, outlast)",
		Edits: []Edit{
			{"clients/kubernetes/lock.go", `		if time.Until(grant.Expires()) >= belief {
			return nil`, `		if time.Until(grant.Expires()) >= 0 {
			return nil`},
		},
		By: unit("clients/kubernetes", "^TestLateAnswerIsNotBelieved$"), Dies: `the elector may lead for 12 s`,
	},
	{
		Name: "kubernetes-takes-any-durations", Also: "",
		Rule: "a LeaseDuration has to leave time beside RetryPeriod and RenewDeadline (clients/kubernetes, hold)",
		Edits: []Edit{
			{"clients/kubernetes/lock.go", `ttl <= belief {`, `ttl <= 0*belief {`},
		},
		By: unit("clients/kubernetes", "^TestDurationsThatDoNotFit$"), Dies: `12 s`,
	},
	{
		Name: "kubernetes-believes-in-its-options", Also: "",
		Rule: "an elector that tries for longer than the options say is refused (clients/kubernetes, renew)",
		Edits: []Edit{
			{"clients/kubernetes/lock.go", `left > l.o.RenewDeadline && left < grant.TTL()`, `left > grant.TTL() && left < grant.TTL()`},
		},
		By: unit("clients/kubernetes", "^TestDurationsThatDoNotFit$"), Dies: `longer than told`,
	},
	{
		Name: "kubernetes-renews-for-the-elector", Also: "",
		Rule: "only Update renews the lease: that of an elector that hangs ends (clients/kubernetes, acquire)",
		Edits: []Edit{
			{"clients/kubernetes/lock.go", `Heartbeat: true,`, `Heartbeat: false,`},
		},
		By: unit("clients/kubernetes", "^TestNothingButUpdateRenews$"), Dies: `does not end`,
	},
	{
		Name: "kubernetes-leads-on-under-another-token", Also: "",
		Rule: "an elector that has lost its grant gets no other one before it has stopped (clients/kubernetes, hold)",
		Edits: []Edit{
			{"clients/kubernetes/lock.go", `	if grant, leads := l.current(); leads {
		err := l.renew(`, `	if grant, leads := l.current(); leads && live(grant) {
		err := l.renew(`},
		},
		By: unit("clients/kubernetes", "^TestLostGrantIsNotReplaced$"), Dies: `update: <nil>`,
	},
	{
		Name: "kubernetes-keeps-the-token-of-a-former-leader", Also: "",
		Rule: "an elector that runs again gets a new token (clients/kubernetes, RecordEvent)",
		Edits: []Edit{
			{"clients/kubernetes/lock.go", `	if s == stoppedLeading {`, `	if s == stoppedLeading && !live(l.mu.grant) {`},
		},
		By: unit("clients/kubernetes", "^TestEveryLeadershipHasItsToken$"), Dies: `comes after`,
	},
	{
		Name: "kubernetes-never-stops", Also: "",
		Rule: "an elector that has stopped may be elected again (clients/kubernetes, stoppedLeading)",
		Edits: []Edit{
			{"clients/kubernetes/lock.go", `stoppedLeading = "stopped leading"`, `stoppedLeading = "has stopped leading"`},
		},
		By: unit("clients/kubernetes", "^TestBrokenLeaderBeginsAnew$"), Dies: `there is no new leader`,
	},
	{
		Name: "kubernetes-outlasts-its-lease", Also: "",
		Rule: "what a leader asks ends with its lease, also while the elector releases it (clients/kubernetes, get)",
		Edits: []Edit{
			{"clients/kubernetes/lock.go", `		ctx, end = within(ctx, grant)
		defer end()
	}
	info, err`, `		_, end = within(ctx, grant)
		defer end()
	}
	info, err`},
		},
		By: unit("clients/kubernetes", "^TestElectorStopsWithItsLease$"), Dies: `after the end of its lease`,
	},
	{
		Name: "kubernetes-releases-for-ever", Also: "",
		Rule: "a release ends with the lease, for the elector stops after it (clients/kubernetes, release)",
		Edits: []Edit{
			{"clients/kubernetes/lock.go", `context.WithDeadline(ctx, grant.Expires())`, `context.WithDeadline(ctx, grant.Expires().Add(time.Hour))`},
		},
		By: unit("clients/kubernetes", "^TestReleaseEndsWithTheLease$"), Dies: `after the lease`,
	},
	{
		Name: "kubernetes-works-for-the-elector", Also: "",
		Rule: "the context of Leading ends with the grant (clients/kubernetes, Leading)",
		Edits: []Edit{
			{"clients/kubernetes/lock.go", `	ctx, _ = within(ctx, grant)
	return ctx, grant`, `	return ctx, grant`},
		},
		By: unit("clients/kubernetes", "^TestLostGrantIsNotReplaced$"), Dies: `does not end`,
	},
	{
		Name: "kubernetes-takes-its-namesake-for-itself", Also: "",
		Rule: "a grant is the own one by its token, not by the identity in its record (clients/kubernetes, recordOf)",
		Edits: []Edit{
			{"clients/kubernetes/record.go", `r.HolderIdentity == identity && !own {`, `r.HolderIdentity == identity && false && !own {`},
		},
		By: unit("clients/kubernetes", "^TestGet$"), Dies: `the holder is "me"`,
	},
	{
		Name: "kubernetes-conflict-on-release", Also: "",
		Rule: "to release a grant that was lost is no error: client-go repeats it without a pause (clients/kubernetes, release)",
		Edits: []Edit{
			{"clients/kubernetes/lock.go", `	if grant == nil || !live(grant) {
		return nil`, `	if grant == nil {
		return nil
	}
	if !live(grant) {
		return conflict(l.name, context.Cause(grant.Context()))`},
		},
		By: unit("clients/kubernetes", "^TestReleaseOfALostGrant$"), Dies: `is lost`,
	},
	{
		Name: "kubernetes-forgets-the-former-leader", Also: "",
		Rule: "a candidate that has seen a leader counts the transition to the next one (clients/kubernetes, free)",
		Edits: []Edit{
			{"clients/kubernetes/lock.go", `	if l.mu.seen == nil {`, `	if l.mu.seen == nil || !l.mu.leads {`},
		},
		By: unit("clients/kubernetes", "^TestRelease$"), Dies: `not found`,
	},
}
