// SPDX-License-Identifier: Apache-2.0

package mutants

const (
	peertlsPkg  = "cmd/holdfast/node/peertls"
	peergrpcPkg = "cmd/holdfast/node/peergrpc"
)

// peertlsMutants break what servers know of each other.
var peertlsMutants = []Mutant{
	{
		Name: "any-key-is-dialed",
		Rule: "who dials a server wants a key of that server (PROTOCOL 20.1)",
		Edits: []Edit{{peertlsPkg + "/handshake.go", `		return k.check(c.to, key, k.dials)`, `		_ = key
		return nil`}},
		By: unit(peertlsPkg, "^TestStrangersAreToldApart$"), Dies: `was taken for it`,
	},
	{
		Name: "any-member-is-dialed",
		Rule: "who dials a server wants a key of that very server (PROTOCOL 20.1)",
		Edits: []Edit{
			{peertlsPkg + "/handshake.go", `		_, key, err := keyOf(cs)`, `		id, key, err := keyOf(cs)`},
			{peertlsPkg + "/handshake.go", `		return k.check(c.to, key, k.dials)`, `		return k.check(id, key, k.dials)`},
		},
		By: unit(peertlsPkg, "^TestServersKnowEachOther$"), Dies: `server 3 was taken for server 2`,
	},
	{
		Name:  "any-key-is-accepted",
		Rule:  "who accepts a server wants its key to be on the volume (PROTOCOL 20.1)",
		Edits: []Edit{{peertlsPkg + "/handshake.go", `from, err = id, k.check(id, key, k.accepts)`, `from, _ = id, key`}},
		By:    unit(peertlsPkg, "^TestStrangersAreToldApart$"), Dies: `a stranger was accepted`,
	},
	{
		Name:  "unproven-unbounded",
		Rule:  "connections that have not proved who they are, are few (package peertls, unproven)",
		Edits: []Edit{{peertlsPkg + "/unproven.go", `	if len(u.all) > maxUnproven {`, `	if len(u.all) > 100*maxUnproven {`}},
		By:    unit(peertlsPkg, "^TestSilentConnectionsAreFew$"), Dies: `\d+ connections are open`,
	},
	{
		Name:  "look-up-holds-a-place",
		Rule:  "a handshake that waits for the volume keeps no other from computing (package peertls, ServerHandshake)",
		Edits: []Edit{{peertlsPkg + "/handshake.go", `computing.Without(func() { from, err = id, k.check(id, key, k.accepts) })`, `from, err = id, k.check(id, key, k.accepts)`}},
		By:    unit(peertlsPkg, "^TestVolumeHangs$"), Dies: `while others are looked for: .* after [1-9]`,
	},
	{
		Name:  "many-of-one-address-push-others-out",
		Rule:  "of connections that have not proved who they are, one of the address that has the most goes (package peertls, most)",
		Edits: []Edit{{peertlsPkg + "/unproven.go", `if oldest == nil || of[x.from] > of[oldest.from] {`, `if oldest == nil {`}},
		By:    unit(peertlsPkg, "^TestSilentConnectionsAreFew$"), Dies: `the only one of its address was closed`,
	},
	{
		Name:  "stranger-is-a-server",
		Rule:  "a stranger is let in where strangers are answered, and nowhere else (PROTOCOL 20.4)",
		Edits: []Edit{{peertlsPkg + "/handshake.go", `	case stranger && err == nil:`, `	case stranger && err == nil && from == 0:`}},
		By:    unit(peertlsPkg, "^TestStrangersAreToldApart$"), Dies: `a stranger was accepted`,
	},
	{
		Name:  "strangers-without-number",
		Rule:  "strangers have few places (PROTOCOL 20.4)",
		Edits: []Edit{{peertlsPkg + "/handshake.go", `	maxStrangers = 8`, `	maxStrangers = 80`}},
		By:    unit(peertlsPkg, "^TestStrangersAreFew$"), Dies: `the ninth stranger has a place`,
	},
	{
		Name:  "silent-stranger-stays",
		Rule:  "strangers stay for a short time (PROTOCOL 20.4)",
		Edits: []Edit{{peertlsPkg + "/handshake.go", `	strangerLife = 5 * time.Second`, `	strangerLife = 5 * time.Hour`}},
		By:    unit(peertlsPkg, "^TestSilentStrangerLeaves$"), Dies: `it stays for`,
	},
	{
		Name: "emptied-volume-disowns",
		Rule: "a volume on which a server does not find its own key makes nobody a stranger (PROTOCOL 20.4)",
		Edits: []Edit{{peertlsPkg + "/keys.go", `	case !own:
		return errNoAnswer
`, `	case !own:
		return errUnknown
`}},
		By: unit(peertlsPkg, "^TestEmptiedVolumeSaysNothing$"), Dies: `got `,
	},
	{
		Name:  "stranger-is-heard",
		Rule:  "what a stranger says counts for nothing (PROTOCOL 20.4)",
		Edits: []Edit{{peergrpcPkg + "/server.go", `HandlePing(election.Ping{From: cluster.ServerID(q.GetFrom()), Stranger: true, Seq: q.GetSeq()})`, `HandlePing(pingOf(q))`}},
		By:    unit(peergrpcPkg, "^TestStrangerIsToldAndNotHeard$"), Dies: `messages of a stranger were heard`,
	},
	{
		Name:  "stranger-unanswered",
		Rule:  "a stranger learns what the primary has, so that it sees that it has a copy (PROTOCOL 20.4)",
		Edits: []Edit{{peergrpcPkg + "/server.go", `HandlePing(election.Ping{From: cluster.ServerID(q.GetFrom()), Stranger`, `HandlePing(election.Ping{Stranger`}},
		By:    unit(peergrpcPkg, "^TestStrangerIsToldAndNotHeard$"), Dies: `the elector hears`,
	},
	{
		Name:  "elector-hears-strangers",
		Rule:  "what a stranger says counts for nothing (PROTOCOL 20.4)",
		Edits: []Edit{{"election/heartbeat.go", `		if !p.Stranger {`, `		if !p.Stranger || p.From > 0 {`}},
		By:    unit("election", "^TestStrangerIsAnsweredAsTheServer$"), Dies: `a stranger counts`,
	},
	{
		Name: "stranger-without-a-key-untold",
		Rule: "a server on a copy of the volume learns that it is a stranger (PROTOCOL 20.4)",
		Edits: []Edit{{peergrpcPkg + "/server.go", `	r.Stranger = true
`, ``}},
		By: unit(peergrpcPkg, "^TestStrangerIsToldAndNotHeard$"), Dies: `it does not learn that it is a stranger`,
	},
	{
		Name: "key-that-shows-late-unseen",
		Rule: "a stranger's key is looked for again (PROTOCOL 20.4)",
		Edits: []Edit{
			{peergrpcPkg + "/server.go", `MaxConnectionAge: time.Second, MaxConnectionAgeGrace: time.Second`, `MaxConnectionAge: time.Hour`},
			// A connection that is cut is followed by another one, too, only later.
			{peertlsPkg + "/handshake.go", `	strangerLife = 5 * time.Second`, `	strangerLife = 5 * time.Hour`},
		},
		By: unit(peergrpcPkg, "^TestStrangerIsKnownSoon$"), Dies: `its pings fail`,
	},
	{
		Name:  "disowned-takes-over",
		Rule:  "a server whose key another one does not find neither votes nor takes over (PROTOCOL 20.4)",
		Edits: []Edit{{"cmd/holdfast/node/node.go", `	if _, age := n.disowned(); age > 0 {`, `	if _, age := n.disowned(); age < 0 {`}},
		By:    unit("cmd/holdfast/node", "^TestServerThatIsDisownedIsNotAble$"), Dies: `able true`,
	},
	{
		Name:  "disowned-for-ever",
		Rule:  "who disowned a server for a moment only, and has ended, does not keep it out (PROTOCOL 20.4)",
		Edits: []Edit{{peertlsPkg + "/keys.go", `	return now.Sub(d.last) < soonKnown || d.last.Sub(d.first) >= settled`, `	return true`}},
		By:    unit(peertlsPkg, "^TestDisownedByOneThatHasEnded$"), Dies: `an hour later by 2`,
	},
	{
		Name:  "disowned-while-it-is-said",
		Rule:  "a server on a copy does not forget that when the others have ended (PROTOCOL 20.4)",
		Edits: []Edit{{peertlsPkg + "/keys.go", `	return now.Sub(d.last) < soonKnown || d.last.Sub(d.first) >= settled`, `	return now.Sub(d.last) < soonKnown`}},
		By:    unit(peertlsPkg, "^TestDisownedByOneThatHasEnded$"), Dies: `an hour later by 0`,
	},
	{
		Name:  "disowned-by-plain-text",
		Rule:  "that a server is a stranger is believed of servers only (PROTOCOL 20.4)",
		Edits: []Edit{{peergrpcPkg + "/peergrpc.go", `!info.Plain {`, `!info.Plain || r.GetStranger() {`}},
		By:    unit(peergrpcPkg, "^TestServerOfAnOlderVersion$"), Dies: `was believed`,
	},
	{
		Name:  "sender-not-compared",
		Rule:  "a message comes from the server that it names (PROTOCOL 20.1)",
		Edits: []Edit{{peertlsPkg + "/handshake.go", `	case info.Server == 0 || info.Server != from:`, `	case info.Server == 0:`}},
		By:    unit(peergrpcPkg, "^TestMessagesComeFromTheirSender$"), Dies: `in the name of server 3`,
	},
	{
		Name: "push-of-anybody",
		Rule: "a push comes from the server that it names (PROTOCOL 20.1)",
		Edits: []Edit{{peergrpcPkg + "/server.go", `		if err := s.admit(stream.Context(), q.GetClusterId(), q.GetFrom()); err != nil {`,
			`		if err := s.admitCluster(q.GetClusterId()); err != nil {`}},
		By: unit(peergrpcPkg, "^TestMessagesComeFromTheirSender$"), Dies: `push in the name of server 3`,
	},
	{
		Name:  "unknown-connection-admitted",
		Rule:  "a message on a connection of which nothing is known is refused (package peertls, Admit)",
		Edits: []Edit{{peertlsPkg + "/handshake.go", `	case info.Server == 0 || info.Server != from:`, `	case info.Server != from:`}},
		By:    unit(peertlsPkg, "^TestAdmit$"), Dies: `a message of server 0 is admitted`,
	},
	{
		Name: "plain-text-for-ever",
		Rule: "where TLS is required, nobody is accepted without (PROTOCOL 20.5)",
		Edits: []Edit{{peertlsPkg + "/keys.go", `	if k.required.Load() {
		return nil, errPlain
	}
`, ``}},
		By: unit(peertlsPkg, "^TestPlainTextEnds$"), Dies: `a new connection in plain text`,
	},
	{
		Name:  "plain-text-lives-on",
		Rule:  "connections in plain text are closed when TLS is required (PROTOCOL 20.5)",
		Edits: []Edit{{peertlsPkg + "/keys.go", `		c.Conn.Close() //nolint:errcheck // the other side may have closed it`, `		_ = c`}},
		By:    unit(peertlsPkg, "^TestPlainTextEnds$"), Dies: `deadlock`,
	},
	{
		Name:  "plain-message-admitted",
		Rule:  "a message in plain text is refused once TLS is required, however it came (PROTOCOL 20.5)",
		Edits: []Edit{{peertlsPkg + "/handshake.go", `	case info.Plain && !k.required.Load():`, `	case info.Plain && k != nil:`}},
		By:    unit(peertlsPkg, "^TestPlainTextEnds$"), Dies: `a message that came on it is admitted`,
	},
	{
		Name:  "plain-text-dialed",
		Rule:  "where TLS is required, nobody is dialed without (PROTOCOL 20.5)",
		Edits: []Edit{{peertlsPkg + "/handshake.go", `!plain || k.required.Load() {`, `!plain {`}},
		By:    unit(peertlsPkg, "^TestPlainTextAfterTLS$"), Dies: `TLS required true`,
	},
	{
		Name:  "wrong-key-is-plain-text",
		Rule:  "plain text is for servers that know no TLS, not for those with a wrong key (PROTOCOL 20.5)",
		Edits: []Edit{{peertlsPkg + "/handshake.go", `!plain || k.required.Load() {`, `plain == k.required.Load() && plain {`}},
		By:    unit(peertlsPkg, "^TestAttackerCannotDowngrade$"), Dies: `dialed again`,
	},
	{
		Name: "required-forgotten",
		Rule: "that TLS is required is never forgotten (PROTOCOL 20.5)",
		Edits: []Edit{{peertlsPkg + "/keys.go", `	if k.published.Load() {
		if found`, `	if required, err := volume.TLSRequired(k.opt.FS); err == nil {
		k.required.Store(required)
	}
	if k.published.Load() {
		if found`}},
		By: unit(peertlsPkg, "^TestPlainTextEnds$"), Dies: `a process forgets`,
	},
	{
		Name:  "old-tls-between-servers",
		Rule:  "servers speak TLS 1.3 (PROTOCOL 20.1)",
		Edits: []Edit{{peertlsPkg + "/handshake.go", `MinVersion: tls.VersionTLS13,`, `MinVersion: tls.VersionTLS12,`}},
		By:    unit(peertlsPkg, "^TestHandshakesOfOthersAreRefused$"), Dies: `TLS 1.2`,
	},
	{
		Name: "look-up-without-end",
		Rule: "a connection waits a bounded time for the volume (PROTOCOL 20.2)",
		Edits: []Edit{{peertlsPkg + "/keys.go", `	select {
	case err := <-answer:
		return err
	case <-over.C:
		return errNoAnswer
	}
`, `	return <-answer
`}},
		By: unit(peertlsPkg, "^TestVolumeHangs$"), Dies: `deadlock`,
	},
	{
		Name:  "look-ups-without-number",
		Rule:  "few look-ups hang at a time (PROTOCOL 20.2)",
		Edits: []Edit{{peertlsPkg + "/keys.go", `	maxLooks = 4`, `	maxLooks = 400`}},
		By:    unit(peertlsPkg, "^TestVolumeHangs$"), Dies: `look-ups hang at a time`,
	},
	{
		Name: "known-key-looked-up",
		Rule: "processes that know each other need no volume (PROTOCOL 20.2)",
		Edits: []Edit{{peertlsPkg + "/keys.go", `	if k.knows(id, key) {
		return nil
	}
`, ``}},
		By: unit(peertlsPkg, "^TestVolumeHangs$"), Dies: `processes that know each other`,
	},
	{
		Name: "key-offered-early",
		Rule: "a server offers its key when its file is durable, not before (PROTOCOL 20.3)",
		Edits: []Edit{{peertlsPkg + "/keys.go", `	if err := volume.WriteKey(`, `	k.published.Store(true)
	if err := volume.WriteKey(`}},
		By: unit(peertlsPkg, "^TestKeyCannotBeWritten$"), Dies: `it dialed with a key that is not on the volume`,
	},
	{
		Name: "volume-closed-under-calls",
		Rule: "the root of a volume stays open for the calls that are under way (package osfs, Close)",
		Edits: []Edit{{"shared/volume/osfs/walk.go", `	if c.Control(func(fd uintptr) { inner = do(int(fd)) }) != nil {`, `	var root int
	if c.Control(func(fd uintptr) { root = int(fd) }) == nil {
		inner = do(root)
	} else {`}},
		By: unit("shared/volume/osfs", "^TestCloseLeavesCallsTheirDirectory$"), Dies: `bad file descriptor|the call that hung went elsewhere`,
	},
	{
		Name:  "lost-key-stays-lost",
		Rule:  "a key that goes from the volume is written again (PROTOCOL 20.3)",
		Edits: []Edit{{peertlsPkg + "/keys.go", `; found || err != nil {`, `; found || err == nil {`}},
		By:    unit(peertlsPkg, "^TestKeyThatGoesIsWrittenAgain$"), Dies: `another volume`,
	},
	{
		Name:  "newest-key-removed",
		Rule:  "the newest keys of a server stay (PROTOCOL 20.3)",
		Edits: []Edit{{"shared/volume/keys.go", `cmp.Compare(b.Number, a.Number)`, `cmp.Compare(a.Number, b.Number)`}},
		By:    unit("shared/volume", "^TestNewestKeysStay$"), Dies: `keys \[`,
	},
	{
		Name: "key-name-unsynced",
		Rule: "a key's name is durable before the key is offered (PROTOCOL 20.3)",
		Edits: []Edit{{"shared/volume/keys.go", `		if err == nil {
			return fsys.SyncDir(layout.ServersDir)`, `		if err == nil {
			return nil`}},
		By: unit("shared/volume", "^TestKeyIsDurable$"), Dies: `the key is not durable`,
	},
	{
		Name:  "full-disk-keeps-a-server-out",
		Rule:  "an old key makes room for a new one, however few there are (PROTOCOL 20.3)",
		Edits: []Edit{{"shared/volume/keys.go", `if !vfs.IsFull(err) || len(all) == 0 {`, `if true {`}},
		By:    unit("shared/volume", "^TestKeyOnAFullDisk$"), Dies: `no space left`,
	},
	{
		Name: "missing-name-believed",
		Rule: "a name that a cache says is missing is listed, too (PROTOCOL 20.2)",
		Edits: []Edit{{"shared/volume/keys.go", `	if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	entries`, `	if err != nil {
		return false, vfs.IgnoreMissing(err)
	}
	entries`}},
		By: unit("shared/volume", "^TestNewestKeysStay$"), Dies: `a cache remembers`,
	},
	{
		Name: "new-volume-takes-plain-text",
		Rule: "a new volume requires TLS before it is one (PROTOCOL 20.5)",
		Edits: []Edit{{"shared/volume/init.go", `	if err := RequireTLS(fsys); err != nil {
		return c, fmt.Errorf("init: %w", err)
	}
`, ``}},
		By: unit("shared/volume", "^TestTLSIsRequiredOfNewVolumes$"), Dies: `CLUSTER was there first`,
	},
	{
		Name: "unreadable-requires-nothing",
		Rule: "a volume that cannot be read does not allow plain text (PROTOCOL 20.5)",
		Edits: []Edit{{"shared/volume/keys.go", `	required, err := inServers(fsys, name)
	if err != nil {`, `	required, err := inServers(fsys, name)
	if errors.Is(err, fs.ErrExist) {`}},
		By: unit("shared/volume", "^TestTLSIsRequiredOfNewVolumes$"), Dies: `requires nothing`,
	},
	{
		Name:  "required-too-early",
		Rule:  "TLS is not required while a server of an older version would be left out (package cli, secureRequireCommand)",
		Edits: []Edit{{"cmd/holdfast/cli/secure.go", `len(old) > 0 && !force`, `len(old) > 2 && !force`}},
		By:    unit("cmd/holdfast/cli", "^TestSecure$"), Dies: `too early`,
	},
	{
		Name:  "unread-process-is-none",
		Rule:  "a sign of life that cannot be read may be that of an older version (package cli, secureServer)",
		Edits: []Edit{{"cmd/holdfast/cli/secure.go", `			x.State = secureUnread`, `			x.State = secureNone`}},
		By:    unit("cmd/holdfast/cli", "^TestSecureRequireOfWhatCannotBeRead$"), Dies: `too early`,
	},
	{
		Name:  "silence-after-tls-without-end",
		Rule:  "a server that is dialed again in plain text has the time for connecting to say something (package peertls, ClientHandshake)",
		Edits: []Edit{{peertlsPkg + "/handshake.go", `		if err := raw.SetReadDeadline(end); err != nil {`, `		if err := raw.SetReadDeadline(end.Add(time.Hour)); err != nil {`}},
		By:    unit(peertlsPkg, "^TestSilenceAfterTLS$"), Dies: `waited for without end`,
	},
	{
		Name:  "heard-once-and-cut-off",
		Rule:  "a server that has spoken in plain text may be silent later (package peertls, unheard)",
		Edits: []Edit{{peertlsPkg + "/handshake.go", `		return n, errors.Join(err, c.SetReadDeadline(time.Time{}))`, `		return n, err`}},
		By:    unit(peertlsPkg, "^TestSilenceAfterTLS$"), Dies: `it has spoken true`,
	},
}
