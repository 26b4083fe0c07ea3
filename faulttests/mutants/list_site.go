// SPDX-License-Identifier: Apache-2.0

package mutants

// siteMutants break rules of sites whose processes die, and of the judge of their logs.
var siteMutants = []Mutant{
	{
		Name: "servers-outlive-their-supervisor",
		Rule: "no server outlives a supervisor that was killed (package supervisor)",
		Edits: []Edit{
			{"cmd/holdfast/supervisor/process.go", `Setpgid: true, Pdeathsig: syscall.SIGTERM}`, `Setpgid: true}`},
		},
		By:   unit("cmd/holdfast/supervisor", "^TestServersEndWithTheirSupervisor$"),
		Dies: `its servers live on`,
	},
	{
		Name: "judge-names-of-any-cell",
		Rule: "no record of a cell's log has a name of another cell (PROTOCOL 23.2)",
		Edits: []Edit{
			{"faulttests/check/reference.go", `	x.foreign(r, bad)
`, ``},
			{"faulttests/check/cell.go", `func (x *reference) foreign(`, `func (x *reference) Foreign(`},
		},
		By:   unit("faulttests/check", "^TestLogOfACell$"),
		Dies: `another's: found \[\], want \[I2\]`,
	},
	{
		Name: "judge-becomes-a-cell-any-time",
		Rule: "a log says once, and before it has names, what the cell owns (PROTOCOL 23.2)",
		Edits: []Edit{
			{"faulttests/check/cell.go", `	if x.cell != nil || len(x.locks)+len(x.files)+len(x.marks) > 0 {
`, `	if x.cell != nil && len(x.locks)+len(x.files)+len(x.marks) > 0 {
`},
		},
		By:   unit("faulttests/check", "^TestLogOfACell$"),
		Dies: `becomes it late: found \[\].*said twice: found \[\]|said twice: found \[\].*becomes it late: found \[\]`,
	},
	{
		Name: "judge-takes-the-shortest-pin",
		Rule: "the judge gives each name to the cell that has it (PROTOCOL 23.1)",
		Edits: []Edit{
			{"faulttests/check/cell.go", `len(p.Prefix) > longest {`, `longest == 0 {`},
		},
		By:   unit("faulttests/check", "^TestDivisionOfTheJudge$"),
		Dies: `has "b/c/`,
	},
	{
		Name: "stuck-server-stays",
		Rule: "a server that is stuck, and does not end by SIGABRT, is killed (package supervisor, listen)",
		Edits: []Edit{
			{"cmd/holdfast/supervisor/process.go", `			p.Signal(syscall.SIGKILL)
`, ``},
		},
		By:   unit("cmd/holdfast/supervisor", "^TestStuckServerIsEnded$"),
		Dies: `a server is not started again`,
	},
	{
		Name: "own-is-not-told",
		Rule: "a server knows from its volume which names its cell has, and tells it (PROTOCOL 23.8)",
		Edits: []Edit{
			{"cmd/holdfast/serve/cells.go", `	p.cells.owns = own
`, ``},
		},
		By:   unit("cmd/holdfast/serve", "^TestOnlyTheRightCellIsServed$"),
		Dies: `it owns`,
	},
}
