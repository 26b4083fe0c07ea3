// SPDX-License-Identifier: Apache-2.0

package mutants

const (
	authPkg       = "cmd/holdfast/auth"
	credentialPkg = "clientlib/credential"
)

// credentialMutants break the proof of who a client is.
var credentialMutants = []Mutant{
	{
		Name: "any-signed-text-is-a-ticket",
		Rule: "what the same key signed for another purpose is no ticket (package auth, verify)",
		Edits: []Edit{
			{authPkg + "/ticket.go", `is != typ || !known {`, `is == "" || !known {`},
		},
		By: unit(authPkg, "^TestAttacks$"), Dies: `a proof: is `,
	},
	{
		Name: "ticket-of-another-cluster",
		Rule: "a ticket counts in its own cluster only (package auth, verify)",
		Edits: []Edit{
			{authPkg + "/ticket.go", `jwt.WithIssuer(v.id.String()), `, ``},
		},
		By: unit(authPkg, "^TestAttacks$"), Dies: `another cluster: is `,
	},
	{
		Name: "ticket-from-the-future",
		Rule: "a ticket that was issued in the future is refused (package auth, verify)",
		Edits: []Edit{
			{authPkg + "/ticket.go", `m.IssuedAt.After(now.Add(maxSkew))`, `m.IssuedAt.After(now.Add(maxSkew * 60))`},
		},
		By: unit(authPkg, "^TestAttacks$"), Dies: `issued in the future: is `,
	},
	{
		Name: "expiry-forgets-who",
		Rule: "an expired ticket still proves whose the locks are (package auth, verify)",
		Edits: []Edit{
			{authPkg + "/ticket.go", `jwt.WithLeeway(afterExpiry),`, ``},
		},
		By: unit(authPkg, "^TestExpiredTicketStillTellsWho$"), Dies: `the ticket expired`,
	},
	{
		Name: "verified-for-ever",
		Rule: "a ticket that was verified is remembered until it ends only (package auth, kept)",
		Edits: []Edit{
			{authPkg + "/authenticator.go", `if !ok || now.Before(e.until) {`, `if ok || now.Before(e.until) {`},
		},
		By: unit(authPkg, "^TestExpiredTicketStillTellsWho$"), Dies: `after a day: `,
	},
	{
		Name: "passed-on-for-longer",
		Rule: "what is passed on ends with the caller's own credential (package auth, PassOn)",
		Edits: []Edit{
			{authPkg + "/ticket.go", `		c.Expires = m.Until.Time
`, ``},
		},
		By: unit(authPkg, "^TestPassOn$"), Dies: `an expired one: from`,
	},
	{
		Name: "passed-on-shown-later",
		Rule: "what is passed on has to be shown soon (package auth, PassOn)",
		Edits: []Edit{
			{authPkg + "/ticket.go", `!now.Before(until) {`, `until.IsZero() {`},
		},
		By: unit(authPkg, "^TestPassOn$"), Dies: `shown later: `,
	},
	{
		Name: "revoked-and-taken",
		Rule: "a credential that was revoked proves nothing (package auth, Authenticate)",
		Edits: []Edit{
			{authPkg + "/authenticator.go", `if err == nil && g.rules().Revoked(c) {`, `if err == nil && g.rules().Revoked(nil) {`},
		},
		By: unit(authPkg, "^TestRevoked$"), Dies: `user:alice`,
	},
	{
		Name: "credential-in-plain-text",
		Rule: "a credential is sent over TLS or to this host only (package credential, For)",
		Edits: []Edit{
			{credentialPkg + "/credential.go", `!isTLS && !ownHost(c.RemoteAddr())`, `!isTLS && c == nil`},
		},
		By: unit(credentialPkg, "^TestPlainText$"), Dies: `hfk_verysecret`,
	},
	{
		Name: "ticket-that-others-read",
		Rule: "a file of a ticket that others may read is refused (package credential, fromTicketFile)",
		Edits: []Edit{
			{credentialPkg + "/credential.go", `info.Mode().Perm()&0o077 != 0`, `info.Mode().Perm()&0o022 != 0`},
		},
		By: unit(credentialPkg, "^TestFromEnvironment$"), Dies: `one that others may read: `,
	},
	{
		Name: "oldest-key-signs",
		Rule: "the newest signing key comes first (package volume, ReadSigningKeys)",
		Edits: []Edit{
			{"shared/volume/signing.go", `cmp.Compare(b.number, a.number)`, `cmp.Compare(a.number, b.number)`},
		},
		By: unit("shared/volume", "^TestSeveralSigningKeys$"), Dies: `key 0 is `,
	},
}
