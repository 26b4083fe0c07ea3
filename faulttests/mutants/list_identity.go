// SPDX-License-Identifier: Apache-2.0

package mutants

const ownedRule = "what belongs to an identity is used by it only (PROTOCOL 12.7)"

// identityMutants let identities use what belongs to others.
var identityMutants = []Mutant{
	{
		Name: "client-of-anybody", Rule: ownedRule,
		Edits: []Edit{{"shared/locktable/decide.go", `	if why := t.DeniesClient(q.Client, q.Identity); why != "" {
		return refuse(q, cluster.StatusPermissionDenied, why)
	}
	switch q.Op {`, `	switch q.Op {`}},
		By: unit("shared/locktable", "TestClientOfAnotherIdentity"), Dies: `by "user:bob": OK`,
	},
	{
		Name: "token-of-any-identity", Rule: ownedRule,
		Edits: []Edit{{"shared/locktable/decide.go", `t.DeniesToken(q.Lock, q.Token, q.Identity)
	switch {`, `""
	switch {`}},
		By: unit("shared/locktable", "TestTokenOfAnotherIdentity"), Dies: `append by "user:bob": OK`,
	},
	{
		Name: "token-of-any-identity-over-failovers", Rule: ownedRule,
		Edits: []Edit{{"shared/locktable/decide.go", `t.DeniesToken(q.Lock, q.Token, q.Identity)
	switch {`, `""
	switch {`}},
		By: Killer{Pkg: simulation, Run: "^TestStrangersOverFailovers$"}, Dies: `by "user:mallory", of what belongs to the identity of`,
	},
	{
		Name: "nobody-is-anybody", Rule: "a caller without a credential is not the owner (PROTOCOL 12.7)",
		Edits: []Edit{{"shared/locktable/identity.go", `return owner == "" || owner == identity`, `return owner == "" || identity == "" || owner == identity`}},
		By:    unit("shared/locktable", "TestTokenOfAnotherIdentity|TestClientOfAnotherIdentity"), Dies: `by "": OK`,
	},
	{
		Name: "opened-client-of-anybody", Rule: ownedRule,
		Edits: []Edit{{"shared/locktable/decide.go", `t.DeniesClient(c.id, q.Identity); why != ""`, `t.DeniesClient(c.id, q.Identity); why == "-"`}},
		By:    unit("shared/locktable", "TestClientOfAnotherIdentity"), Dies: `got OK`,
	},
	{
		Name: "last-identity-owns", Rule: "the first identity owns a client (PROTOCOL 12.7)",
		Edits: []Edit{{"shared/locktable/identity.go", `c != nil && c.owner() == "" {`, `c != nil {`}},
		By:    unit("shared/locktable", "TestFirstIdentityOwns"), Dies: `belongs to "user:bob"`,
	},
	{
		Name: "identity-not-in-checkpoint", Rule: "a checkpoint holds the identities (package locktable, Identities)",
		Edits: []Edit{{"shared/locktable/export.go", `Dropped: c.dropped, Identity: c.owner()}`, `Dropped: c.dropped}`}},
		By:    unit("shared/locktable", "TestClientOfAnotherIdentity"), Dies: `restored table: its clients are of`,
	},
	{
		Name: "identity-changes-under-an-export", Rule: "an export is the state at its beginning (package locktable, Export)",
		Edits: []Edit{{"shared/locktable/identity.go", `		t.changesClient(c)
`, ``}},
		By: unit("shared/locktable", "TestExportIsTheStateAtItsBeginning"), Dies: `has clients of`,
	},
	{
		Name: "identity-is-content", Rule: "a repeat may come from another connection of the identity, under older rules too (package locktable, Request)",
		Edits: []Edit{{"shared/locktable/request.go", `	b = appendText(b, q.Reason)
`, `	b = appendText(b, q.Reason)
	b = append(b, q.Identity...)
`}},
		By: unit("shared/locktable", "TestIdentityBounds"), Dies: `is part of the content`,
	},
	{
		Name: "renewed-by-anybody", Rule: ownedRule,
		Edits: []Edit{{"primary/leases.go", `c.table.DeniesToken(x.req.Lock, x.req.Token, x.req.Identity); why != ""`, `c.table.DeniesToken(x.req.Lock, x.req.Token, x.req.Identity); why == "-"`}},
		By:    unit("primary", "TestStrangersKeepNothingAlive"), Dies: `a renewal by "user:bob": {Status:OK`,
	},
	{
		Name: "kept-alive-by-anybody", Rule: ownedRule,
		Edits: []Edit{{"primary/leases.go", `c.table.DeniesClient(id, x.req.Identity); why != ""`, `c.table.DeniesClient(id, x.req.Identity); why == "-"`}},
		By:    unit("primary", "TestStrangersKeepNothingAlive"), Dies: `a keep-alive by "user:bob"`,
	},
	{
		Name: "refused-is-heard", Rule: "the refused request of another identity is no sign of life (PROTOCOL 12.7)",
		Edits: []Edit{{"primary/core.go", `len(recs) == 0 && c.table.DeniesClient(q.Client, q.Identity) != ""`, `len(recs) == 0 && c.table.DeniesClient(q.Client, q.Identity) == "-"`}},
		By:    unit("primary", "TestStrangersKeepNothingAlive"), Dies: `"user:bob" kept .* alive`,
	},
	{
		Name: "refused-makes-a-file", Rule: "a request that is refused opens and creates nothing (PROTOCOL 12.7)",
		Edits: []Edit{{"primary/fileslots.go", `c.table.DeniesToken(q.Lock, q.Token, q.Identity) != ""`, `c.table.DeniesToken(q.Lock, q.Token, q.Identity) == "-"`},
			{"primary/fileslots.go", `c.table.DeniesClient(q.Client, q.Identity) != ""`, `c.table.DeniesClient(q.Client, q.Identity) == "-"`}},
		By: unit("primary", "TestStrangersKeepNothingAlive"), Dies: `a request that was refused made a file`,
	},
	{
		Name: "outcome-for-anybody", Rule: ownedRule,
		Edits: []Edit{{"shared/frontend/service/read.go", `	case denied != "":`, `	case denied == "-":`}},
		By:    unit("shared/frontend", "TestServiceAsksForTheCaller"), Dies: `an outcome for "user:bob"`,
	},
	{
		Name: "executed-for-nobody", Rule: "the service executes for the caller of its context (PROTOCOL 12.7)",
		Edits: []Edit{{"shared/frontend/service/service.go", `	q.Identity = serving.CallerOf(ctx).Name()
`, `	q.Identity = serving.CallerOf(context.Background()).Name()
`}},
		By: unit("shared/frontend", "TestServiceAsksForTheCaller"), Dies: `executed for "", want "user:alice"`,
	},
}
