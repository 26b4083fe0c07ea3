// SPDX-License-Identifier: Apache-2.0

// Package volumetest simulates a shared filesystem: one server with a disk (a
// Disk) and any number of machines or processes that use it (Hosts, each a
// vfs.FS). It is deterministic: the same calls in the same order with the
// same random source leave the same bytes, so a failing schedule can be replayed.
//
// What it models, because a design may come to rest on it:
//
//   - Everything has a visible and a durable state. A power loss (Crash,
//     DurableClone) keeps or drops un-synced data for each 512-byte sector and
//     un-synced names each on their own; a rename is kept or undone as one.
//   - A killed process (Kill) loses its locks and its voice, not its writes.
//   - After a failed sync, the next one reports success without having made
//     the same pages durable, as kernels do.
//   - A host of ProfileNetwork caches names, missing names, listings,
//     attributes and data, and lies about them until Profile.Stale has passed.
//     Its plain writes reach the server at Sync, Datasync or Close, in
//     whole pages, stale neighbours included. Only direct and O_DSYNC calls
//     and an open file's Stat tell the server's truth; rename, link, mkdir,
//     remove and exclusive creation always happen at the server.
//
// What it does not model: delegations, silly renames, byte-range locks, mmap,
// permissions, access times.
//
// Every call of a host is a step that a test can count, fail, pause, or die
// at: see Call, Hook and Action.
//
// LOCKS: one mutex, Disk.mu, guards a Disk and all its Hosts and files. A Gate
// has its own, never held together with it. No mutex is held while a call
// is paused or a Hook runs, so paused calls block durably in the sense of
// testing/synctest.
package volumetest
