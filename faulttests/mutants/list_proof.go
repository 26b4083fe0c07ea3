// SPDX-License-Identifier: Apache-2.0

package mutants

const (
	fencingPkg = "clientlib/fencing"
	proveFile  = "shared/frontend/service/prove.go"

	signingFile = "shared/volume/signing.go"
)

// proofMutants break what is signed of a grant, and what a resource believes of it.
var proofMutants = []Mutant{
	{
		Name: "proof-written-before-verified",
		Rule: "a proof is verified before the guard writes anything (package fencing, DoProof)",
		Edits: []Edit{
			{fencingPkg + "/proof.go", `	p, err := keys.Verify(lock, proof)
`, `	c := &claims{}
	_, _, _ = jwt.NewParser().ParseUnverified(proof, c)
	_ = g.Admit(lock, Token(c.Token))
	p, err := keys.Verify(lock, proof)
`},
		},
		By: unit(fencingPkg, "^TestProofIsVerifiedFirst$"), Dies: `the guard has seen 9000000000000000000`,
	},
	{
		Name: "any-signed-text-is-a-proof",
		Rule: "what the same key signed for another purpose is no proof (package fencing, claims)",
		Edits: []Edit{
			{fencingPkg + "/proof.go", `typ != wire.ProofType {`, `typ == "" {`},
		},
		By: unit(fencingPkg, "^TestForgedProofs$"), Dies: `a ticket: `,
	},
	{
		Name: "proof-signed-as-a-ticket",
		Rule: "a proof has a typ of its own (package auth, Prove)",
		Edits: []Edit{
			{authPkg + "/proof.go", `= wire.ProofType, key.ID`, `= ticketType, key.ID`},
		},
		By: unit(authPkg, "^TestProofIsNoTicket$"), Dies: `a proof is a credential`,
	},
	{
		Name: "proof-of-any-lock",
		Rule: "a proof counts for its own lock only (package fencing, Verify)",
		Edits: []Edit{
			{fencingPkg + "/proof.go", `	case p.Lock != lock:`, `	case p.Lock == "":`},
		},
		By: unit(fencingPkg, "^TestOtherLockAndSharedGrant$"), Dies: `"jobs": `,
	},
	{
		Name: "proof-of-a-shared-grant",
		Rule: "a shared grant proves nothing exclusive (package fencing, Verify)",
		Edits: []Edit{
			{fencingPkg + "/proof.go", `	case p.Shared:`, `	case p.Shared && p.Token == 0:`},
		},
		By: unit(fencingPkg, "^TestOtherLockAndSharedGrant$"), Dies: `a shared grant: `,
	},
	{
		Name: "proof-never-expires",
		Rule: "a proof counts for five seconds longer than its lease at most (package fencing, leeway)",
		Edits: []Edit{
			{fencingPkg + "/proof.go", `const leeway = 5 * time.Second`, `const leeway = 3600 * time.Second`},
		},
		By: unit(fencingPkg, "^TestProofExpires$"), Dies: `5 s after its end`,
	},
	{
		Name: "proof-of-another-cluster",
		Rule: "a proof counts for its own cluster only (package fencing, claims)",
		Edits: []Edit{
			{fencingPkg + "/proof.go", `	if k.cluster != "" {`, `	if k.cluster == "-" {`},
		},
		By: unit(fencingPkg, "^TestForgedProofs$"), Dies: `another cluster: `,
	},
	{
		Name: "proof-decoded-loosely",
		Rule: "each bit of a proof is covered by its signature (package fencing, claims)",
		Edits: []Edit{
			{fencingPkg + "/proof.go", `jwt.WithStrictDecoding(), `, ``},
		},
		By: unit(fencingPkg, "^TestForgedProofs$"), Dies: `flipped: is `,
	},
	{
		Name: "proof-keys-read-at-will",
		Rule: "who shows unknown keys has the keys read again once a minute at most (package fencing, find)",
		Edits: []Edit{
			{fencingPkg + "/keys.go", `now.Sub(k.last) >= reloadEvery`, `now.Sub(k.last) >= 0`},
		},
		By: unit(fencingPkg, "^TestUnknownKeyReloads$"), Dies: `after 3 reads; want`,
	},
	{
		Name: "proof-keys-over-plain-text",
		Rule: "keys come over https, or from this host (package fencing, trusted)",
		Edits: []Edit{
			{fencingPkg + "/keys.go", `u.Scheme == "https" ||`, `u.Scheme != "" ||`},
		},
		By: unit(fencingPkg, "^TestOpenKeys$"), Dies: `want "use https"`,
	},
	{
		Name: "proof-for-another-identity",
		Rule: "a proof is signed for the identity that the grant belongs to (package service, Prove)",
		Edits: []Edit{
			{proveFile, `		denied = v.Table.DeniesToken(lock, token, serving.CallerOf(ctx).Name())
`, ``},
		},
		By: unit("shared/frontend", "^TestProofIsOfTheOwnGrant$"), Dies: `"bob": OK|"root": OK`,
	},
	{
		Name: "proof-for-anybody",
		Rule: "who has no credential gets no proof where there are rules (package service, Prove)",
		Edits: []Edit{
			{proveFile, `s.permit(ctx, access.Keep, string(lock), "")`, `s.permit(ctx, access.Open, string(lock), "")`},
		},
		By: unit("shared/frontend", "^TestEveryDoorRefusesTheSame$"), Dies: `prove by ""`,
	},
	{
		Name: "proof-without-a-check",
		Rule: "a proof rests on a check that began after the grant was looked up (package service, Prove)",
		Edits: []Edit{
			{proveFile, `status, message := checkFreshness(reading, true, 0)`, `status, message := checkFreshness(serving.Reading{Status: 1, Epoch: reading.Epoch}, true, 0)`},
		},
		By: unit("shared/frontend", "^TestProofWaitsForTheCheck$"), Dies: `OK, `,
	},
	{
		Name: "proof-of-a-lease-that-is-over",
		Rule: "a lease that is over is not proved (package service, Prove)",
		Edits: []Edit{
			{proveFile, `	case left <= 0:`, `	case left < 0:`},
		},
		By: unit("shared/frontend", "^TestNoProofOfALeaseThatIsOver$"), Dies: `OK, `,
	},
	{
		Name: "proof-file-for-everybody",
		Rule: "only its user may read the file of run --proof-file (package cli, writePrivate)",
		Edits: []Edit{
			{"cmd/holdfast/cli/output.go", `renameio.WithPermissions(0o600)`, `renameio.WithPermissions(0o644)`},
		},
		By: unit("cmd/holdfast/cli", "^TestRunKeepsAProof$"), Dies: `644`,
	},
	{
		Name: "signs-with-a-key-that-nobody-knows",
		Rule: "servers sign with a new key after it was published for a while (package volume, KeysAt)",
		Edits: []Edit{
			{signingFile, `return !now.Before(k.From) })`, `return !now.Before(k.From) || true })`},
		},
		By: unit("shared/volume", "^TestRotateSigning$"), Dies: `the keys are`,
	},
	{
		Name: "old-key-ends-at-once",
		Rule: "what was signed before a rotation counts for 30 days more (package volume, KeysAt)",
		Edits: []Edit{
			{signingFile, `!now.Before(newer.From.Add(SigningKept))`, `!now.Before(newer.From)`},
		},
		By: unit("cmd/holdfast/serve", "^TestServerFollowsARotation$"), Dies: `a ticket of the first key`,
	},
	{
		Name: "old-key-never-ends",
		Rule: "a key ends 30 days after a newer one (package volume, KeysAt)",
		Edits: []Edit{
			{signingFile, `!now.Before(newer.From.Add(SigningKept))`, `!now.Before(newer.From.Add(12 * SigningKept))`},
		},
		By: unit("cmd/holdfast/serve", "^TestServerFollowsARotation$"), Dies: `a ticket of the first key: <nil>`,
	},
	{
		Name: "new-key-not-published",
		Rule: "a rotation puts the new key into keys.json (package volume, RotateSigning)",
		Edits: []Edit{
			{signingFile, `	if err := fsys.SyncDir(layout.SecretsDir); err != nil {
		return k, err
	}
	return k, publishKeys(fsys)`, `	return k, fsys.SyncDir(layout.SecretsDir)`},
		},
		By: unit("shared/volume", "^TestRotateSigning$"), Dies: `keys.json has`,
	},
}
