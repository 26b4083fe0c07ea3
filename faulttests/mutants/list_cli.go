// SPDX-License-Identifier: Apache-2.0

package mutants

// cliMutants break rules of the command line.
var cliMutants = []Mutant{
	{
		Name: "handover-of-the-unable", Also: "",
		Rule: "handover waits until the former primary could take over again (cli, couldTakeOver)",
		Edits: []Edit{
			{"cmd/holdfast/cli/status.go", `s.GetRole() == pb.Role_ROLE_REPLICA && s.GetAble()`, `s.GetRole() == pb.Role_ROLE_REPLICA`},
		},
		By:   unit(cliPkg, "^TestHandoverWaitsFor$"),
		Dies: "has no claim yet: ",
	},
	{
		Name: "stream-believes-a-lost-append", Also: "",
		Rule: "an append that is committed and not certainly in its file is a doubt (cli, settle)",
		Edits: []Edit{
			{"cmd/holdfast/cli/stream.go", `		case o.Err != nil:
			return r, &doubtError{o.Err}
`, ``},
		},
		By:   unit(cliPkg, "^TestStreamSettlesADoubt$"),
		Dies: "lost",
	},
	{
		Name: "stream-repeats-a-doubt", Also: "",
		Rule: "lines whose append may have been executed are not appended again (cli, passing)",
		Edits: []Edit{
			{"cmd/holdfast/cli/stream.go", `	if _, doubt := errors.AsType[*doubtError](err); doubt {
		return false // it could append the lines twice
	}
`, ``},
		},
		By:   unit(cliPkg, "^TestStreamSettlesADoubt$"),
		Dies: "forgotten",
	},
	{
		Name: "stream-takes-a-doubt-for-a-no", Also: "",
		Rule: "a stream asks what became of an append before it appends the lines again (cli, settle)",
		Edits: []Edit{
			{"cmd/holdfast/cli/stream.go", `	request, ok := errors.AsType[*clientlib.CallError](failed)
	if !ok {`, `	request, ok := errors.AsType[*clientlib.CallError](failed)
	if ok {
		return r, errNotExecuted
	}
	if !ok {`},
		},
		By:   unit(cliPkg, "^TestStreamSettlesADoubt$"),
		Dies: "the file is",
	},
	{
		Name: "stream-cuts-lines", Also: "",
		Rule: "a batch has whole lines (cli, batcher.batch)",
		Edits: []Edit{
			{"cmd/holdfast/cli/batch.go", `	case end, n == 0 && b.full() && b.split:`, `	case end, b.full() && b.split:`},
			{"cmd/holdfast/cli/batch.go", `	n := bytes.LastIndexByte(b.buf, '\n') + 1`, `	n := len(b.buf)`},
		},
		By:   unit(cliPkg, "^TestBatches$"),
		Dies: "whole_lines_only",
	},
	{
		Name: "stream-loses-what-did-not-fit", Also: "",
		Rule: "what has no room in a batch is kept for the next one (cli, batcher.add)",
		Edits: []Edit{
			{"cmd/holdfast/cli/batch.go", `	return data[n:]
`, `	return nil
`},
		},
		By:   unit(cliPkg, "^TestStreamSaysHowFarItCame$"),
		Dies: "got {",
	},
	{
		Name: "minutes-are-milliseconds", Also: "",
		Rule: "only a plain number is taken for seconds (cli, parseDuration)",
		Edits: []Edit{
			{"cmd/holdfast/cli/seconds.go", `strings.Trim(text, "0123456789.") == ""`, `strings.Trim(text, "0123456789.m") == ""`},
		},
		By:   unit(cliPkg, "^TestDurationsTakePlainSeconds$"),
		Dies: `"5m": got`,
	},
	{
		Name: "place-of-another-host", Also: "",
		Rule: "a process finds its place in a queue by its host, too (cli, waiting.is)",
		Edits: []Edit{
			{"cmd/holdfast/cli/waiting.go", `w.Host == locktable.HostOf("", x.host) && w.PID`, `locktable.HostOf("", x.host) != "" && w.PID`},
		},
		By:   unit(cliPkg, "^TestWaitingText$"),
		Dies: "1 before you",
	},
	{
		Name: "report-wraps", Also: "",
		Rule: "a line that reports a wait fits into the terminal (cli, reportLine)",
		Edits: []Edit{
			{"cmd/holdfast/cli/waiting.go", `len(runes) >= width {`, `len(runes) >= 10*width {`},
		},
		By:   unit(cliPkg, "^TestReportLine$"),
		Dies: "width 15",
	},
}
