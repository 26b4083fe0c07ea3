// SPDX-License-Identifier: Apache-2.0

package mutants

const childPkg = "cmd/holdfast/child"

// childMutants break rules of holdfast run and its guard.
var childMutants = []Mutant{
	{
		Name: "guard-is-waited-for", Also: "",
		Rule: "the wrapper never waits for its guard: orders are written at once or not at all (child, guard.tell)",
		Edits: []Edit{
			{"cmd/holdfast/child/guard.go", `return !errors.Is(written, unix.EINTR)`, `return !errors.Is(written, unix.EINTR) && !errors.Is(written, unix.EAGAIN)`},
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
			{"cmd/holdfast/child/child.go", `		case code := <-r.group.ended:
			r.noteEnd(code)
`, `		case code := <-r.group.ended:
			if r.lost != nil {
				r.noteEnd(code)
			}
`},
			{"cmd/holdfast/child/child.go", `			r.look()
			select {`, `			select {
			case <-time.After(time.Hour):
			default:
				if r.lease.Remaining() > r.opt.Margin/4 {
					r.look()
				}
			}
			select {`},
		},
		By:   unit(childPkg, "^TestGroupEndsWithAStoppedWrapper$"),
		Dies: "its guard has killed the command",
	},
	{
		Name: "guards-kill-is-the-wrappers", Also: "",
		Rule: "what the guard has killed is not told as the wrapper's work (child, kill)",
		Edits: []Edit{
			{"cmd/holdfast/child/child.go", `found && !p.ended {
		if !r.shot`, `found || p.ended {
		if !r.shot`},
		},
		By:   unit(childPkg, "^TestGroupEndsWithAStoppedWrapper$"),
		Dies: "did not end by itself",
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
			{"cmd/holdfast/child/child.go", `	r.killAt = time.Now().Add(r.grace())`, `	r.killAt = time.Now().Add(2 * r.grace())`},
			{"cmd/holdfast/child/child.go", `time.Duration { return r.opt.Margin / 2 }`, `time.Duration { return -r.opt.Margin }`},
		},
		By:   unit(childPkg, "^TestGrandchildrenEndBeforeTheLease$"),
		Dies: "after the lease",
	},
	{
		Name: "kill-is-asked-first", Also: "",
		Rule: "with --on-lost kill there is no word before the end (child, grace)",
		Edits: []Edit{
			{"cmd/holdfast/child/child.go", `	if r.opt.OnLost == Kill && r.lost != nil {
		return 0
	}
`, ``},
		},
		By:   unit(childPkg, "^TestKillOnLoss$"),
		Dies: "it was asked to end|timed out|panic: test",
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
		Dies: "for the end of zombies",
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
		Dies: "warning",
	},
	{
		Name: "ask-leaves-the-stopped-asleep", Also: "",
		Rule: "a stopped command hears that it is asked to let go (child, pass)",
		Edits: []Edit{
			{"cmd/holdfast/child/child.go", `			r.group.signal(syscall.SIGCONT) // a stopped command would not hear of it
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
}
