// SPDX-License-Identifier: Apache-2.0

package mutants

// flockMutants break rules of the command line as users of flock(1) expect it.
var flockMutants = []Mutant{
	{
		Name: "killed-run-keeps-its-lock", Also: "",
		Rule: "when a run was killed and its command is dead, the guard releases the lock (cli, guardCommand)",
		Edits: []Edit{
			{"cmd/holdfast/cli/run.go", `if dead := child.Guard(os.Stdin); !dead {`, `if dead := child.Guard(os.Stdin); dead || !dead {`},
		},
		By:   unit(cliPkg, "^TestKilledRunReleases$"),
		Dies: "token 17 is live",
	},
	{
		Name: "guard-forgets-the-group", Also: "",
		Rule: "the guard is not done while a process of the command's group runs (child, guardian.sweep)",
		Edits: []Edit{
			{"cmd/holdfast/child/guard.go", ` || g.remains() {`, ` {`},
		},
		By:   unit(childPkg, "^TestTheGroupCounts$"),
		Dies: "the guard is done: true",
	},
	{
		Name: "guard-waits-for-strangers", Also: "",
		Rule: "a group whose leader is another process than the command is not the command's (child, guardian.remains)",
		Edits: []Edit{
			{"cmd/holdfast/child/guard.go", `found && p.start != g.leader.start {`, `found && p.start == 0 {`},
		},
		By:   unit(childPkg, "^TestTheGroupCounts$"),
		Dies: "counts as the command's",
	},
	{
		Name: "place-of-the-shell", Also: "",
		Rule: "a command whose request is known finds its place by that, not by its shell (cli, waiting.is)",
		Edits: []Edit{
			{"cmd/holdfast/cli/waiting.go", `	if x.named() {
`, `	if x.named() && x.host == "" {
`},
		},
		By:   unit(cliPkg, "^TestWaitingText$"),
		Dies: "1 before you",
	},
	{
		Name: "flags-before-flock-are-its-own", Also: "",
		Rule: "flags before a command are the root's (cli, root)",
		Edits: []Edit{
			{"cmd/holdfast/cli/cli.go", `TraverseChildren: true,`, `TraverseChildren: false,`},
		},
		By:   unit(cliPkg, "^TestGlobalFlagsBeforeAnyCommand$"),
		Dies: `"flock"`,
	},
	{
		Name: "open-file-closed-too-early", Also: "",
		Rule: "a lock of a descriptor is held while a process that inherited it has it open (child, OpenFile.closed)",
		Edits: []Edit{
			{"cmd/holdfast/child/openfile.go", `	if live, sure := o.find(); len(live) > 0 || !sure {
		o.quiet = 0
		return false
	}
`, ``},
		},
		By:   unit(childPkg, "^TestOpenFileIsFollowed$"),
		Dies: "the child has it",
	},
	{
		Name: "blind-counts-as-closed", Also: "",
		Rule: "an open file is not closed while the processes cannot be looked at (child, OpenFile.find)",
		Edits: []Edit{
			{"cmd/holdfast/child/openfile.go", `	sure = complete(all)
`, `	sure = true
`},
		},
		By:   unit(childPkg, "^TestOpenFileWithoutDescriptors$"),
		Dies: "closed true",
	},
	{
		Name: "blind-guard-is-done", Also: "",
		Rule: "the guard does not count a command as dead while it cannot look (child, guardian.remains)",
		Edits: []Edit{
			{"cmd/holdfast/child/guard.go", `	if !complete(all) {
		return true
	}
`, ``},
		},
		By:   unit(childPkg, "^TestOpenFileWithoutDescriptors$"),
		Dies: "processes remain false",
	},
	{
		Name: "one-search-is-enough", Also: "",
		Rule: "an open file is closed when two searches found no process (child, OpenFile.closed)",
		Edits: []Edit{
			{"cmd/holdfast/child/openfile.go", `	return o.quiet > 1
`, `	return o.quiet > 0
`},
		},
		By:   unit(childPkg, "^TestOpenFileIsFollowed$"),
		Dies: "one search",
	},
	{
		Name: "same-path-is-same-file", Also: "",
		Rule: "another open file of the same path does not keep a lock (child, OpenFile.is)",
		Edits: []Edit{
			{"cmd/holdfast/child/openfile.go", `		return order == 0, nil
`, `		return order >= 0, nil
`},
		},
		By:   unit(childPkg, "^TestOpenFileIsFollowed$"),
		Dies: "of its own",
	},
}
