// SPDX-License-Identifier: Apache-2.0

package mutants

// pendingMutants break what fsck says of appends that the log has and their files lack.
var pendingMutants = []Mutant{
	{
		Name: "fsck-pending-unsaid",
		Rule: "fsck tells of the bytes that a power cut took from files, and that the log has (shared/volume)",
		Edits: []Edit{
			{"shared/volume/fsck/files.go", `		case c.Pending.Bytes > 0:
`, `		case c.Pending.Bytes > 0 && k.serving:
`},
		},
		By: unit("shared/volume", "^TestFsckTellsWhatIsPending$"), Dies: `0 bytes of 0 files are pending, want 17`,
	},
	{
		Name: "fsck-hole-uncounted",
		Rule: "zeros among the bytes that the log has are pending, too: a file may be as long as it should be, and lack them (shared/volume)",
		Edits: []Edit{
			{"shared/volume/internal/inspect/inspect.go", `			c.Pending.add(rec, at, 1)
`, `			_ = at
`},
		},
		By: unit("shared/volume", "^TestFsckCountsWhatAPowerCutTook$"), Dies: `bytes are pending, want`,
	},
	{
		Name: "fsck-torn-counted-whole",
		Rule: "of an append that is in its file in part, what is missing is pending (shared/volume)",
		Edits: []Edit{
			{"shared/volume/internal/inspect/inspect.go", `c.Pending.add(rec, rec.Offset+n, cut)`, `c.Pending.add(rec, rec.Offset, int64(len(rec.Data)))`},
		},
		By: unit("shared/volume", "^TestFsckTellsWhatIsPending$"), Dies: `17 bytes of 1 files are pending, want 12`,
	},
	{
		Name: "fsck-blames-servers-that-wait",
		Rule: "only beside the primary of the newest term are missing bytes something to look at (shared/volume)",
		Edits: []Edit{
			{"shared/volume/fsck/fsck.go", `k.serving = slices.Contains(held, layout.EpochDir(e.Epoch)+"/"+layout.ClaimName)`, `k.serving = len(held) > 0`},
		},
		By: unit("shared/volume", "^TestFsckTellsAPrimaryFromServersThatWait$"), Dies: `beside servers that wait: running true, warning file-lags`,
	},
	{
		Name: "fsck-pending-unsummed",
		Rule: "fsck ends with how much is pending, for who reads files without servers (cmd/holdfast/cli)",
		Edits: []Edit{
			{"cmd/holdfast/cli/volume.go", `	if r.PendingBytes > 0 {
`, `	if r.PendingBytes > 0 && r.Errors > 0 {
`},
		},
		By: unit("cmd/holdfast/cli", "^TestFsckOfAVolumeWithAPendingAppend$"), Dies: `fsck: got`,
	},
}
