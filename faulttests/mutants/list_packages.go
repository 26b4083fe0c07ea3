// SPDX-License-Identifier: Apache-2.0

package mutants

// packageMutants break rules of what operators get and keep: modes of backups and restored volumes, the ports for metrics, metrics of
// single locks, calls that come to a server in its own takeover, and manual pages.
var packageMutants = []Mutant{
	{
		Name: "backup-for-everybody",
		Rule: "nobody but its owner may look into the directory of a backup (cli, openDest)",
		Edits: []Edit{{"cmd/holdfast/cli/backup.go",
			"os.Mkdir(abs, 0o700)", "os.Mkdir(abs, 0o755)"}},
		By: unit("cmd/holdfast/cli", "^TestBackupIsPrivate$"), Dies: "others may look into",
	},
	{
		Name: "backup-into-an-open-directory",
		Rule: "a directory into which others may look takes no backup (cli, openDest)",
		Edits: []Edit{{"cmd/holdfast/cli/backup.go",
			"info.Mode()&0o077 != 0", "info.Mode()&0o070 == 0o070"}},
		By: unit("cmd/holdfast/cli", "^TestBackupIsPrivate$"), Dies: "into a directory of mode",
	},
	{
		Name: "restore-forgets-the-mode",
		Rule: "a restored volume has the mode of the one that was backed up (cli, build)",
		Edits: []Edit{{"cmd/holdfast/cli/backup.go",
			"fs.FileMode(plan.Backup.Mode)|0o700", "0o700"}},
		By: unit("cmd/holdfast/cli", "^TestRestoreKeepsModes$"), Dies: "is restored with",
	},
	{
		Name: "scrape-without-end",
		Rule: "a scrape that is not read ends, since few may be under way at once (package httpapi, scrape)",
		Edits: []Edit{{"shared/frontend/httpapi/probes.go",
			"		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(bodyWait))\n", ""}},
		By: unit("shared/frontend/httpapi", "^TestAScrapeEnds$"), Dies: "a scrape may take until",
	},
	{
		Name: "probes-without-end",
		Rule: "nothing on the port for metrics takes longer than probeWait (package serve, newProbes)",
		Edits: []Edit{{"cmd/holdfast/serve/front.go",
			"	s.ReadTimeout, s.WriteTimeout = probeWait, probeWait\n", ""}},
		By: unit("cmd/holdfast/serve", "^TestMetricsPortHasRoomOfItsOwn$"), Dies: "a request may take",
	},
	{
		Name: "probes-in-the-clients-room",
		Rule: "connections of the port for metrics take none from clients (package serve, serving)",
		Edits: []Edit{{"cmd/holdfast/serve/front.go",
			"probes := newRoom(opt.Log, mostProbes, opt.Live.perAddress, f.tallies)", "probes := clients"}},
		By: unit("cmd/holdfast/serve", "^TestMetricsPortHasRoomOfItsOwn$"), Dies: "meanwhile clients are answered",
	},
	{
		Name: "probes-without-bounds",
		Rule: "the port for metrics has few connections (package serve, serving)",
		Edits: []Edit{{"cmd/holdfast/serve/front.go",
			"probes := newRoom(opt.Log, mostProbes,", "probes := newRoom(opt.Log, 2*mostProbes,"}},
		By: unit("cmd/holdfast/serve", "^TestMetricsPortHasRoomOfItsOwn$"), Dies: "connections one more is answered",
	},
	{
		Name: "no-wait-for-the-own-takeover",
		Rule: "a call that comes to a server in its own takeover waits for that (package httpapi, run)",
		Edits: []Edit{{"shared/frontend/httpapi/httpapi.go",
			"case v == retry.NotPrimary, v == retry.NotYet, v == retry.Unknown", "case v == retry.NotPrimary, v == retry.Unknown"}},
		By: unit("shared/frontend", "^TestACallWaitsForTheOwnTakeover$"), Dies: "SERVER_FENCING",
	},
	{
		Name: "takeover-that-refuses",
		Rule: "SERVER_FENCING means that the server may be asked again soon (package retry, NotYet)",
		Edits: []Edit{{"shared/retry/retry.go",
			"		return NotYet\n", "		return Final\n"}},
		By: unit("shared/frontend", "^TestACallWaitsForTheOwnTakeover$"), Dies: "SERVER_FENCING",
	},
	{
		Name: "lock-metrics-for-everybody",
		Rule: "metrics of a lock are for callers that may read it (package service, SampleLocks)",
		Edits: []Edit{{"shared/frontend/service/sample.go",
			`allowed.Check(access.Read, name, "")`, `allowed.Check(access.Keep, name, "")`}},
		By: unit("shared/frontend", "^TestLockMetricsAreForWhoMayReadTheLocks$"), Dies: "alice, lock=secret: 200",
	},
	{
		Name: "lock-metrics-without-end",
		Rule: "a scrape names at most 100 locks (package service, SampleLocks)",
		Edits: []Edit{{"shared/frontend/service/sample.go",
			"case len(names) > MaxSampled:", "case len(names) > 2*MaxSampled:"}},
		By: unit("shared/frontend", "^TestLockMetricsAreBounded$"), Dies: "200 n0:0",
	},
	{
		Name: "lock-metrics-left-out-in-silence",
		Rule: "a scrape tells that locks under its prefix are left out (package service, SampleLocks)",
		Edits: []Edit{{"shared/frontend/service/sample.go",
			"			under.Next = l.GetName()\n", ""}},
		By: unit("shared/frontend", "^TestLockMetricsAreBounded$"), Dies: "prefix=p/0&lock=q: 200, 100 locks",
	},
	{
		Name: "lock-metrics-name-holders",
		Rule: "an identity is a label only where holders are asked for (package metrics, Locks)",
		Edits: []Edit{
			{"cmd/holdfast/metrics/locks.go", "	if holders {\n", "	if true {\n"},
			{"cmd/holdfast/metrics/locks.go", "		if holders && g.GetToken() != 0 {", "		if g.GetToken() != 0 {"},
		},
		By: unit("cmd/holdfast/metrics", "^TestLocks$"), Dies: "with holders=false",
	},
	{
		Name: "manual-without-tables",
		Rule: "manual pages keep the lines of tables and examples (package deploy, keepTables)",
		Edits: []Edit{{"faulttests/deploy/manual.go",
			"			parts[i] = \"```\\n\" + p + \"\\n```\"\n", "			_ = i\n"}},
		By: unit("faulttests/deploy", "^TestEveryCommandHasAPage$"), Dies: "the table of exit codes is none any more",
	},
}
