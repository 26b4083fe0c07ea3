// SPDX-License-Identifier: Apache-2.0

// Package watch is the watch hub of a server: it takes committed records in and gives them, as
// events, to watchers. A server has one hub for its life. While it is primary its term feeds the
// hub, while it is a replica the pushes that it applied do; neither knows more of the hub than a
// Feed.
//
// # From a feed to a watcher
//
// A feed hands over a slice of frames and does nothing else: no decoding, no work
// for each watcher, no waiting. Frames come only when they are durable and a check
// has passed since, so every event may leave the process.
//
// The hub keeps the newest frames, as they are, for watches that resume. Without watchers
// that is all: no goroutine wakes up. With watchers, the hub's goroutine decodes each frame
// once, looks each record up in an index of names and prefixes, and puts it into the buffers
// of the watchers that it concerns. The message of an event is made once, for the first
// watcher that needs it, and shared.
//
// A watcher reads from its buffer as fast as it can; what collected meanwhile comes as one
// batch. A watcher that lets its buffer fill up is cut, with a message that says so. Nothing
// ever waits for a watcher.
//
// # Order and gaps
//
// The frames in the hub follow each other: each begins at the position where the
// one before ended, and a position has the chain value of the whole log up to it.
// So the hub may go on when its server changes its role, if the new feed begins
// where the old one ended. Where it does not, a table came in place of events:
// every watcher ends with a gap and has to begin anew with a reset.
//
// A reset is a reading of the table that is followed by exactly the events after it. Watch
// without Resume begins to collect, the caller reads the table, in pieces if need be, and
// Settle returns what changed since the first piece up to the last one. That works because
// both a primary and a replica give a frame to the hub before a reader can see a table that
// has it.
//
// # Locks
//
// Hub.mu is held while events are distributed; Hub.in and Watcher.mu are leaves, held
// briefly. Feeds take Hub.in only.
package watch
