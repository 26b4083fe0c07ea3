// SPDX-License-Identifier: Apache-2.0

package mutants

const (
	loginFile     = "cmd/holdfast/fslogin/fslogin.go"
	loginPkg      = "cmd/holdfast/fslogin"
	accountsPkg   = "cmd/holdfast/accounts"
	clientLogins  = "clientlib/login"
	challengeFile = authPkg + "/challenge.go"
)

// loginMutants break the login by the filesystem.
var loginMutants = []Mutant{
	{
		Name: "login-by-a-file",
		Rule: "only a directory proves who one is: files can be hard-linked (package fslogin, judge)",
		Edits: []Edit{
			{loginFile, `case o.Type != vfs.TypeDir:`, `case o.Nlink == 0:`},
		},
		By: unit(loginPkg, "^TestAttacks$"), Dies: `want a refusal that says "that is no directory"`,
	},
	{
		Name: "login-by-any-mode",
		Rule: "a directory that others may write to can be moved in (package fslogin, judge)",
		Edits: []Edit{
			{loginFile, `case o.Mode != 0o700:`, `case o.Mode&0o700 != 0o700:`},
		},
		By: unit(loginPkg, "^TestAttacks$"), Dies: `want a refusal that says "has mode 0777"`,
	},
	{
		Name: "login-of-root",
		Rule: "root is root of any host (package fslogin, judge)",
		Edits: []Edit{
			{loginFile, `case o.UID == 0:`, `case o.UID == 1:`},
		},
		By: unit(loginPkg, "^TestAttacks$"), Dies: `want a refusal that says "belongs to root"`,
	},
	{
		Name: "login-of-nobody",
		Rule: "nobody is many users (package accounts, Of)",
		Edits: []Edit{
			{accountsPkg + "/accounts.go", `if isNobody(uid) {`, `if isNobody(uid) && uid == 0 {`},
		},
		By: unit(accountsPkg, "^TestOf$"), Dies: `want error`,
	},
	{
		Name: "login-with-subdirectories",
		Rule: "a directory of a login is new, and so empty (package fslogin, judge)",
		Edits: []Edit{
			{loginFile, `case o.Nlink > 2:`, `case o.Nlink > 3:`},
		},
		By: unit(loginPkg, "^TestAttacks$"), Dies: `want a refusal that says "has directories in it"`,
	},
	{
		Name: "login-by-an-old-directory",
		Rule: "a directory that is older than its name proves nothing (package fslogin, prove)",
		Edits: []Edit{
			{loginFile, `if after.Changed.Sub(made.Made) > time.Since(given)+l.slack {`, `if after.Changed.Sub(made.Made) > time.Hour {`},
		},
		By: unit(loginPkg, "^TestOlderDirectory$"), Dies: `want a refusal that says "older than its name"`,
	},
	{
		Name: "login-without-the-removal",
		Rule: "who does not remove the directory issues no ticket, so one directory is one ticket (package fslogin, prove)",
		Edits: []Edit{
			{loginFile, `if err := l.fs.Remove(name); err != nil {`, `if err := l.fs.Remove(name); err != nil && made.UID == 0 {`},
		},
		By: unit(loginPkg, "^TestAttacks$"), Dies: `want a refusal that says "cannot be removed"`,
	},
	{
		Name: "login-in-any-directory",
		Rule: "where others could move what is in login/, nobody logs in (package fslogin, checkLogin)",
		Edits: []Edit{
			{loginFile, ` || login.Mode != osfs.LoginMode || login.UID != secrets.UID {`, ` || login.UID != secrets.UID {`},
		},
		By: unit(loginPkg, "^TestLoginDirectory$"), Dies: `want a refusal that says "not a directory of mode 1733"`,
	},
	{
		Name: "login-in-a-directory-of-another",
		Rule: "login/ belongs to the service, or its owner moves what is in it (package fslogin, checkLogin)",
		Edits: []Edit{
			{loginFile, ` || login.UID != secrets.UID {`, ` || secrets.Mode == 0 {`},
		},
		By: unit(loginPkg, "^TestLoginDirectory$"), Dies: `want a refusal that says "to the owner of secrets/"`,
	},
	{
		Name: "login-twice",
		Rule: "a challenge counts once (package fslogin, use)",
		Edits: []Edit{
			{loginFile, `if _, ok := l.used[nonce]; ok {`, `if _, ok := l.used[nonce]; ok && nonce == "" {`},
		},
		By: unit(loginPkg, "^TestChallenge$"), Dies: `want a refusal that says "used already"`,
	},
	{
		Name: "login-late",
		Rule: "a challenge counts for 30 seconds (package auth, OpenChallenge)",
		Edits: []Edit{
			{challengeFile, `if age > ChallengeTime || age < -ClockSlack {`, `if age < -ClockSlack {`},
		},
		By: unit(loginPkg, "^TestLate$"), Dies: `31s after: `,
	},
	{
		Name: "ticket-is-a-challenge",
		Rule: "what the same key signed for another purpose is no challenge (package auth, OpenChallenge)",
		Edits: []Edit{
			{challengeFile, `g.signer.Load().keyOf(challengeType)); err != nil || m.ID == "" {`, `g.signer.Load().keyOf(ticketType)); err != nil || m.ID == "" {`},
		},
		By: unit(loginPkg, "^TestLogin$"), Dies: `no challenge of a login`,
	},
	{
		Name: "login-waits-for-the-volume",
		Rule: "a volume that hangs takes a few goroutines only (package fslogin, Finish)",
		Edits: []Edit{
			{loginFile, `		defer func() { <-l.work }()
		ticket, c, err :=`, `		<-l.work
		ticket, c, err :=`},
		},
		By: unit(loginPkg, "^TestHangingVolume$"), Dies: `0 use the volume, want 8`,
	},
	{
		Name: "login-fails-for-ever",
		Rule: "failed logins of an address are bounded (package service, Login)",
		Edits: []Edit{
			{servicePkg + "/login.go", `	case s.opt.Failures.many(serving.RemoteOf(ctx)):`, `	case s.opt.Failures.many(nil):`},
		},
		By: unit(servicePkg, "^TestFailuresAreBounded$"), Dies: `one more login: `,
	},
	{
		Name: "login-believes-the-cache",
		Rule: "a name that is denied is asked for again behind a listing (package fslogin, find)",
		Edits: []Edit{
			{loginFile, `	if _, err := l.fs.SomeNames(volume.LoginDir, 1); err != nil {
		return o, err
	}
	return l.fs.Owner(name)`, `	return o, err`},
		},
		By: unit(loginPkg, "^TestCachedDenial$"), Dies: `after 0 listings`,
	},
	{
		Name: "login-at-any-server",
		Rule: "a client makes directories only for servers that have proved to be of the volume's cluster (package login, proved)",
		Edits: []Edit{
			{clientLogins + "/login.go", `!ok || join.ClusterOf(s) == "" {`, `!ok && s.Version != 0 {`},
		},
		By: unit(clientLogins, "^TestProved$"), Dies: `plain text: `,
	},
	{
		Name: "connection-before-credential",
		Rule: "a credential that is shown counts before what the connection says (package service, Authenticate)",
		Edits: []Edit{
			{"shared/frontend/service/permit.go", `if credential != "" {`, `if credential != "" && c == nil {`},
		},
		By: unit("shared/frontend", "^TestCredentialBeforeConnection$"), Dies: `is user:alice, want user:bob`,
	},
	{
		Name: "login-overheard",
		Rule: "a ticket is not issued over plain text to another host (package service, Login)",
		Edits: []Edit{
			{"shared/serving/caller.go", `return ok && PlainTCP(a) && !tcp.IP.IsLoopback()`, `return ok && PlainTCP(a) && tcp.IP == nil`},
		},
		By: unit("shared/frontend", "^TestLoginInPlainText$"), Dies: `plain text: `,
	},
	{
		Name: "socket-of-anybody",
		Rule: "who cannot be found out has no identity by the socket (package serve, identify)",
		Edits: []Edit{
			{"cmd/holdfast/serve/socket.go", `uid, groups); err == nil {`, `uid, groups); a.Identity != "" {`},
		},
		By: unit("cmd/holdfast/serve", "^TestSocketOfNobody$"), Dies: `user:me`,
	},
	{
		Name: "login-at-another-volume",
		Rule: "a client makes the directory in the volume that it opened, wherever its path leads by now (package login, makeDirectory)",
		Edits: []Edit{
			{clientLogins + "/mkdir_linux.go", `int(volume.Fd()), directory, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC`, `unix.AT_FDCWD, root.Name()+"/"+directory, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC`},
		},
		By: unit(clientLogins, "^TestOtherVolume$"), Dies: `by a link: `,
	},
	{
		Name: "any-certificate",
		Rule: "a client's certificate has to be of an authority of --client-ca (package clientport, ServeTLS)",
		Edits: []Edit{
			{"shared/frontend/clientport/tls.go", `wants = tls.VerifyClientCertIfGiven`, `wants = tls.RequestClientCert`},
			{"shared/frontend/clientport/tls.go", `if verified := s.ConnectionState().VerifiedChains; len(verified) > 0 {`, `if verified := [][]*x509.Certificate{s.ConnectionState().PeerCertificates}; len(verified[0]) > 0 {`},
		},
		By: unit("shared/frontend/clientport", "^TestClientCertificateThatIsRefused$"), Dies: `foreign: `,
	},
	{
		Name: "certificate-for-ever",
		Rule: "who is known by a certificate is so until it expires (package clientport, CallerOf)",
		Edits: []Edit{
			{"shared/frontend/clientport/tls.go", `Issued: c.NotBefore, Expires: c.NotAfter}`, `Issued: c.NotBefore}`},
		},
		By: unit("shared/frontend/clientport", "^TestClientCertificate$"), Dies: `want cert:db`,
	},
	{
		Name: "certificate-from-outside-for-the-library",
		Rule: "clients that name no server get the volume's own certificate (package clientport, certificate)",
		Edits: []Edit{
			{"shared/frontend/clientport/tls.go", `case hello.ServerName == "" || hello.Supports`, `case hello.Supports`},
		},
		By: unit("shared/frontend/clientport", "^TestWhichCertificate$"), Dies: `"" gets the other one`,
	},
	{
		Name: "outside-forgets",
		Rule: "where new certificates from outside are no good, the old ones stay (package serve, read)",
		Edits: []Edit{
			{"cmd/holdfast/serve/outside.go", `	var leaf *tls.Certificate
`, `	var leaf *tls.Certificate
	o.leaf = nil
`},
		},
		By: unit("cmd/holdfast/serve", "^TestOutside$"), Dies: `half of the next: `,
	},
	{
		Name: "login-by-what-is-there",
		Rule: "a client takes no directory that is there already (package login, makeDirectory)",
		Edits: []Edit{
			{clientLogins + "/mkdir_linux.go", `if err := unix.Mkdirat(login, nonce, 0o700); err != nil {`, `if err := unix.Mkdirat(login, nonce, 0o700); err != nil && err != unix.EEXIST {`},
		},
		By: unit(clientLogins, "^TestMakeDirectory$"), Dies: `what is there is taken`,
	},
}
