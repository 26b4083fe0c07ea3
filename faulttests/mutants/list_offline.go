// SPDX-License-Identifier: Apache-2.0

package mutants

// offlineMutants break rules of zeroed and missing parts of a volume, fsck and recover.
var offlineMutants = []Mutant{
	{
		Name: "zeroed-header-is-unused", Also: "",
		Rule: "a segment without a header holds nothing but zeros, or its header is lost (wal, DESIGN 3.4)",
		Edits: []Edit{
			{"wal/scanframes.go", `		return false, s.unused(i) // the open`, `		return false, nil // the open`},
		},
		By: unit("wal", "^TestZeroedBlocks$"), Dies: `zeroed: got the end at .*want ErrCorrupt`,
	},
	{
		Name: "named-segment-is-unused", Also: "",
		Rule: "a segment without a header behind one without CLOSE was never used, which its zeros show (wal)",
		Edits: []Edit{
			{"wal/scanframes.go", `		if err := s.unused(i + 1); err != nil {
			return false, err
		}
`, ``},
		},
		By: unit("wal", "^TestUsedSegmentWithoutCloseAndHeader$"), Dies: `want a ScanError wrapping corrupt`,
	},
	{
		Name: "zeroed-start-is-absent", Also: "",
		Rule: "an epoch whose log has records of its own had started: without START it is damaged (DESIGN 3.3, 2)",
		Edits: []Edit{
			{"shared/volume/fence.go", `	return readProvenStart(ctx, fsys, f, d)
`, `	return readStart(ctx, f, d)
`},
		},
		By: unit("shared/volume", "^TestZeroedStartIsNoAbsentStart$"), Dies: `took over as epoch`,
	},
	{
		Name: "zeroed-start-unseen-offline", Also: "",
		Rule: "fsck and recover look for records of an epoch that has no START, as claimants do",
		Edits: []Edit{
			{"shared/volume/survey.go", `readProvenStart(ctx, fsys, f, e.epoch)`, `readStart(ctx, f, e.epoch)`},
		},
		By: unit("shared/volume", "^TestZeroedStartIsNoAbsentStart$"), Dies: `want "error start-missing`,
	},
	{
		Name: "zeroed-start-read-once", Also: "",
		Rule: "a START that is missing against the log's word is read again before it is refused: a cache may lie",
		Edits: []Edit{
			{"shared/volume/fence.go", `		if try == retries {
			return nil, fmt.Errorf("%w: epoch %d: %w: it reads`, `		if try > 0 {
			return nil, fmt.Errorf("%w: epoch %d: %w: it reads`},
		},
		By: unit("shared/volume", "^TestStartThatReadsAsZerosOnceIsReadAgain$"), Dies: `START is lost`,
	},
	{
		Name: "copied-records-are-a-start", Also: "",
		Rule: "copies of older records in a segment of an epoch that never started prove nothing of it",
		Edits: []Edit{
			{"shared/volume/fence.go", `err == nil && rec.Epoch == e {
				return rec.LSN, nil`, `err == nil {
				return rec.LSN, nil`},
		},
		By: unit("shared/volume", "^TestCopiesOfOlderRecordsAreNoSignOfAStart$"), Dies: `START is lost`,
	},
}
