// SPDX-License-Identifier: Apache-2.0

package mutants

// hourMutants break rules of what somebody meets in the first hour with Holdfast.
var hourMutants = []Mutant{
	{
		Name: "history-beyond-its-limit", Also: "",
		Rule: "history shows no more grants than --limit (cli, cutGrants)",
		Edits: []Edit{
			{"cmd/holdfast/cli/history.go", `if len(b.Grants) <= limit {`, `if len(b.Grants) > 0 {`},
		},
		By:   unit(cliPkg, "^TestHistoryKeepsItsLimit$"),
		Dies: "limit 1",
	},
	{
		Name: "history-skips-what-was-cut", Also: "",
		Rule: "what the limit cut off is still to come (cli, cutGrants)",
		Edits: []Edit{
			{"cmd/holdfast/cli/history.go", `	b.NextLSN, b.NextToken = cmp.Or(`, `	_, _ = cmp.Or(`},
		},
		By:   unit(cliPkg, "^TestHistoryKeepsItsLimit$"),
		Dies: "want the rest to begin before LSN 41",
	},
	{
		Name: "committed-is-appended-again", Also: "",
		Rule: "no advice to append again what the servers are still to write (cli, streamError.advice)",
		Edits: []Edit{
			{"cmd/holdfast/cli/stream.go", `ok && told.Committed && told`, `ok && !told.Committed && told`},
		},
		By:   unit(cliPkg, "^TestStreamAdvice$"),
		Dies: "first correct what holdfast status shows",
	},
	{
		Name: "waits-for-itself", Also: "",
		Rule: "a command that has the lock, and no answer yet, is not told to wait for itself (cli, waiting.holds)",
		Edits: []Edit{
			{"cmd/holdfast/cli/waiting.go", `case me.holds(l):`, `case !me.named() && me.holds(l):`},
		},
		By:   unit(cliPkg, "^TestWaitingText$"),
		Dies: "granted to this command",
	},
	{
		Name: "another-request-is-its-own", Also: "",
		Rule: "an earlier request of the same client that has the lock is waited for (cli, waiting.holds)",
		Edits: []Edit{
			{"cmd/holdfast/cli/waiting.go", ` && l.RequestID == x.request
`, ` && l.RequestID <= x.request
`},
		},
		By:   unit(cliPkg, "^TestWaitingText$"),
		Dies: "held by alice on h1",
	},
	{
		Name: "even-servers-pass", Also: "",
		Rule: "init says that an even number of servers gains nothing (cli, serverNotes)",
		Edits: []Edit{
			{"cmd/holdfast/cli/volume.go", `case n%2 == 0:`, `case n == 0:`},
		},
		By:   unit(cliPkg, "^TestInitSaysWhatServersMean$"),
		Dies: "4 servers go on without 1 of them",
	},
	{
		Name: "loopback-is-to-move", Also: "",
		Rule: "init wants no name for a server on the loopback interface (cli, serverNotes)",
		Edits: []Edit{
			{"cmd/holdfast/cli/volume.go", `ip != nil && !ip.IsLoopback()`, `ip != nil`},
		},
		By:   unit(cliPkg, "^TestInitSaysWhatServersMean$"),
		Dies: "1=127.0.0.1:7001",
	},
	{
		Name: "watch-speaks-grpc", Also: "",
		Rule: "a watch that no server serves says why in plain words (clientlib, watcher.run)",
		Edits: []Edit{
			{"clientlib/watch.go", `w.c.servers.addresses(), retry.Plain(err))`, `w.c.servers.addresses(), err)`},
		},
		By:   unit("clientlib", "^TestWatchSaysPlainlyWhyItEnds$"),
		Dies: "rpc error",
	},
	{
		Name: "advice-without-the-flag", Also: "",
		Rule: "advice names a flag as the command line has it (cli, advice)",
		Edits: []Edit{
			{"cmd/holdfast/cli/exit.go", `strings.Contains(err.Error(), "adopt_existing") {`, `strings.Contains(err.Error(), "adopt-existing") {`},
		},
		By:   unit(cliPkg, "^TestAdviceNamesTheFlag$"),
		Dies: `got ""`,
	},
	{
		Name: "one-speaks-for-all", Also: "",
		Rule: "servers that refuse for different reasons are each told with its own (remote, saidBy)",
		Edits: []Edit{
			{"cmd/holdfast/remote/remote.go", `			return "", false
		}
		all = append(all, server)`, `			continue
		}
		all = append(all, server)`},
		},
		By:   unit("cmd/holdfast/remote", "^TestSaysOnceWhatAllSay$"),
		Dies: "it takes over",
	},
	{
		Name: "blame-names-another", Also: "",
		Rule: "blame names the holder of the very token under which a piece was appended (cli, blamed.who)",
		Edits: []Edit{
			{"cmd/holdfast/cli/blameholder.go", `return g.Token == p.Token })`, `return g.Token >= p.Token })`},
		},
		By:   unit(cliPkg, "^TestBlameNamesHolders$"),
		Dies: "not kept: got",
	},
	{
		Name: "blame-asks-too-late", Also: "",
		Rule: "blame asks for every grant that was live at one of its appends (cli, addGrants)",
		Edits: []Edit{
			{"cmd/holdfast/cli/blameholder.go", `cmp.Or(min(first, p.LSN), p.LSN)`, `max(first, p.LSN)`},
		},
		By:   unit(cliPkg, "^TestBlameNamesHolders$"),
		Dies: "two: got",
	},
	{
		Name: "append-hides-its-script", Also: "",
		Rule: "an append names the script that called it (cli, ownHolder)",
		Edits: []Edit{
			{"cmd/holdfast/cli/program.go", `h.Command = cmp.Or(h.Command, a.command)`, `h.Command = cmp.Or(a.command, "append")`},
		},
		By:   unit(cliPkg, "^TestScriptIsFound$"),
		Dies: `no caller "nightly.sh"`,
	},
	{
		Name: "dev-leaves-silently", Also: "",
		Rule: "dev says what it leaves on the disk (dev, stored)",
		Edits: []Edit{
			{"cmd/holdfast/dev/dev.go", `total += info.Size()`, `total++`},
		},
		By:   unit("cmd/holdfast/dev", "^TestStored$"),
		Dies: "want 8",
	},
	{
		Name: "doctor-mounts-any-fuse", Also: "",
		Rule: "doctor proposes no command for a FUSE filesystem of which it does not know the program (doctor, profileOf)",
		Edits: []Edit{
			{"cmd/holdfast/doctor/profiles.go", `if fstype == "fuse" {`, `if fstype == "fuse." {`},
		},
		By:   unit("cmd/holdfast/doctor", "^TestMountTable$"),
		Dies: "FUSE without a type",
	},
}
