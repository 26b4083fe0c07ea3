// SPDX-License-Identifier: Apache-2.0

package mutants

// smallMutants break rules that reviews of the whole have added, one here and one there.
var smallMutants = []Mutant{
	{
		Name: "reopening-forgets-what-was-committed", Also: "",
		Rule: "what a process knows to be committed outlives the opening of the volume (package serve)",
		Edits: []Edit{{"cmd/holdfast/serve/serve.go",
			"	*known = n.Known()\n", ""}},
		By:   unit("cmd/holdfast/serve", "^TestServerThatOpensAnOldCopyRemembersWhatItCommitted$"),
		Dies: `the lock was granted under token \d+ and, 10m before that ends, under token`,
	},
	{
		Name: "hidden-name-is-an-old-volume", Also: "",
		Rule: "a name that the cache of a network filesystem may hide says nothing of how old a read is (package node)",
		Edits: []Edit{{"cmd/holdfast/node/canary.go",
			" && n.canary.unseenFor(now) >= n.namesLie()", ""}},
		By:   unit("cmd/holdfast/node", "^TestNameThatACacheHidesIsNoOldVolume$"),
		Dies: `made_without.*status warns: `,
	},
	{
		Name: "empty-canary-excused", Also: "",
		Rule: "a canary that nothing was written to, where a value was told, is of an old volume (package node)",
		Edits: []Edit{{"cmd/holdfast/node/canary.go",
			" || errors.Is(directErr, volume.ErrEmptyCanary)", ""}},
		By:   unit("cmd/holdfast/node", "^TestCanaryAsItWasMadeIsAnOldVolume$"),
		Dies: `its volume is \S+ old, its status says \[\]`,
	},
	{
		Name: "init-without-canaries", Also: "",
		Rule: "a volume has the canaries of all servers before it is one, so that no cache hides one (package volume, Init)",
		Edits: []Edit{{"shared/volume/init.go",
			"linkCanaries(fsys, c.ID, servers)", "linkCanaries(fsys, c.ID, nil)"}},
		By:   unit("shared/volume", "^TestNoCacheHidesACanary$"),
		Dies: `wrote 7, and a read past the caches shows 0`,
	},
	{
		Name: "late-init-empties-canaries", Also: "",
		Rule: "an Init that slept leaves the canaries of the volume as they are (package volume, Init)",
		Edits: []Edit{{"shared/volume/init.go",
			"err := fsys.Link(tmp, canaryPath(id)); err != nil {", "err := fsys.Rename(tmp, canaryPath(id)); err != nil {"}},
		By:   unit("shared/volume", "^TestInitThatSleptLeavesTheCanaries$"),
		Dies: `call \d+: the canary reads 0`,
	},
	{
		Name: "written-canary-is-of-an-init", Also: "",
		Rule: "a directory whose canary was written to was a volume, and no Init takes it (package volume, refuseUsed)",
		Edits: []Edit{{"shared/volume/init.go",
			"return err == nil && allZero(b)", "return err == nil || allZero(b)"}},
		By:   unit("shared/volume", "^TestInitRefusesWhatIsNotEmpty$"),
		Dies: `a_primary's_canary_without_CLUSTER.*got <nil>`,
	},
	{
		Name: "seat-free-twice", Also: "",
		Rule: "each wait has a seat of its own: a seat that is kept is not in the pool (package clientlib, seat)",
		Edits: []Edit{{"clientlib/seat.go",
			"	if s.users == 0 {\n		s.c.mu.free = slices", "	if s.users < 0 {\n		s.c.mu.free = slices"}},
		By:   unit("clientlib", "^TestReleaseThatIsGivenUpLeavesASeatFreeOnce$"),
		Dies: `a seat is free 2 times.*two waits stood at once on the seat of`,
	},
	{
		Name: "answered-request-fills-the-window", Also: "",
		Rule: "a request that was answered holds up no other one of its identity (package clientlib, sequence)",
		Edits: []Edit{{"clientlib/client.go",
			"		who.seq.answered(k.id)\n", ""}},
		By:   unit("clientlib", "^TestGrantThatCameTooLateIsGivenBackThoughTheWindowIsFull$"),
		Dies: `an append to a file of another lock took`,
	},
	{
		Name: "empty-piece-kept-twice", Also: "",
		Rule: "what waits for a session is kept once, whatever it was encoded to (package api, outbox)",
		Edits: []Edit{{"primary/api/outbox.go",
			"	if n := len(b.mu.waiting); n == 0 || b.mu.waiting[n-1] != p {", "	if len(p.b) == 0 {"}},
		By:   unit("primary/api", "^TestWhatCannotBeEncodedIsSentOnce$"),
		Dies: `close of closed channel`,
	},
	{
		Name: "state-directories-as-one", Also: "",
		Rule: "of several state directories of a service the first is used (package serve, DefaultDataDir)",
		Edits: []Edit{{"cmd/holdfast/serve/datadir.go",
			`strings.Cut(os.Getenv("STATE_DIRECTORY"), ":")`, `strings.Cut(os.Getenv("STATE_DIRECTORY"), "\x00")`}},
		By:   unit("cmd/holdfast/serve", "^TestDataDir$"),
		Dies: `of a service that has two: "/srv/a:/srv/b/`,
	},
}
