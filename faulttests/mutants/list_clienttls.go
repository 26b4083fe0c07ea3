// SPDX-License-Identifier: Apache-2.0

package mutants

const joinPkg = "clientlib/join"

// clientTLSMutants break TLS between clients and servers.
var clientTLSMutants = []Mutant{
	{
		Name: "handshake-holds-its-place",
		Rule: "a handshake that waits for its client keeps no other from computing (package conns, Computing)",
		Edits: []Edit{
			{"shared/conns/computing.go", `	c.Without(func() { n, err = c.Conn.Read(b) })
	return n, err`, `	return c.Conn.Read(b)`},
		},
		By: unit(portPkg, "^TestSlowHandshakesKeepNobodyOut$"), Dies: `it was taken after`,
	},
	{
		Name: "handshake-unbounded",
		Rule: "a handshake has five seconds (package clientport, inside)",
		Edits: []Edit{
			{portPkg + "/tls.go", `		_ = c.SetDeadline(t)
`, ``},
		},
		By: unit(portPkg, "^TestHandshakesAreBounded$"), Dies: `silent connections`,
	},
	{
		Name: "agreed-protocol-ignored",
		Rule: "what both sides agreed on in the handshake is what is spoken (package clientport, inside)",
		Edits: []Edit{
			{portPkg + "/tls.go", `	case protocolHTTP:
		class = HTTP
`, ``},
		},
		By: unit(portPkg, "^TestInsideTLS$"), Dies: `says one, speaks another: class 0`,
	},
	{
		Name: "plain-text-taken",
		Rule: "where TLS is required, plain text of other hosts is refused (package clientport, refusesPlain)",
		Edits: []Edit{
			{portPkg + "/plain.go", `		return !a.IP.IsLoopback()`, `		return a == nil`},
		},
		By: unit(portPkg, "^TestPlainTextIsRefused$"), Dies: `is told nothing`,
	},
	{
		Name: "own-host-refused",
		Rule: "where TLS is required, plain text of this host is taken (package clientport, refusesPlain)",
		Edits: []Edit{
			{portPkg + "/plain.go", `		return !a.IP.IsLoopback()`, `		return a != nil`},
		},
		By: unit(portPkg, "^TestPlainTextIsRefused$"), Dies: `no front end has a connection`,
	},
	{
		Name: "any-authority-trusted-by-pin",
		Rule: "by a join string, only the authority with its pin is trusted (package join, verify)",
		Edits: []Edit{
			{joinPkg + "/trust.go", `if Pin(c) == t.pin && c.IsCA {`, `if c.IsCA {`},
		},
		By: unit(joinPkg, "^TestTrust$"), Dies: `another cluster's: <nil>, want "has the pin`,
	},
	{
		Name: "any-authority-trusted-by-path",
		Rule: "by a path, only the authority of the volume is trusted (package join, verify)",
		Edits: []Edit{
			{joinPkg + "/trust.go", `	roots.AddCert(ca)`, `	roots.AddCert(cs.PeerCertificates[len(cs.PeerCertificates)-1])`},
		},
		By: unit(joinPkg, "^TestTrust$"), Dies: `another cluster's: .*want "not signed by`,
	},
	{
		Name: "any-name-trusted",
		Rule: "a server has the name of its cluster (package join, verify)",
		Edits: []Edit{
			{joinPkg + "/trust.go", `		err = leaf.VerifyHostname(name)`, `		_ = leaf.VerifyHostname(name)`},
		},
		By: unit(joinPkg, "^TestTrust$"), Dies: `another cluster's name: <nil>`,
	},
	{
		Name: "back-to-plain-text",
		Rule: "a client that knows the authority never speaks plain text (package join, Plain)",
		Edits: []Edit{
			{joinPkg + "/trust.go", `	if t.outside || t.pin != "" || t.ca.Load() != nil {`, `	if t.outside || t.pin != "" {`},
		},
		By: unit(joinPkg, "^TestVolumeGetsAnAuthority$"), Dies: `plain text, and there was an authority`,
	},
	{
		Name: "exposed-secret-used",
		Rule: "a key that others may read is refused (package volume, readSecret)",
		Edits: []Edit{
			{"shared/volume/authority.go", `		case info.Mode&0o077 != 0:`, `		case info.Mode&0o077 == 0o777:`},
		},
		By: unit("shared/volume", "^TestExposedSecretsAreRefused$"), Dies: `is exposed: `,
	},
	{
		Name: "authority-not-durable",
		Rule: "an authority that is offered is durable (package volume, OfferTLS)",
		Edits: []Edit{
			{"shared/volume/authority.go", `	if err := fsys.SyncDir(layout.SecretsDir); err != nil {
		return a, err
	}
`, ``},
		},
		By: unit("shared/volume", "^TestInterruptedOfferIsFinishedByTheNext$"), Dies: `ca.crt is not what belongs to secrets/ca.key`,
	},
	{
		Name: "leaked-authority-vouches",
		Rule: "an authority that replaces a leaked one rests on nothing of it (package volume, RotateAuthority)",
		Edits: []Edit{
			{"shared/volume/authority.go", `		if leaked && !bytes.Equal(a.Key, drawn.Key) {`, `		if leaked && a.Key == nil {`},
		},
		By: unit("shared/volume", "^TestTwoRotationsAgree$"), Dies: `the leaked authority vouches for the new one`,
	},
	{
		Name: "rotated-twice",
		Rule: "a rotation that was interrupted is completed, not begun again (package volume, RotateAuthority)",
		Edits: []Edit{
			{"shared/volume/authority.go", `		if !leaked && !bytes.Equal(public, old.Certificate) {`, `		if !leaked && public == nil {`},
		},
		By: unit("cmd/holdfast/cli", "^TestSecureRotateCA$"), Dies: `a repeated call makes another authority`,
	},
	{
		Name: "published-before-servers-follow",
		Rule: "ca.crt is written when all servers that run use the new authority (package cli, rotateAuthority)",
		Edits: []Edit{
			{"cmd/holdfast/cli/secure.go", `if err := a.awaitAuthority(ctx, c, issuer.Certificate()); err != nil {`, `if err := ctx.Err(); err != nil {`},
		},
		By: unit("cmd/holdfast/cli", "^TestRotationWaitsForServers$"), Dies: `the server was asked 0 times`,
	},
	{
		Name: "vouches-for-ever",
		Rule: "an authority vouches for the next one for a year (package certs, Succeed)",
		Edits: []Edit{
			{"cmd/holdfast/certs/certs.go", `NotAfter: now.Add(Vouched)`, `NotAfter: now.Add(10 * Vouched)`},
		},
		By: unit(joinPkg, "^TestAuthoritySucceeds$"), Dies: `after a year: <nil>`,
	},
	{
		Name: "old-authority-for-life",
		Rule: "a client by path finds the authority that replaced the one that it knows (package join, verify)",
		Edits: []Edit{
			{joinPkg + "/trust.go", `		t.look() // there may be`, `		// there may be`},
		},
		By: unit(joinPkg, "^TestVolumeGetsAnotherAuthority$"), Dies: `not signed by the authority`,
	},
	{
		Name: "private-volume-is-not",
		Rule: "nobody but the servers' user may look into a private volume (package cli, makeVolume)",
		Edits: []Edit{
			{"cmd/holdfast/cli/volume.go", `os.Chmod(dir, 0o700)`, `os.Chmod(dir, 0o755)`},
		},
		By: unit("cmd/holdfast/cli", "^TestInitPrivate$"), Dies: `private, there before is`,
	},
	{
		Name: "server-goes-back-to-an-authority",
		Rule: "a server never goes back to an earlier authority (package serve, lookForAuthority)",
		Edits: []Edit{
			{"cmd/holdfast/serve/clienttls.go", `	case n <= c.number:`, `	case n == c.number:`},
		},
		By: unit("cmd/holdfast/serve", "^TestCertificateIsMadeDaily$"), Dies: `before a day has passed: .*no certificate authority`,
	},
	{
		Name: "outside-says-its-cluster",
		Rule: "a server with a certificate from outside proves nothing about its cluster (package join, verify)",
		Edits: []Edit{
			{joinPkg + "/trust.go", `		if clusterName(leaf) != ServerName(noCluster) {`, `		if leaf == nil {`},
		},
		By: unit(joinPkg, "^TestOutside$"), Dies: `they say: <nil>`,
	},
	{
		Name: "outside-without-a-name",
		Rule: "a certificate from outside is for the name that is dialed (package join, Dialer)",
		Edits: []Edit{
			{joinPkg + "/trust.go", `	if t.outside {
		c.ServerName`, `	if c.InsecureSkipVerify = true; t.outside {
		c.ServerName`},
		},
		By: unit(joinPkg, "^TestOutside$"), Dies: `another name: <nil>`,
	},
	{
		Name: "forwards-fall-back",
		Rule: "where TLS is required, servers forward over TLS only (package serve, dial)",
		Edits: []Edit{
			{"cmd/holdfast/serve/clienttls.go", ` && !c.required.Load() {
		return plain`, ` {
		return plain`},
		},
		By: unit("cmd/holdfast/serve", "^TestForwardDials$"), Dies: `where TLS is required: plain`,
	},
}
