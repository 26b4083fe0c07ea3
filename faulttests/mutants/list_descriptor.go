// SPDX-License-Identifier: Apache-2.0

package mutants

// descriptorMutants break rules of `holdfast flock DESCRIPTOR`, and of its command line.
var descriptorMutants = []Mutant{
	{
		Name: "help-is-the-roots", Also: "",
		Rule: "--help before a command is that of the command (cli, shareHelp)",
		Edits: []Edit{
			{"cmd/holdfast/cli/cli.go", `	c.Flags().Lookup("help").Value = help
`, ``},
		},
		By:   unit(cliPkg, "^TestHelpBeforeACommand$"),
		Dies: "--help run",
	},
	{
		Name: "changed-user-is-forgotten", Also: "",
		Rule: "a process that had the open file and may not be looked into any more has it until its end (child, OpenFile.find)",
		Edits: []Edit{
			{"cmd/holdfast/child/openfile.go", `			has = o.knows(p)
`, `			has = false
`},
		},
		By:   unit(childPkg, "^TestOpenFileOfAnotherUser$"),
		Dies: "shown.*counts as closed: true",
	},
	{
		Name: "hidden-user-is-forgotten", Also: "",
		Rule: "a process that had the open file and is not shown any more (hidepid) has it until its end (child, process.lives)",
		Edits: []Edit{
			{"cmd/holdfast/child/proc.go", `	return !errors.Is(unix.Kill(p.pid, 0), unix.ESRCH)
`, `	return errors.Is(unix.Kill(p.pid, 0), unix.EINVAL)
`},
		},
		By:   unit(childPkg, "^TestOpenFileOfAnotherUser$"),
		Dies: "hidden.*counts as closed: true",
	},
	{
		Name: "zombie-keeps-a-lock", Also: "",
		Rule: "a zombie has nothing open (child, OpenFile.keeps)",
		Edits: []Edit{
			{"cmd/holdfast/child/openfile.go", `!found || now.ended || !now.same(`, `!found || !now.same(`},
		},
		By:   unit(childPkg, "^TestZombieHasNothingOpen$"),
		Dies: "a zombie keeps it",
	},
	{
		Name: "users-are-searched-for-once", Also: "",
		Rule: "users of an open file are searched for again while the oldest stays (child, OpenFile.closed)",
		Edits: []Edit{
			{"cmd/holdfast/child/openfile.go", `o.keeps() && time.Now().Before(o.due) {`, `o.keeps() {`},
		},
		By:   unit(childPkg, "^TestUsersAreSearchedForAgain$"),
		Dies: "a search was due",
	},
	{
		Name: "guard-learns-no-users", Also: "",
		Rule: "the guard knows who had the open file before it looks itself (child, guardian.order)",
		Edits: []Edit{
			{"cmd/holdfast/child/guard.go", `		g.file.learn(p)
`, ``},
		},
		By:   unit(childPkg, "^TestOpenFileOfAnotherUser$"),
		Dies: "the guard has something to kill: false",
	},
	{
		Name: "guard-is-told-of-no-users", Also: "",
		Rule: "before anything is done under the lock the guard is told who has the open file (child, Hold)",
		Edits: []Edit{
			{"cmd/holdfast/child/hold.go", `	opt.File.find()                     // while its users are still this user's
`, ``},
		},
		By:   unit(childPkg, "^TestHoldTellsItsGuard$"),
		Dies: "the guard was told",
	},
	{
		Name: "other-lock-counts-as-held", Also: "",
		Rule: "a descriptor that has another lock does not have the one that is asked for (cli, flocking.heldFor)",
		Edits: []Edit{
			{"cmd/holdfast/cli/descriptor.go", `	case body.Lock != string(x.lock):`, `	case body.Lock == "":`},
		},
		By:   unit(cliPkg, "^TestSettle$"),
		Dies: "another lock: got",
	},
	{
		Name: "lost-lock-counts-as-held", Also: "",
		Rule: "a keeper that has lost its lock does not pass for one that has it (child, runner.end)",
		Edits: []Edit{
			{"cmd/holdfast/child/child.go", `		r.file.As(Lost) //nolint:errcheck // the loss comes first
`, `		_ = r.file
`},
		},
		By:   unit(childPkg, "^TestLossIsSeen$"),
		Dies: "has lost its lock is holdfast-holds",
	},
	{
		Name: "lost-lock-is-taken-anew", Also: "",
		Rule: "a descriptor whose processes are being ended gets no new lock (cli, flocking.heldFor)",
		Edits: []Edit{
			{"cmd/holdfast/cli/descriptor.go", `k.Role() == child.Lost && !x.unlock:`, `k.Role() == child.Lost && x.unlock && !x.unlock:`},
		},
		By:   unit(cliPkg, "^TestSettle$"),
		Dies: "lost: ",
	},
	{
		Name: "interrupt-forgets-the-keeper", Also: "",
		Rule: "a flock that is interrupted has its keeper release the lock (cli, flocking.follow)",
		Edits: []Edit{
			{"cmd/holdfast/cli/descriptor.go", `		cmd.Process.Signal(child.ReleaseSignal) //nolint:errcheck // it has ended
`, ``},
		},
		By:   unit(cliPkg, "^TestInterruptedKeeperReleases$"),
		Dies: "waits for a keeper that waits",
	},
	{
		Name: "flock-waits-for-itself", Also: "",
		Rule: "a flock that waits takes what another one of its descriptor has got (cli, flocking.converse)",
		Edits: []Edit{
			{"cmd/holdfast/cli/descriptor.go", `			if !granted && settled() { // later`, `			if settled != nil && false { // later`},
		},
		By:   unit(cliPkg, "^TestTwoAtOnceOfOneDescriptor$"),
		Dies: "waits for a keeper that waits",
	},
	{
		Name: "own-keeper-is-another", Also: "",
		Rule: "a flock whose keeper has the lock looks for no other (cli, flocking.converse)",
		Edits: []Edit{
			{"cmd/holdfast/cli/descriptor.go", `			if !granted && settled() { // later`, `			if settled() { // later`},
		},
		By:   unit(cliPkg, "^TestOwnKeeperIsNotAnother$"),
		Dies: "want token 5",
	},
	{
		Name: "keepers-keep-each-other", Also: "",
		Rule: "who waits for a lock of an open file, keeps or guards it, is not one of its users (child, OpenFile.spares)",
		Edits: []Edit{
			{"cmd/holdfast/child/openfile.go", `Role(p.name).known() || `, ``},
		},
		By:   unit(childPkg, "^TestRolesDoNotCount$"),
		Dies: "is called holdfast-waits counts",
	},
	{
		Name: "late-role-keeps-the-file", Also: "",
		Rule: "the oldest user that turns out to wait for the lock does not keep the open file (child, OpenFile.keeps)",
		Edits: []Edit{
			{"cmd/holdfast/child/openfile.go", ` || o.spares(now) {`, ` {`},
		},
		By:   unit(childPkg, "^TestRoleThatComesLater$"),
		Dies: "before it had a role",
	},
}
