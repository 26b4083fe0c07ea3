// SPDX-License-Identifier: Apache-2.0

package mutants

const (
	childPkg = "cmd/holdfast/child"
	cliPkg   = "cmd/holdfast/cli"
)

// childMutants break rules of holdfast run and its guard.
var childMutants = []Mutant{
	{
		Name: "guard-is-waited-for", Also: "",
		Rule: "the wrapper never waits for its guard: orders are written at once or not at all (child, guard.tell)",
		Edits: []Edit{
			{"cmd/holdfast/child/guard.go", `		return true // without waiting for room`, `		return !errors.Is(written, unix.EAGAIN)`},
		},
		By:   unit(childPkg, "^TestStoppedGuardDoesNotStopTheWrapper$"),
		Dies: "the wrapper waits for its guard",
	},
	{
		Name: "guard-is-waited-for-at-the-end", Also: "",
		Rule: "the end of a run waits for its guard only a moment (child, guard.dismiss)",
		Edits: []Edit{
			{"cmd/holdfast/child/guard.go", `	g.cmd.Process.Kill() //nolint:errcheck // it has ended
	ended := make`, `	g.pipe.Close()
	ended := make`},
			{"cmd/holdfast/child/guard.go", `	case <-time.After(dismissLimit):
	}
	g.pipe.Close() //nolint:errcheck // a pipe
`, `	}
`},
		},
		By:   unit(childPkg, "^TestStoppedGuardDoesNotKeepTheLock$"),
		Dies: "Run waits for its guard",
	},
	{
		Name: "unguarded-runs-on", Also: "",
		Rule: "a command whose guard is gone is ended (child, look)",
		Edits: []Edit{
			{"cmd/holdfast/child/child.go", `		} else if err := r.extend(); err != nil {
			r.end(err)
		}`, `		} else if err := r.extend(); err != nil {
			r.guard = nil
		}`},
		},
		By:   unit(childPkg, "^TestKilledGuardEndsTheCommand$"),
		Dies: "the command runs on",
	},
	{
		Name: "guard-goes-by-the-past", Also: "",
		Rule: "a guard reads all that was written before it judges the time (child, Guard)",
		Edits: []Edit{
			{"cmd/holdfast/child/guard.go", `	for in.ready(limit) {
		limit = 0
`, `	if in.ready(limit) {
`},
			{"cmd/holdfast/child/guard.go", `	buf := make([]byte, pipeSize)`, `	buf := make([]byte, 16)`},
			{"cmd/holdfast/child/guard.go", `		if errors.Is(err, unix.EINTR) {
			continue
		}
		if in.ended = n <= 0; in.ended {
			break
		}
		in.rest = append(in.rest, buf[:n]...)`, `		_ = err
		if in.ended = n <= 0; !in.ended {
			in.rest = append(in.rest, buf[:n]...)
		}`},
		},
		By:   unit(childPkg, "^TestContinuedGuardReadsBeforeItJudges$"),
		Dies: "a guard that was stopped has killed a command whose lease was renewed",
	},
	{
		Name: "guard-forgets-its-last-orders", Also: "",
		Rule: "orders that came with the end of the pipe count (child, Guard)",
		Edits: []Edit{
			{"cmd/holdfast/child/guard.go", `open = g.order(strings.Fields(line)) && open //`, `open = open && g.order(strings.Fields(line)) //`},
		},
		By:   unit(childPkg, "^TestGuardTakesItsLastOrders$"),
		Dies: "what it was told of last lives",
	},
	{
		Name: "guard-kills-by-number", Also: "",
		Rule: "a group's number is the command's only while its leader is the process that it was (child, guardian.leads)",
		Edits: []Edit{
			{"cmd/holdfast/child/guard.go", `	return ok && now.start == g.leader.start`, `	return ok && now.start != 0`},
		},
		By:   unit(childPkg, "^TestANumberThatWasGivenAwayIsNoGroup$"),
		Dies: "the number is a stranger's: got true",
	},
	{
		Name: "guard-ends-with-the-terminal", Also: "",
		Rule: "a guard outlives the signals that end all others (child, Guard)",
		Edits: []Edit{
			{"cmd/holdfast/child/guard.go", `	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
`, `	signal.Ignore(syscall.SIGINT)
`},
		},
		By:   unit(childPkg, "^TestGuardOutlivesSignalsToAll$"),
		Dies: "for the guard to ignore signals",
	},
	{
		Name: "guard-not-extended-in-the-sweep", Also: "",
		Rule: "what the command left has its grace, whatever the guard knew when the command ended (child, sweep)",
		Edits: []Edit{
			{"cmd/holdfast/child/child.go", `		if r.lost == nil {
			r.extend() //nolint:errcheck // the tree is ending anyway
		}
`, ``},
		},
		By:   unit(childPkg, "^TestSweepExtendsTheGuard$"),
		Dies: "the guard was told \"\"",
	},
	{
		Name: "guard-looks-once", Also: "",
		Rule: "the guard goes on until nothing of the tree was found (child, guardian.sweep)",
		Edits: []Edit{
			{"cmd/holdfast/child/guard.go", `	signalAll(live, syscall.SIGKILL)
	if g.quiet++; len(live) > 0 ||`, `	if g.quiet++; len(live) > 0 && false ||`},
		},
		By:   unit(childPkg, "^TestGuardTakesItsLastOrders$"),
		Dies: "what it was told of last lives",
	},
	{
		Name: "guard-works-by-descent-alone", Also: "",
		Rule: "among the heir's children those with the mark are the command's (child, tree.find)",
		Edits: []Edit{
			{"cmd/holdfast/child/tree.go", `if t.alone && heir == t.wrapper || p.marked(t.mark) {`, `if t.alone && heir == t.wrapper {`},
		},
		By:   unit(childPkg, "^TestDaemonsEndBeforeTheLease$"),
		Dies: "wrapper_killed",
	},
	{
		Name: "heirs-children-are-all-ours", Also: "",
		Rule: "the heir of a dead wrapper has children that are not the command's (child, tree.find)",
		Edits: []Edit{
			{"cmd/holdfast/child/tree.go", `if t.alone && heir == t.wrapper || p.marked(t.mark) {`, `if t.alone || p.marked(t.mark) {`},
		},
		By:   unit(childPkg, "^TestStrangersLive$"),
		Dies: "was a stranger and is gone",
	},
	{
		Name: "wrapper-takes-all-children", Also: "",
		Rule: "what this process had before is not the command's (child, newTree)",
		Edits: []Edit{
			{"cmd/holdfast/child/tree.go", `	t.spared, _ = ownChildren()
	t.alone = len(t.spared) == 0
`, `	t.alone = true
`},
		},
		By:   unit(childPkg, "^TestStrangersOfTheWrapperLive$"),
		Dies: "the stranger is gone: true",
	},
	{
		Name: "older-is-ours", Also: "",
		Rule: "what is older than this process is not the command's (child, tree.find)",
		Edits: []Edit{
			{"cmd/holdfast/child/tree.go", `if t.spares(p.pid) || p.start < t.since {`, `if t.spares(p.pid) {`},
		},
		By:   unit(childPkg, "^TestWhatIsOlderIsNotOurs$"),
		Dies: "older than its guard is taken for ours",
	},
	{
		Name: "signal-to-a-number", Also: "",
		Rule: "a signal goes to the process that was looked at, not to whoever has its number by now (child, process.signal)",
		Edits: []Edit{
			{"cmd/holdfast/child/proc.go", `if now, ok := readProcess(p.pid); !ok || now.start != p.start {`, `if _, ok := readProcess(p.pid); !ok {`},
		},
		By:   unit(childPkg, "^TestSignalMeansThisVeryProcess$"),
		Dies: "taken for the one that had its number before",
	},
	{
		Name: "inner-mark-only", Also: "",
		Rule: "a run within a run carries both marks (child, withMark)",
		Edits: []Edit{
			{"cmd/holdfast/child/proc.go", `			mark = outer + markSeparator + mark
`, `			_ = outer
`},
		},
		By:   unit(childPkg, "^TestNestedRuns$"),
		Dies: "the marks of two runs",
	},
	{
		Name: "lines-are-waited-for", Also: "",
		Rule: "nothing waits for who reads what the wrapper says (child, speaker.say)",
		Edits: []Edit{
			{"cmd/holdfast/child/speaker.go", `	case s.lines <- text:
	default:
`, `	case s.lines <- text:
`},
		},
		By:   unit(childPkg, "^TestLinesThatNobodyReads$"),
		Dies: "deadlock",
	},
	{
		Name: "said-in-the-loop", Also: "",
		Rule: "what the wrapper says is said beside the loop that watches the lease (child, speaker)",
		Edits: []Edit{
			{"cmd/holdfast/child/speaker.go", `	select {
	case s.lines <- text:
	default:
	}`, `	s.lines <- text
	for len(s.lines) > 0 {
		<-time.After(time.Millisecond)
	}
	s.lines <- "" // until it was read
	for len(s.lines) > 0 {
		<-time.After(time.Millisecond)
	}`},
		},
		By:   unit(childPkg, "^TestUnreadLinesHoldNothingUp$"),
		Dies: "the lease was renewed all the time|waits for whoever reads",
	},
	{
		Name: "lines-end-unread", Also: "",
		Rule: "the end of a run waits a moment for who reads slowly (child, speaker.end)",
		Edits: []Edit{
			{"cmd/holdfast/child/speaker.go", `	case <-time.After(sayLimit):`, `	default:`},
		},
		By:   unit(childPkg, "^TestLinesAreReadBeforeTheEnd$"),
		Dies: "said",
	},
	{
		Name: "survivors-unsaid", Also: "",
		Rule: "what SIGKILL does not end is named, again and again (child, strike)",
		Edits: []Edit{
			{"cmd/holdfast/child/child.go", `		r.complainAt = now.Add(complainEvery)
`, `		r.complainAt = now.Add(1000 * complainEvery)
`},
		},
		By:   unit(childPkg, "^TestSurvivorsAreNamedEachMinute$"),
		Dies: "want 2 lines",
	},
	{
		Name: "survivors-are-left", Also: "",
		Rule: "Run does not return while something of the command lives (child, sweep)",
		Edits: []Edit{
			{"cmd/holdfast/child/child.go", `			r.strike(live)
		default:
			pause`, `			if r.strike(live); !r.complainAt.IsZero() {
				return
			}
		default:
			pause`},
		},
		By:   unit(childPkg, "^TestWhatSIGKILLDoesNotEndIsNamed$"),
		Dies: "word of what does not end",
	},
	{
		Name: "guards-kill-is-no-loss", Also: "",
		Rule: "a command that the guard killed has lost its lock (child, noteEnd)",
		Edits: []Edit{
			{"cmd/holdfast/child/child.go", `	if r.lost == nil {
		r.lost = cmp.Or(context.Cause(r.lease.Context()), ErrNotRenewed)
	}
`, ``},
		},
		By:   unit(childPkg, "^TestTheGuardsKillIsALoss$"),
		Dies: "killed by the guard: lost <nil>",
	},
	{
		Name: "guards-kill-is-the-wrappers", Also: "",
		Rule: "what the guard has killed is not told as the wrapper's work (child, kill)",
		Edits: []Edit{
			{"cmd/holdfast/child/child.go", `found && !p.ended {
		if !r.shot`, `found || p.ended {
		if !r.shot`},
		},
		By:   unit(childPkg, "^TestWhoIsDeadIsNotKilled$"),
		Dies: "lines about a SIGKILL",
	},
	{
		Name: "reserve-without-grace", Also: "",
		Rule: "SIGTERM comes a grace period before the lease is given up (child, reserve)",
		Edits: []Edit{
			{"cmd/holdfast/child/child.go", `		return r.opt.Grace + r.opt.Margin
`, `		return r.opt.Margin
`},
		},
		By:   unit(childPkg, "^TestTheGraceIsBeforeTheEnd$"),
		Dies: "want code 5",
	},
	{
		Name: "margin-unkept", Also: "",
		Rule: "the tree is dead a margin before the end of the lease, whatever its grace (child, look)",
		Edits: []Edit{
			{"cmd/holdfast/child/child.go", `if r.killed || left <= r.opt.Margin || `, `if r.killed || `},
			{"cmd/holdfast/child/child.go", `time.Duration { return r.opt.Margin / 2 }`, `time.Duration { return -r.opt.Margin }`},
		},
		By:   unit(childPkg, "^TestTheLeaseBoundsTheGrace$"),
		Dies: "after the lease",
	},
	{
		Name: "kill-is-asked-first", Also: "",
		Rule: "with --on-lost kill there is no word before the end (child, grace)",
		Edits: []Edit{
			{"cmd/holdfast/child/child.go", `	if r.opt.OnLost == Kill && r.lost != nil {
		return 0
`, `	if r.opt.OnLost == Kill && r.lost != nil {
		return time.Second
`},
		},
		By:   unit(childPkg, "^TestKillOnLoss$"),
		Dies: "it was asked to end",
	},
	{
		Name: "leave-is-guarded", Also: "",
		Rule: "with --on-lost leave the command outlives the wrapper (child, start)",
		Edits: []Edit{
			{"cmd/holdfast/child/group.go", `		if opt.OnLost != Leave {
			attr`, `		if opt.Path != "" {
			attr`},
		},
		By:   unit(childPkg, "^TestLeaveWhenTheWrapperIsKilled$"),
		Dies: "was ended",
	},
	{
		Name: "command-outlives-its-wrapper", Also: "",
		Rule: "the kernel ends the command with its wrapper, also without a guard (child, start)",
		Edits: []Edit{
			{"cmd/holdfast/child/group.go", `			attr.Pdeathsig = syscall.SIGKILL
`, `			attr.Pdeathsig = syscall.SIGCONT
`},
		},
		By:   unit(childPkg, "^TestTheKernelEndsTheCommandWithItsWrapper$"),
		Dies: "for the end of the command",
	},
	{
		Name: "sweep-without-a-word", Also: "",
		Rule: "what the command left is asked before it is killed (child, sweep)",
		Edits: []Edit{
			{"cmd/holdfast/child/child.go", `			asked = true
			r.speaker`, `			asked, r.killAt = true, time.Now()
			continue
			r.speaker`},
		},
		By:   unit(childPkg, "^TestWhatIsLeftIsAskedFirst$"),
		Dies: "was not asked",
	},
	{
		Name: "orphans-unreaped", Also: "",
		Rule: "what has ended of a command that runs for months is reaped (child, wait)",
		Edits: []Edit{
			{"cmd/holdfast/child/child.go", `				r.tree.reap(r.group.leader.pid)
`, ``},
		},
		By:   unit(childPkg, "^TestOrphansAreReaped$"),
		Dies: "for the end of a zombie",
	},
	{
		Name: "reaped-group-is-signalled", Also: "",
		Rule: "no signal goes to the number of a group whose leader was reaped (child, group.signal)",
		Edits: []Edit{
			{"cmd/holdfast/child/group.go", `	if !g.mu.reaped {
		syscall`, `	if g.leader.pid != 0 {
		syscall`},
		},
		By:   unit(childPkg, "^TestNoSignalToAReapedGroup$"),
		Dies: "was signalled",
	},
	{
		Name: "jeopardy-warned-each-tick", Also: "",
		Rule: "the command is warned once of each jeopardy (child, warn)",
		Edits: []Edit{
			{"cmd/holdfast/child/child.go", `	case why != nil && !r.warned:`, `	case why != nil:`},
		},
		By:   unit(childPkg, "^TestWarning$"),
		Dies: "word of the jeopardy|warnings for three times",
	},
	{
		Name: "ask-leaves-the-stopped-asleep", Also: "",
		Rule: "a stopped command hears that it is asked to let go (child, pass)",
		Edits: []Edit{
			{"cmd/holdfast/child/child.go", `			r.group.signal(syscall.SIGCONT) // a stopped command would not handle the signal
`, ``},
		},
		By:   unit(childPkg, "^TestAStoppedCommandHears$"),
		Dies: "asked to let go",
	},
	{
		Name: "end-leaves-the-stopped-asleep", Also: "",
		Rule: "a stopped process hears SIGTERM (child, ask)",
		Edits: []Edit{
			{"cmd/holdfast/child/child.go", `	signalAll(live, syscall.SIGTERM, syscall.SIGCONT) //`, `	signalAll(live, syscall.SIGTERM) //`},
		},
		By:   unit(childPkg, "^TestAStoppedCommandHears$"),
		Dies: "lost lock",
	},
	{
		Name: "every-piece-at-the-first-offset", Also: "",
		Rule: "with --split and --at each piece goes behind the one before (cli, append)",
		Edits: []Edit{
			{"cmd/holdfast/cli/append.go", `		if x.at >= 0 { // of the next piece
			x.at = r.GetReceipt().GetOffset() + r.GetReceipt().GetLength()
		}
`, ``},
		},
		By:   unit(cliPkg, "^TestPiecesGoBehindEachOther$"),
		Dies: "of 2621440 bytes",
	},
	{
		Name: "repeat-of-other-data", Also: "",
		Rule: "a repeat of an append has the same data (cli, append; PROTOCOL 12.2)",
		Edits: []Edit{
			{"cmd/holdfast/cli/append.go", `	return crc32.Checksum(data[:n], crc32.MakeTable(crc32.Castagnoli)) == r.GetCrc32C()`, `	return crc32.Checksum(data[:n], crc32.MakeTable(crc32.Castagnoli)) != 1`},
		},
		By:   unit(cliPkg, "^TestRepeatOfAnAppendIsOfTheSameData$"),
		Dies: "other, as long",
	},
	{
		Name: "repeat-of-less-data", Also: "",
		Rule: "only with --split may a repeat have more than was appended (cli, append)",
		Edits: []Edit{
			{"cmd/holdfast/cli/append.go", `n > int64(len(data)), n < int64(len(data)) && !x.split:`, `n > int64(len(data)):`},
		},
		By:   unit(cliPkg, "^TestRepeatOfAnAppendIsOfTheSameData$"),
		Dies: "longer",
	},
	{
		Name: "repeat-of-an-append-elsewhere", Also: "",
		Rule: "a repeat with --at is of an append at that offset (cli, append)",
		Edits: []Edit{
			{"cmd/holdfast/cli/append.go", `x.at >= 0 && r.GetOffset() != x.at`, `x.at >= 0 && r.GetOffset() > x.at`},
		},
		By:   unit(cliPkg, "^TestRepeatOfAnAppendIsOfTheSameData$"),
		Dies: "elsewhere",
	},
	{
		Name: "repeat-skips-what-grew", Also: "",
		Rule: "what a piece has beyond its receipt is appended under the next ID (cli, append)",
		Edits: []Edit{
			{"cmd/holdfast/cli/append.go", `		if data = data[n:]; len(data) > 0 {
			continue // an earlier run had less to append
		}
`, `		_ = n
`},
		},
		By:   unit(cliPkg, "^TestRepeatOfASplitAppendThatGrew$"),
		Dies: "bytes in the file",
	},
	{
		Name: "repeat-takes-the-lock-for-less", Also: "",
		Rule: "a repeat needs no lock only if all of it was executed (cli, append)",
		Edits: []Edit{
			{"cmd/holdfast/cli/append.go", `err != nil || n == len(first) {`, `err != nil || n > 0 {`},
		},
		By:   unit(cliPkg, "^TestRepeatOfASplitAppendThatGrew$"),
		Dies: "bytes in the file",
	},
	{
		Name: "unknown-piece-unnamed", Also: "",
		Rule: "of several pieces the one that nobody answered is named (cli, append)",
		Edits: []Edit{
			{"cmd/holdfast/cli/append.go", `		x.app.request = id
`, ``},
		},
		By:   unit(cliPkg, "^TestUnknownPieceIsNamed$"),
		Dies: "holdfast outcome",
	},
	{
		Name: "unknown-piece-repeated-as-the-first", Also: "",
		Rule: "a command is repeated with the ID of its first piece (cli, advice)",
		Edits: []Edit{
			{"cmd/holdfast/cli/exit.go", `cmp.Or(a.first, id.request)`, `cmp.Or(id.request, a.first)`},
		},
		By:   unit(cliPkg, "^TestUnknownPieceIsNamed$"),
		Dies: "--request-id 1:",
	},
	{
		Name: "token-of-another-lock", Also: "",
		Rule: "the token of the run above is for its lock only (cli, above)",
		Edits: []Edit{
			{"cmd/holdfast/cli/within.go", `	if a.Getenv(envLock) != lock {`, `	if a.Getenv(envLock) == "" {`},
		},
		By:   unit(cliPkg, "^TestTheTokenOfTheRunAbove$"),
		Dies: "renew other, in a run",
	},
	{
		Name: "token-at-other-servers", Also: "",
		Rule: "the token of the run above is for its servers only (cli, above)",
		Edits: []Edit{
			{"cmd/holdfast/cli/within.go", `return slices.Contains(theirs, s) }) {`, `return !slices.Contains(theirs, s) && len(theirs) > 9 }) && a.Getenv(envToken) == "" {`},
		},
		By:   unit(cliPkg, "^TestTheTokenOfTheRunAbove$"),
		Dies: "at other servers",
	},
	{
		Name: "token-flag-unheard", Also: "",
		Rule: "--token comes before the token of the run above (cli, ownToken)",
		Edits: []Edit{
			{"cmd/holdfast/cli/within.go", `	if c.Flags().Changed("token") {`, `	if flag != 0 && a.Getenv(envLock) != lock {`},
		},
		By:   unit(cliPkg, "^TestTheTokenOfTheRunAbove$"),
		Dies: "--token 5, in a run",
	},
	{
		Name: "nested-run-waits", Also: "",
		Rule: "a run does not wait for the run that it is part of (cli, acquireWithin)",
		Edits: []Edit{
			{"cmd/holdfast/cli/within.go", `	if _, ended := client.Verify(ctx, r.lock, token); ended == nil {`, `	if _, ended := client.Verify(ctx, r.lock, token+1); ended == nil {`},
		},
		By:   unit(cliPkg, "^TestRunWithinARun$"),
		Dies: "a word of the run above",
	},
	{
		Name: "nested-run-never-waits", Also: "",
		Rule: "when the run above has lost the lock, a nested one waits for it like any other (cli, acquireWithin)",
		Edits: []Edit{
			{"cmd/holdfast/cli/within.go", `	if _, ended := client.Verify(ctx, r.lock, token); ended == nil {`, `	if _, ended := client.Verify(ctx, r.lock, token); ended == nil || r != nil {`},
		},
		By:   unit(cliPkg, "^TestRunWithinARun$"),
		Dies: "want that it waits",
	},
	{
		Name: "outer-lock-stays", Also: "",
		Rule: "the environment of a command names one lock, the innermost (cli, environment)",
		Edits: []Edit{
			{"cmd/holdfast/cli/run.go", `			return strings.HasPrefix(e, name+"=")`, `			return strings.HasPrefix(e, name+"=") && name != envLock`},
		},
		By:   unit(cliPkg, "^TestRunPassesTheLockOn$"),
		Dies: "want the environment",
	},
	{
		Name: "lost-exit-code-fixed", Also: "",
		Rule: "--lost-exit-code says how a loss ends (cli, end)",
		Edits: []Edit{
			{"cmd/holdfast/cli/run.go", `		r.app.code = r.lost.code
`, `		r.app.code = exitLost
`},
		},
		By:   unit(cliPkg, "^TestRunEndsOtherwise$"),
		Dies: "want code 33",
	},
	{
		Name: "lock-before-the-command", Also: "",
		Rule: "a command that is not there is known before anybody waits for a lock (cli, run)",
		Edits: []Edit{
			{"cmd/holdfast/cli/run.go", `	path, err := lookPath(r.args[0])
	if err != nil {
		return err
	}
	client, end`, `	path, missing := lookPath(r.args[0])
	client, end`},
			{"cmd/holdfast/cli/run.go", `	lock, err := r.acquire(ctx, client)
	if err != nil {
		return err
	}
`, `	r.lease.wait = "0"
	lock, err := r.acquire(ctx, client)
	if err != nil {
		return err
	}
	if missing != nil {
		return missing
	}
`},
		},
		By:   unit(cliPkg, "^TestRunPassesTheLockOn$"),
		Dies: "was wanted 2 times",
	},
	{
		Name: "run-keeps-its-lock", Also: "",
		Rule: "the lock is released when the command has ended (cli, run)",
		Edits: []Edit{
			{"cmd/holdfast/cli/run.go", `	if lock.Context().Err() != nil && !done {
`, `	if lock.Token() != 0 {
`},
		},
		By:   unit(cliPkg, "^TestRunPassesTheLockOn$"),
		Dies: "token 17 is live",
	},
	{
		Name: "run-tells-on-standard-output", Also: "",
		Rule: "the standard output of run is the command's (cli, end)",
		Edits: []Edit{
			{"cmd/holdfast/cli/run.go", `		return writeJSON(r.app.Stderr, out)`, `		return writeJSON(r.app.Stdout, out)`},
		},
		By:   unit(cliPkg, "^TestRunPassesTheLockOn$"),
		Dies: "want the environment",
	},
	{
		Name: "signals-stay-with-run", Also: "",
		Rule: "signals are the command's while it runs (cli, commandSignals)",
		Edits: []Edit{
			{"cmd/holdfast/cli/run.go", `syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP`, `syscall.SIGINT, syscall.SIGHUP`},
		},
		By:   unit(cliPkg, "^TestRunEndsOtherwise$"),
		Dies: "want the command.s exit code 9",
	},
	{
		Name: "grace-beyond-half", Also: "",
		Rule: "--grace leaves a renewal its time (cli, lossFlags)",
		Edits: []Edit{
			{"cmd/holdfast/cli/runloss.go", `f.grace < 0 || f.grace > ttl/2`, `f.grace < 0 || f.grace > ttl`},
		},
		By:   unit(cliPkg, "^TestRunRefusesWhatCannotWork$"),
		Dies: "--grace 16s",
	},
	{
		Name: "warning-without-time", Also: "",
		Rule: "a warning leaves time before the command is ended (cli, lossFlags)",
		Edits: []Edit{
			{"cmd/holdfast/cli/runloss.go", `longest := ttl*2/5 - margin;`, `longest := ttl/2 - margin;`},
		},
		By:   unit(cliPkg, "^TestRunRefusesWhatCannotWork$"),
		Dies: "--grace 12s --warn USR1",
	},
	{
		Name: "warned-by-a-kill", Also: "",
		Rule: "a warning is a signal that the command can catch (cli, lossFlags)",
		Edits: []Edit{
			{"cmd/holdfast/cli/runloss.go", `s == 0 || s == syscall.SIGKILL || s == syscall.SIGSTOP {`, `s == 0 || s == syscall.SIGSTOP {`},
			{"cmd/holdfast/cli/runloss.go", `f.asked() == syscall.SIGKILL || `, ``},
		},
		By:   unit(cliPkg, "^TestRunRefusesWhatCannotWork$"),
		Dies: "a signal that the command can catch",
	},
	{
		Name: "max-hold-below-the-lease", Also: "",
		Rule: "--max-hold is at least a lease (cli, hungFlags)",
		Edits: []Edit{
			{"cmd/holdfast/cli/runprogress.go", `f.maxHold != 0 && f.maxHold < ttl`, `f.maxHold < 0`},
		},
		By:   unit(cliPkg, "^TestRunRefusesWhatCannotWork$"),
		Dies: "--max-hold 29s",
	},
}
