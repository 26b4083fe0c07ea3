// SPDX-License-Identifier: Apache-2.0

// Package check gives the verdicts: it judges what clients were told, and what
// lies on the volume, against what Holdfast promises. It reads formats with the
// product's code, and decides what is legal with its own.
//
// Invariants lists what must hold and who proves it. A Report counts what was
// checked and found, for each of them; these checkers fill it:
//
//   - Ledger.Check compares protected files with what clients were told.
//   - History.Check has porcupine decide about each lock and its file.
//   - CheckLog judges the log that all reigns made, from the archive of a Collector.
//   - CheckHolds times what clients believe to hold.
//   - CheckFsck, CheckHarmless and CheckLiveness take over what fsck, snapshots
//     and strikes tell; a ViewPoller and a Sampler look on while servers run.
//   - LockSet is the negative control.
//
// The package's own tests damage a right run in every way that matters and want
// each damage found under its invariant.
package check
