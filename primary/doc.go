// SPDX-License-Identifier: Apache-2.0

// Package primary is the server that speaks: it takes over from the reign
// before, keeps the table, commits batches to the log and answers clients.
//
// # Commit
//
// One goroutine, the core loop, owns the table. Batch by batch:
//
//	decide    request + table -> records or a refusal; applied in memory at once
//	append    one frame; fdatasync. A crash before loses what nobody was told
//	check     a read of the own fence that began after the fdatasync returned
//	write     appends go to their files' writers
//	speak     answers, pushes
//
// While a frame syncs, the next batch is decided. With nothing else in flight
// the loop does all of it inline.
//
// Everything that leaves the process has a basis, the last LSN decided when it
// was made. Refusals, reads and renewals stand in a batch like everything else,
// so they leave only when the log is durable to their basis and a check passed
// that began after that and after they arrived. Batches are committed in order,
// which makes the rule hold by construction.
//
// # Protected files
//
// A file is verified by its writer before an append is admitted, so a refusal
// leaves no record. An append is answered after its own write. The answer to a
// grant waits for earlier appends to files bound to its lock.
//
// # Goroutines
//
//	core        owns table, leases, waiters, file slots and the batch being decided
//	committer   owns the batch in flight while the core loop decides the next
//	segments    makes the next log segment ready
//	watch       checks the volume's path once a second
//	housekeeper verifies what a warm takeover did not read; checkpoints, removal
//	viewer      writes the views for people
//	historian   writes down which grants ended, late and in nobody's way
//	writers     one per protected file in use; owns the file's descriptor
//	pushers     one per replica; sends it what is committed
//
// The watch hub is not of the reign: it is handed every committed frame and goes
// on when the reign ends (package watch).
//
// The primary ends as a whole: a reign that is closed stops every one of them,
// and Run returns when all have ended. What was in flight is answered UNKNOWN.
//
// # Locks
//
// queue.mu, feed.mu, historian.mu, files.Mutex and each writer's mu are leaves but for one
// pair: files.Mutex may be held while a writer's mu is taken. None is held
// during a call to the volume.
package primary
