// SPDX-License-Identifier: Apache-2.0

// Package history is what is known of grants that have ended: the form of the files
// under history/, and what makes and selects their lines. It reads and writes nothing
// itself.
//
// # Files
//
// A file history/<epoch, 10 digits>-<n, 6 digits>.jsonl is written by the primary of
// that epoch and by nobody else: text in UTF-8, one JSON object a line, in the order of
// LSNs. The word under "kind" says what a line is; a reader passes over kinds and
// fields that it does not know. Each line ends with the CRC-32C of what stands before it, under
// "crc"; older binaries wrote none.
//
//	head     the first line: format, cluster_id, epoch, n, after, time. What ended up
//	         to LSN after stands in earlier files
//	end      a grant that ended: see End. Times are of the clocks of primaries, for people
//	skipped  count ends between from and to, both included, were left out, because there
//	         were many: plain releases, unless memory ran short
//	gap      what ended between from and to, both included, is not known
//	mark     everything that ended up to LSN upto stands above
//
// A file says what its primary had committed and checked, a little later. It is told
// by nobody else, and no state is made from it. But a takeover is refused where it tells of
// more than the log, and a recovery takes its numbers for given: see Reach. Lines that are
// damaged or cut off are passed over. One end may be told twice, by a primary and by
// the next one, which completes what the first had no time for: LSN and token tell.
//
// # Memory
//
// A Ring keeps the newest ends that a table went through. A replica has one beside its
// table, so that it can complete the history when it takes over. Above a rate, plain
// releases are counted only; a Limiter says which.
package history
