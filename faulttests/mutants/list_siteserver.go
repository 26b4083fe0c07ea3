// SPDX-License-Identifier: Apache-2.0

package mutants

// siteServerMutants break rules of how the cells of a site are served, and of what their servers tell of each other.
var siteServerMutants = []Mutant{
	{
		Name: "cell-served-by-itself",
		Rule: "a cell is served as one of its site only: else its servers could not tell where the others are (PROTOCOL 23.8)",
		Edits: []Edit{
			{"cmd/holdfast/serve/cells.go", `		if c.Cell == nil {
			return nil
		}
`, `		if c.Cell == nil || opt.Volume != "" {
			return nil
		}
`},
		},
		By:   unit("cmd/holdfast/serve", "^TestOnlyTheRightCellIsServed$"),
		Dies: `a cell by itself: <nil>`,
	},
	{
		Name: "another-cell-served",
		Rule: "the server of a cell does not serve another one to which SITE leads (PROTOCOL 23.8)",
		Edits: []Edit{
			{"cmd/holdfast/serve/cells.go", `	case own.Site != want.ID || own.Cell != opt.Cell:
`, `	case own.Site != want.ID:
`},
		},
		By:   unit("cmd/holdfast/serve", "^TestOnlyTheRightCellIsServed$"),
		Dies: `another cell: <nil>`,
	},
	{
		Name: "volume-served-as-a-cell",
		Rule: "the server of a cell does not serve a volume that has all names (PROTOCOL 23.8)",
		Edits: []Edit{
			{"cmd/holdfast/serve/cells.go", `		own = s.Table.Own()
`, `		if own = s.Table.Own(); own == nil {
			return nil
		}
`},
		},
		By:   unit("cmd/holdfast/serve", "^TestOnlyTheRightCellIsServed$"),
		Dies: `no cell: <nil>`,
	},
	{
		Name: "cells-unplanned",
		Rule: "until a cell was read, the servers are told that it was made with (PROTOCOL 23.8)",
		Edits: []Edit{
			{"cmd/holdfast/serve/cells.go", `		p.Store(new(s.planned(c.Cell)))
`, `		p.Store(&serving.CellServers{Cell: c.Cell})
`},
		},
		By:   unit("cmd/holdfast/serve", "^TestOtherCellsAreFollowed$"),
		Dies: `0: told \[\{cell 0 \[own:1\] c \} \{cell 1 \[\]`,
	},
	{
		Name: "lost-cell-forgotten",
		Rule: "what was read of a cell is told until something else is (PROTOCOL 23.8)",
		Edits: []Edit{
			{"cmd/holdfast/serve/cells.go", `				if now, err := read(c.Cell); err == nil {
					p.Store(&now)
				}
`, `				now, _ := read(c.Cell)
				p.Store(&now)
`},
		},
		By:   unit("cmd/holdfast/serve", "^TestOtherCellsAreFollowed$"),
		Dies: `\{cell 0 \[\]`,
	},
	{
		Name: "cells-read-one-after-the-other",
		Rule: "a cell whose volume hangs keeps no other from being read (PROTOCOL 23.8)",
		Edits: []Edit{
			{"cmd/holdfast/serve/cells.go", `	o := &otherCells{site: s, own: own, read: map[cluster.CellID]*atomic.Pointer[serving.CellServers]{}}
`, `	o := &otherCells{site: s, own: own, read: map[cluster.CellID]*atomic.Pointer[serving.CellServers]{}}
	turn, each := make(chan struct{}, 1), read
	read = func(k cluster.CellID) (serving.CellServers, error) {
		turn <- struct{}{}
		defer func() { <-turn }()
		return each(k)
	}
`},
		},
		By:   unit("cmd/holdfast/serve", "^TestOtherCellsAreFollowed$"),
		Dies: `the cells were read 1 and|told \[\{cell 0|deadlock`,
	},
	{
		Name: "foreign-volume-read-for-a-cell",
		Rule: "the servers of another volume are not told for those of a cell (PROTOCOL 23.8)",
		Edits: []Edit{
			{"cmd/holdfast/serve/cells.go", `	if c.Cell != nil && (c.Cell.Site != s.ID || c.Cell.Cell != k) {
`, `	if c.Cell != nil && c.Cell.Site != s.ID {
`},
		},
		By:   unit("cmd/holdfast/serve", "^TestCellsAreReadFromTheirVolumes$"),
		Dies: `another cell: \{cell 1 \[h:1\]`,
	},
	{
		Name: "joining-server-of-a-cell-told",
		Rule: "a server that joins answers nothing yet, so it is not told for one of its cell (PROTOCOL 23.8)",
		Edits: []Edit{
			{"cmd/holdfast/serve/cells.go", `		if !m.Joining {
`, `		if !m.Joining || m.Client != "" {
`},
		},
		By:   unit("cmd/holdfast/serve", "^TestCellsAreReadFromTheirVolumes$"),
		Dies: `with another list: \{cell 2 \[new:1 joins:1\]`,
	},
	{
		Name: "strangers-learn-no-cells",
		Rule: "any server leads everybody to all cells, also who may read nothing (PROTOCOL 23.8)",
		Edits: []Edit{
			{"shared/frontend/service/status.go", `	r.FeatureLevel, r.NextLevel, r.UpgradeWaitsFor, r.MembersVersion, r.HighestServerId = 0, 0, nil, 0, 0
`, `	r.FeatureLevel, r.NextLevel, r.UpgradeWaitsFor, r.MembersVersion, r.HighestServerId, r.Cells = 0, 0, nil, 0, 0, nil
`},
		},
		By:   unit("shared/frontend", "^TestStatusTellsWhereCellsAre$"),
		Dies: `through a gateway false: \[\]`,
	},
	{
		Name: "strangers-learn-no-division",
		Rule: "who may read nothing learns which cell has which names (PROTOCOL 23.8)",
		Edits: []Edit{
			{"shared/frontend/service/status.go", `		r.Cell = convert.FromOwn(s.own)
`, ``},
		},
		By:   unit("shared/frontend", "^TestStrangersLearnWhichCellHasWhat$"),
		Dies: `local false: what the cell owns is <nil>`,
	},
	{
		Name: "foreign-lock-watched",
		Rule: "a watch of a lock of another cell is refused (PROTOCOL 23.2)",
		Edits: []Edit{
			{"shared/frontend/service/watch.go", `s.own.Refuses(x.o.Lock, ""); why != "" {`, `s.own.Refuses("", ""); why != "" {`},
		},
		By:   unit("shared/frontend", "^TestForeignLockIsNotShown$"),
		Dies: `a watch: `,
	},
	{
		Name: "foreign-history-empty",
		Rule: "the history of a lock of another cell is refused (PROTOCOL 23.2)",
		Edits: []Edit{
			{"shared/frontend/service/history.go", `s.own.Refuses(x.Lock, ""); why != "" {`, `s.own.Refuses("", ""); why != "" {`},
		},
		By:   unit("shared/frontend", "^TestForeignLockIsNotShown$"),
		Dies: `the history: `,
	},
	{
		Name: "led-in-a-circle",
		Rule: "where no cell has both names, each cell would lead to the other (PROTOCOL 23.7)",
		Edits: []Edit{
			{"shared/frontend/service/status.go", `lock != "" && file != "" && s.Parted(lock, file) {`, `false {`},
		},
		By:   unit("shared/frontend", "^TestLedToTheCell$"),
		Dies: `apart: 307 to`,
	},
	{
		Name: "led-to-plain-text",
		Rule: "a client that came over TLS is led to another cell over TLS only (PROTOCOL 23.7)",
		Edits: []Edit{
			{"shared/frontend/httpapi/elsewhere.go", `	if serving.PlainTCP(from) {
`, `	if from != nil {
`},
		},
		By:   unit("shared/frontend", "^TestLedToTheCell$"),
		Dies: `over TLS: 307 to "http://`,
	},
	{
		Name: "led-off-the-host-in-plain-text",
		Rule: "what is said in plain text on a server's own host is not led to another one where servers speak TLS (PROTOCOL 23.7)",
		Edits: []Edit{
			{"shared/frontend/httpapi/elsewhere.go", `		if cell.TLSOnly {`, `		if cell.TLSOnly && cell.Pin == "-" {`},
		},
		By:   unit("shared/frontend", "^TestLedToTheCell$"),
		Dies: `to a cell with TLS: 307`,
	},
	{
		Name: "led-to-planned-addresses",
		Rule: "clients are led only to a cell whose cluster is known: others may be at addresses that were planned (PROTOCOL 23.7)",
		Edits: []Edit{
			{"shared/frontend/httpapi/elsewhere.go", ` || cell.ClusterID == "" {`, ` {`},
		},
		By:   unit("shared/frontend", "^TestLedToTheCell$"),
		Dies: `a cell that was never read: 307`,
	},
	{
		Name: "led-round-the-gateway",
		Rule: "who comes through a gateway is led to another port of the gateway, since it may reach no server (PROTOCOL 23.7)",
		Edits: []Edit{
			{"shared/frontend/httpapi/elsewhere.go", `	if serving.ThroughGateway(from) {`, `	if serving.ThroughGateway(nil) {`},
		},
		By:   unit("shared/frontend", "^TestLedToTheCell$"),
		Dies: `through a gateway: 307 to "http://localhost:2/`,
	},
	{
		Name: "forward-is-led",
		Rule: "what another server passes on is answered to that, which leads its client itself (PROTOCOL 23.7)",
		Edits: []Edit{
			{"shared/frontend/httpapi/elsewhere.go", `range []string{forwardedHeader, clusterHeader, pageHeader, "Origin", "Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Proto"} {
`, `range []string{clusterHeader, pageHeader, "Origin", "Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Proto"} {
`},
		},
		By:   unit("shared/frontend", "^TestLedToTheCell$"),
		Dies: `a forward: 307`,
	},
	{
		Name: "script-is-led",
		Rule: "a script of a page learns nothing from a redirect that its browser does not follow (PROTOCOL 23.7)",
		Edits: []Edit{
			{"shared/frontend/httpapi/elsewhere.go", `	return mode == "" || mode == "navigate"
`, `	return mode != "none"
`},
		},
		By:   unit("shared/frontend", "^TestLedToTheCell$"),
		Dies: `a script of the page: 307`,
	},
	{
		Name: "wrong-cell-named",
		Rule: "a refusal names the cell that has the lock (PROTOCOL 23.2)",
		Edits: []Edit{
			{"shared/frontend/httpapi/elsewhere.go", `		a.Cell = uint32(has)
`, `		a.Cell = uint32(0 * has)
`},
		},
		By:   unit("shared/frontend", "^TestLedToTheCell$"),
		Dies: `without an address: 421`,
	},
	{
		Name: "state-parted",
		Rule: "a state of Terraform whose file would be of another cell than its lock is refused before it is locked (PROTOCOL 23.7)",
		Edits: []Edit{
			{"shared/frontend/httpapi/terraform.go", `	if h.s.Parted(name.Lock(), name.File()) {
`, `	if name == "" {
`},
		},
		By:   unit("shared/frontend", "^TestStateOfTwoCells$"),
		Dies: `LOCK of state`,
	},
	{
		Name: "gateway-passed-by",
		Rule: "who comes through a gateway is told of no way around it to a cell (PROTOCOL 23.8)",
		Edits: []Edit{
			{"shared/frontend/service/status.go", `		if !r.Gateway { // as above:`, `		if r != nil { //`},
		},
		By:   unit("shared/frontend", "^TestStatusTellsWhereCellsAre$"),
		Dies: `through a gateway true: \[0 \[a`,
	},
	{
		Name: "removed-server-started-again",
		Rule: "a server that was removed is not started again by its supervisor (package supervisor)",
		Edits: []Edit{
			{"cmd/holdfast/supervisor/supervisor.go", `	case code == s.opt.GiveUp:
`, `	case code == s.opt.GiveUp && c.pause > 0:
`},
		},
		By:   unit("cmd/holdfast/supervisor", "^TestRemovedServersAreNotStartedAgain$"),
		Dies: `cell 1 starts`,
	},
	{
		Name: "pause-stays-short",
		Rule: "a server that ends again and again is started after longer and longer pauses (package supervisor)",
		Edits: []Edit{
			{"cmd/holdfast/supervisor/supervisor.go", `min(2*c.pause, lastPause)`, `min(c.pause, lastPause)`},
		},
		By:   unit("cmd/holdfast/supervisor", "^TestPauseGrows$"),
		Dies: `"500ms cell 1 starts", want ""`,
	},
	{
		Name: "pause-stays-long",
		Rule: "a server that ran well is started again soon (package supervisor)",
		Edits: []Edit{
			{"cmd/holdfast/supervisor/supervisor.go", `c.pause == 0 || time.Since(c.began) >= ranWell {`, `c.pause == 0 {`},
		},
		By:   unit("cmd/holdfast/supervisor", "^TestPauseGrows$"),
		Dies: `"", want "1m6`,
	},
	{
		Name: "late-cell-keeps-all-waiting",
		Rule: "a cell that is not ready keeps the others from being ready for a while only (package supervisor)",
		Edits: []Edit{
			{"cmd/holdfast/supervisor/supervisor.go", `	if waits != nil && !late {
`, `	if waits != nil {
`},
		},
		By:   unit("cmd/holdfast/supervisor", "^TestReadyIsToldOnce$"),
		Dies: `"", want "10s ready"`,
	},
	{
		Name: "hung-server-holds-the-end",
		Rule: "at a second signal a supervisor ends, also where a server hangs in the filesystem (package supervisor)",
		Edits: []Edit{
			{"cmd/holdfast/supervisor/supervisor.go", `		case <-s.killed:
			return ErrKilled
`, ``},
		},
		By:   unit("cmd/holdfast/supervisor", "^TestSignalsArePassedOn$"),
		Dies: `it has not ended`,
	},
	{
		Name: "second-signal-cuts-a-handover-off",
		Rule: "a server that is told to end twice, by the service manager and by its supervisor, hands over all the same (package supervisor)",
		Edits: []Edit{
			{"cmd/holdfast/supervisor/process.go", `	return getenv(parentEnv) == strconv.Itoa(os.Getppid())
`, `	return getenv(parentEnv) == strconv.Itoa(os.Getpid())
`},
		},
		By:   unit("cmd/holdfast/supervisor", "^TestEnvironment$"),
		Dies: `not true`,
	},
	{
		Name: "stuck-cell-stays",
		Rule: "a server whose loops are stuck is ended by its supervisor, where the service manager has a watchdog (package supervisor)",
		Edits: []Edit{
			{"cmd/holdfast/supervisor/process.go", `[]string{"NOTIFY_SOCKET", "WATCHDOG_PID", parentEnv}`, `[]string{"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", parentEnv}`},
		},
		By:   unit("cmd/holdfast/supervisor", "^TestEnvironment$"),
		Dies: `got \[A=1 B`,
	},
	{
		Name: "cells-share-a-data-directory",
		Rule: "each cell of a host has a data directory, ports and a socket of its own (package settings)",
		Edits: []Edit{
			{"cmd/holdfast/settings/site.go", `		p.DataDir = filepath.Join(s.DataDir, fmt.Sprintf("cell-%d", cell))
`, `		p.DataDir = filepath.Join(s.DataDir, "cell")
`},
		},
		By:   unit("cmd/holdfast/settings", "^TestPlacesOfCells$"),
		Dies: `cell 3: \{DataDir:/d/cell `,
	},
	{
		Name: "site-forgets-a-path",
		Rule: "SITE leads to a cell's volume at a path of its own (PROTOCOL 23.6)",
		Edits: []Edit{
			{"shared/volume/site/site.go", `Cell{Cell: c, Path: p.Path(c)}`, `Cell{Cell: c, Path: CellPath(c)}`},
		},
		By:   unit("shared/volume/site", "^TestSiteIsMadeAndRead$"),
		Dies: `Path:cells/2`,
	},
	{
		Name: "two-cells-in-one-directory",
		Rule: "the volumes of two cells are not within each other (PROTOCOL 23.6)",
		Edits: []Edit{
			{"shared/volume/site/site.go", `			if other != k && strings.HasPrefix(at+"/", x+"/") {
`, `			if other != k && at == x {
`},
		},
		By:   unit("shared/volume/site", "^TestSiteInitRefuses$"),
		Dies: `a path in one: it is a plan`,
	},
	{
		Name: "outcome-of-another-cell",
		Rule: "a cell says nothing over HTTP of requests that it may never have had (PROTOCOL 23.7)",
		Edits: []Edit{
			{"shared/frontend/httpapi/elsewhere.go", `	if o.client == "" {
		return h.names`, `	if o.client == "" || r != nil {
		return h.names`},
		},
		By:   unit("shared/frontend", "^TestRequestOfAnotherCell$"),
		Dies: `cancel of job-7: 409 to "": \{"status":"CANCELLED"`,
	},
	{
		Name: "led-by-the-primary-only",
		Rule: "a server without a primary leads to the cell of a name, too (PROTOCOL 23.7)",
		Edits: []Edit{
			{"shared/frontend/httpapi/elsewhere.go", `	if h.s.Owns() == nil || r.Header`, `	if _, _, led := h.s.Backend().Primary(); !led || r.Header`},
		},
		By:   unit("shared/frontend", "^TestLedWithoutAPrimary$"),
		Dies: `release without a primary: 503`,
	},
}
