// SPDX-License-Identifier: Apache-2.0

package mutants

// wordsMutants break rules of what people are told: who holds a lock, and when something was.
var wordsMutants = []Mutant{
	{
		Name: "user-unbounded", Also: "",
		Rule:  "what a client says of its process fits in what servers take (wire, NewHolder)",
		Edits: []Edit{{"shared/wire/person.go", `cluster.MaxText-len("@")-len(h.User)`, `cluster.MaxText`}},
		By:    unit("shared/wire", "^TestNewHolder$"),
		Dies:  `got 64 bytes of user, 256 of host`,
	},
	{
		Name: "host-split-at-the-first", Also: "",
		Rule:  "a user with an @ is told from its host (locktable, Holder)",
		Edits: []Edit{{"shared/locktable/record.go", `strings.LastIndexByte(h.Host, '@')`, `strings.IndexByte(h.Host, '@')`}},
		By:    unit("shared/wire/convert", "^TestHolderHasAUser$"),
		Dies:  `alice@example.org@web3 PID:0 Command:} is told as`,
	},
	{
		Name: "own-word-unmarked", Also: "",
		Rule:  "beside a proven identity, what a client says of itself is marked (wire, Person)",
		Edits: []Edit{{"shared/wire/person.go", `p.Identity + ", calling itself " + self`, `p.Identity + ", " + self`}},
		By:    unit("shared/wire", "^TestPerson$"),
		Dies:  `is shown as "service:ci, alice`,
	},
	{
		Name: "secret-as-script", Also: "",
		Rule:  "the command of sh -c is no script, and is not told (cli, programName)",
		Edits: []Edit{{"cmd/holdfast/cli/program.go", `return "abefhkmnptuvxBCEHPT", true`, `return "abcefhkmnptuvxBCEHPT", true`}},
		By:    unit("cmd/holdfast/cli", "^TestProgramName$"),
		Dies:  `"sh -c secret" is "secret"`,
	},
	{
		Name: "time-in-another-zone", Also: "",
		Rule:  "text has times in the zone of its reader (cli, timeText)",
		Edits: []Edit{{"cmd/holdfast/cli/times.go", `	text := at.In(now.Location()).Format(timeLayout)`, `	text := at.Format(timeLayout)`}},
		By:    unit("cmd/holdfast/cli", "^TestTimeText$"),
		Dies:  `is shown as "2026-03-29 19:00:00`,
	},
	{
		Name: "json-in-local-time", Also: "",
		Rule:  "JSON has times in UTC, wherever it is written (wire, Moment)",
		Edits: []Edit{{"shared/wire/json.go", `time.UnixMilli(int64(m)).UTC().Format(momentLayout)`, `time.UnixMilli(int64(m)).In(time.FixedZone("", 3600)).Format(momentLayout)`}},
		By:    unit("shared/wire", "^TestMoment$"),
		Dies:  `is written as "2026-03-29T02:30:00.123Z"`,
	},
}
