// SPDX-License-Identifier: Apache-2.0

// Package check verifies a fault test: it compares the answers that clients got, and the content
// of the volume, with what Holdfast promises. It reads formats with the
// product's code, and decides what is legal with its own.
//
// Invariants lists what must hold and what proves it. A Report counts, for each invariant, what
// was checked and found; these checkers fill it:
//
//   - Ledger.Check compares protected files with the answers of clients.
//   - History.Check has porcupine decide about each lock and its file.
//   - CheckLog verifies the log of all terms, from the archive of a Collector.
//   - CheckHolds compares the times in which clients believed to hold a lock.
//   - CheckFsck, CheckHarmless and CheckLiveness report the results of fsck, of snapshots
//     and of injected faults; a ViewPoller and a Sampler observe while servers run.
//   - LockSet is the negative control.
//
// The package's own tests damage a correct run in every way that matters, and require that
// each damage is found under its invariant.
package check
