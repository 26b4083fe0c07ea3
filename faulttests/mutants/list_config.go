// SPDX-License-Identifier: Apache-2.0

package mutants

const (
	settingsPkg = "cmd/holdfast/settings"
	configCLI   = "cmd/holdfast/cli"
)

// configMutants break how servers and clients are configured.
var configMutants = []Mutant{
	{
		Name: "flag-does-not-win",
		Rule: "a flag wins over the environment and the file (package settings, load)",
		Edits: []Edit{
			{settingsPkg + "/load.go", `from.Flags[x.Name]; ok {`, `from.Flags[x.Name]; ok && s.origins[x.Name] == (Origin{}) {`},
		},
		By: unit(settingsPkg, "^TestPrecedence$"), Dies: `suspicion: got 2s of HOLDFAST_SERVER_SUSPICION, want 3s`,
	},
	{
		Name: "environment-does-not-win",
		Rule: "the environment wins over the file (package settings, load)",
		Edits: []Edit{
			{settingsPkg + "/load.go", `from.Getenv(x.Environment()); v != "" {`, `from.Getenv(x.Environment()); v != "" && s.origins[x.Name] == (Origin{}) {`},
		},
		By: unit(settingsPkg, "^TestPrecedence$"), Dies: `suspicion: got 1s of f.toml:2:1, want 2s`,
	},
	{
		Name: "unknown-key-ignored",
		Rule: "a key of a file that is no setting is a mistake (package settings, readFile)",
		Edits: []Edit{
			{settingsPkg + "/load.go", `		case x == nil:
`, `		case x == nil && e.key != "":
		case x == nil:
`},
		},
		By: unit(settingsPkg, "^TestMistakes$"), Dies: `suspicon`,
	},
	{
		Name: "value-out-of-range-taken",
		Rule: "a value that the check of its setting refuses is a mistake (package settings, check)",
		Edits: []Edit{
			{settingsPkg + "/load.go", `		if x.check == nil {`, `		if x.check == nil || x.Live {`},
		},
		By: unit(settingsPkg, "^TestMistakes$"), Dies: `max-connections-per-address = 0`,
	},
	{
		Name: "bad-file-half-applied",
		Rule: "a reload with a mistake changes nothing (package cli, reload)",
		Edits: []Edit{
			{configCLI + "/reload.go", `	if err := r.live.Change(`, `	r.level.set(next.LogLevel)
	if err := r.live.Change(`},
		},
		By: unit(configCLI, "^TestReloader$"), Dies: `a certificate that is not there: the level is 0`,
	},
	{
		Name: "bad-certificate-half-applied",
		Rule: "certificates that are not good keep all settings of a reload from counting (package serve, Change)",
		Edits: []Edit{
			{"cmd/holdfast/serve/live.go", `	if l.TLSFiles != (TLSFiles{}) {`, `	s.now.Store(&l)
	if l.TLSFiles != (TLSFiles{}) {`},
		},
		By: unit("cmd/holdfast/serve", "^TestLiveSettingsChangeTogether$"), Dies: `a key of another certificate`,
	},
	{
		Name: "restart-setting-applied",
		Rule: "a setting that needs a restart is not said to count at a reload (package settings, Difference)",
		Edits: []Edit{
			{settingsPkg + "/load.go", `		case x.Live:`, `		case x.Live || x.Name == "heartbeat":`},
		},
		By: unit(settingsPkg, "^TestDifference$"), Dies: `heartbeat`,
	},
	{
		Name: "restart-forgotten",
		Rule: "what needs a restart is said until that, not only at the first reload (package cli, reload)",
		Edits: []Edit{
			{configCLI + "/reload.go", `r.started.Difference(next)`, `r.now.Difference(next)`},
		},
		By: unit(configCLI, "^TestReloader$"), Dies: `the same again: got`,
	},
	{
		Name: "restart-untold",
		Rule: "config reload has another exit code where a setting needs a restart (package cli, reload)",
		Edits: []Edit{
			{configCLI + "/config.go", `		a.code = exitRestart
`, ``},
		},
		By: unit(configCLI, "^TestReloaded$"), Dies: `exit code 0, want 6`,
	},
	{
		Name: "old-certificate-files-stay",
		Rule: "other files of certificates are read as soon as a reload names them (package serve, look)",
		Edits: []Edit{
			{"cmd/holdfast/serve/outside.go", `	if files == o.named && (files == TLSFiles{} ||`, `	if (files == TLSFiles{} ||`},
		},
		By: unit("cmd/holdfast/serve", "^TestOutsideFollowsTheSettings$"), Dies: `a certificate`,
	},
	{
		Name: "anyone-reloads",
		Rule: "the socket in the data directory is for the server's user only (package serve, listenIn)",
		Edits: []Edit{
			{"cmd/holdfast/serve/control.go", `os.Chmod(path, 0o600)`, `os.Chmod(path, 0o666)`},
		},
		By: unit("cmd/holdfast/serve", "^TestReloadByDataDirectory$"), Dies: `the socket: `,
	},
	{
		Name: "other-timing-untold",
		Rule: "a server that has another timing is told of (package node, otherTimings)",
		Edits: []Edit{
			{"cmd/holdfast/node/timing.go", `told != 0 && told != n.timing {`, `told != 0 && n.timing == 0 {`},
		},
		By: unit("cmd/holdfast/node", "^TestOtherTimingIsTold$"), Dies: `status does not tell of another timing`,
	},
	{
		Name: "silent-timing-told",
		Rule: "a server of an older version, which says nothing of its timing, is not told of (package node, otherTimings)",
		Edits: []Edit{
			{"cmd/holdfast/node/timing.go", `told != 0 && told != n.timing {`, `told != n.timing {`},
		},
		By: unit("cmd/holdfast/node", "^TestOtherTimingIsTold$"), Dies: `says nothing of its timing`,
	},
	{
		Name: "ready-too-early",
		Rule: "a server is ready when the others were asked, not before (package serve, announce)",
		Edits: []Edit{
			{"cmd/holdfast/serve/notify.go", `!heardAll(n.Status()) && `, `heardAll(n.Status()) && `},
		},
		By: unit("cmd/holdfast/serve", "^TestServiceManagerIsTold$"), Dies: `told "READY=1" before the others were heard`,
	},
	{
		Name: "stuck-server-feeds-watchdog",
		Rule: "a server whose locks are not to be had feeds no watchdog (package serve, announce)",
		Edits: []Edit{
			{"cmd/holdfast/serve/notify.go", `			alive()
`, ``},
		},
		By: unit("cmd/holdfast/serve", "^TestStuckNodeFeedsNoWatchdog$"), Dies: `a node that is stuck tells "WATCHDOG=1"`,
	},
	{
		Name: "completion-offers-locks-for-files",
		Rule: "shells offer names of protected files where these are meant (package cli, askNames)",
		Edits: []Edit{
			{configCLI + "/complete.go", `	if kind == "LOCK" {`, `	if kind != "" {`},
		},
		By: unit(configCLI, "^TestCompletion$"), Dies: `"cat ": got`,
	},
	{
		Name: "clients-file-wins",
		Rule: "the environment of a client wins over its files (package cli, servers)",
		Edits: []Edit{
			{configCLI + "/cli.go", `a.endpoints, a.Getenv("HOLDFAST_ENDPOINTS"), a.client.Endpoints, `, `a.endpoints, a.client.Endpoints, a.Getenv("HOLDFAST_ENDPOINTS"), `},
		},
		By: unit(configCLI, "^TestClientConfiguration$"), Dies: `a variable over its endpoints`,
	},
	{
		Name: "unknown-client-key-ignored",
		Rule: "a key of a client's file that is not known is a mistake (package clientconfig, Parse)",
		Edits: []Edit{
			{"clientlib/clientconfig/clientconfig.go", `.DisallowUnknownFields()`, ``},
		},
		By: unit("clientlib/clientconfig", "^TestMistakes$"), Dies: `did you mean endpoints`,
	},
}
