// SPDX-License-Identifier: Apache-2.0

package mutants

// nameMutants break by which names servers are asked, and by which certificates clients are known.
var nameMutants = []Mutant{
	{
		Name: "origin-of-every-host",
		Rule: "no pattern permits the pages of hosts of strangers (package origins, Check)",
		Edits: []Edit{
			{originsFile, `i >= 0 && (len(name) < i+3 || name[i+1] != '.')`, `i >= 0 && name == ""`},
		},
		By: unit("shared/frontend/origins", "^TestCheck$"), Dies: `"http://\*:3000": <nil>|"http://\*": <nil>|"https://a\.example\.com\*": <nil>`,
	},
	{
		Name: "host-by-a-wildcard",
		Rule: "a wildcard of an origin opens no host (package origins, knows)",
		Edits: []Edit{
			{originsFile, `		return name == host && !strings.Contains(name, "*")`, `		ok, _ := path.Match(name, host)
		return ok`},
		},
		By: unit("shared/frontend/origins", "^TestHost$"), Dies: `host:evil\.org:7601 origin: ok:false\}: <nil>`,
	},
	{
		Name: "host-by-an-origin",
		Rule: "the origin of a page opens no host (package origins, Host)",
		Edits: []Edit{
			{originsFile, `|| p.knows(host) {`, `|| p.knows(host) || p.permits(r) {`},
		},
		By: unit("shared/frontend/origins", "^TestHost$"), Dies: `origin:http://evil\.org:3000 ok:false\}: <nil>`,
	},
	{
		Name: "brackets-are-a-class",
		Rule: "the brackets of an address are no wildcard (package origins, matches)",
		Edits: []Edit{
			{originsFile, `strings.ReplaceAll(pattern, "[", ` + "`\\[`" + `)`, `strings.ReplaceAll(pattern, "[", "[")`},
		},
		By: unit("shared/frontend/origins", "^TestPageOfAnAddress$"), Dies: `"http://\[::1\]:3000"`,
	},
	{
		Name: "full-name-of-another",
		Rule: "the DNS gives a server no name but its own with a domain (package serve, fullName)",
		Edits: []Edit{
			{"cmd/holdfast/serve/names.go", `!strings.HasPrefix(full, strings.ToLower(name)+".")`, `full == strings.ToLower(name)`},
		},
		By: unit("cmd/holdfast/serve", "^TestFullName$"), Dies: `"bank\.example\." makes it`,
	},
	{
		Name: "full-name-asked-for-once",
		Rule: "the DNS may come after the server (package serve, learnFullName)",
		Edits: []Edit{
			{"cmd/holdfast/serve/names.go", `		if full != "" {
			known(full)
			return
		}
`, `		if full != "" {
			known(full)
		}
		if true {
			return
		}
`},
		},
		By: unit("cmd/holdfast/serve", "^TestFullNameIsLookedForAgain$"), Dies: `"", after 1 look-ups`,
	},
	{
		Name: "full-name-not-in-the-certificate",
		Rule: "a server's certificate has the full name of its host (package serve, certify)",
		Edits: []Edit{
			{"cmd/holdfast/serve/clienttls.go", ` && c.named == len(names)) {`, `) {`},
		},
		By: unit("cmd/holdfast/serve", "^TestCertificateIsMadeDaily$"), Dies: `with the full name`,
	},
	{
		Name: "full-name-not-known",
		Rule: "a server may be asked by the full name of its host (package serve, learnName)",
		Edits: []Edit{
			{"cmd/holdfast/serve/names.go", `		opt.Live.pages.Know(c.known())
`, ``},
		},
		By: unit("cmd/holdfast/serve", "^TestNamesOfAServer$"), Dies: `the name with its domain: 403`,
	},
	{
		Name: "certificate-not-shown",
		Rule: "a certificate is shown to a server that asks for one (package join, Dialer)",
		Edits: []Edit{
			{"clientlib/join/trust.go", `		if t.certificate != nil {`, `		if t.certificate == nil {`},
		},
		By: unit("clientlib/join", "^TestCertificateIsShown$"), Dies: `it is known: "nobody"`,
	},
	{
		Name: "certificate-kept",
		Rule: "a certificate is read for each handshake (package join, CertificateFiles)",
		Edits: []Edit{
			{certificateFile, `	return func() (*tls.Certificate, error) {
		chain,`, `	return sync.OnceValues(func() (*tls.Certificate, error) {
		chain,`},
			{certificateFile, `		return &pair, nil
	}
}`, `		return &pair, nil
	})
}`},
			{certificateFile, `	"os"
`, `	"os"
	"sync"
`},
		},
		By: unit("clientlib/join", "^TestCertificateFilesAreReadAgain$"), Dies: `want second`,
	},
	{
		Name: "renewal-not-followed",
		Rule: "a connection ends when its certificate was renewed: the server knows it by the old one (package join, renew)",
		Edits: []Edit{
			{certificateFile, `leaf.NotAfter.After(c.shown.NotAfter)`, `leaf.NotAfter.After(c.shown.NotAfter) && leaf.IsCA`},
		},
		By: unit("clientlib/join", "^TestConnectionsFollowARenewal$"), Dies: `it ends after`,
	},
	{
		Name: "renewal-for-nothing",
		Rule: "a connection stays while there is no other certificate (package join, renew)",
		Edits: []Edit{
			{certificateFile, `leaf.NotAfter.After(c.shown.NotAfter)`, `!leaf.NotAfter.Before(c.shown.NotAfter)`},
		},
		By: unit("clientlib/join", "^TestConnectionsFollowARenewal$"), Dies: `it ends after`,
	},
	{
		Name: "refused-certificate-untold",
		Rule: "who is refused for his certificate learns that, and not only that the connection ended (package join, explain)",
		Edits: []Edit{
			{certificateFile, `	if err == nil || c.heard.Load() || c.ended.Load() {
		return err
`, `	if err == nil || c.shown != nil {
		return err
`},
		},
		By: unit("clientlib/join", "^TestCertificateIsShown$"), Dies: `it has expired: `,
	},
	{
		Name: "ticket-over-a-certificate",
		Rule: "a ticket that a client makes itself does not stand for its certificate (package credential, FromEnvironment)",
		Edits: []Edit{
			{"clientlib/credential/credential.go", `hasCertificate(ctx); has || err != nil {`, `hasCertificate(ctx); has && err != nil {`},
		},
		By: unit("clientlib/credential", "^TestBesideACertificate$"), Dies: `beside one: "hft_ticket"`,
	},
	{
		Name: "library-without-a-certificate",
		Rule: "the library shows the certificate of its options (package clientlib, complete)",
		Edits: []Edit{
			{"clientlib/options.go", `	o.trust.Show(o.Certificate)
`, ``},
		},
		By: unit("cmd/holdfast/serve", "^TestCertificatesOfAServer$"), Dies: `the library: `,
	},
	{
		Name: "command-without-a-certificate",
		Rule: "a command shows the certificate of its flags (package cli, certificate)",
		Edits: []Edit{
			{"cmd/holdfast/cli/login.go", `cmp.Or(a.cert, a.Getenv(name))`, `cmp.Or("", a.Getenv(name))`},
		},
		By: unit("cmd/holdfast/cli", "^TestClientConfiguration$"), Dies: `a certificate without its key: no `,
	},
}

const (
	originsFile     = "shared/frontend/origins/origins.go"
	certificateFile = "clientlib/join/certificate.go"
)
