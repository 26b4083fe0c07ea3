// SPDX-License-Identifier: Apache-2.0

// Package history is the format of the history of grants that ended: the files under
// history/, and the code that makes, reads and selects their lines. It does no I/O itself.
//
// # Files
//
// A file history/<epoch, 10 digits>-<n, 6 digits>.jsonl is written by the primary of
// that epoch only: text in UTF-8, one JSON object a line, in the order of LSNs. The field
// "kind" names the kind of a line; a reader skips kinds and fields that it does not know.
// Each line ends with the CRC-32C of what is before it, under "crc"; older binaries wrote
// none.
//
//	head     the first line: format, cluster_id, epoch, n, after, time. What ended up
//	         to LSN after is in earlier files
//	end      a grant that ended: see End. Times are of the clocks of primaries, for people.
//	         Of several that one record cleared, more may follow with the same LSN
//	skipped  count ends between from and to, both included, were left out, because there
//	         were many: plain releases, unless memory ran short
//	gap      what ended between from and to, both included, is not known
//	mark     everything that ended up to LSN upto is above
//
// A file contains what its primary had committed and checked, written a little later. No state
// is restored from it. But a takeover is refused if it has later records than the log, and a
// recovery continues above its numbers: see Reach. Lines that are damaged or cut off are
// skipped. One end may occur twice, from a primary and from the next one, which completes what
// the first had no time for: LSN and token identify it.
//
// # Memory
//
// A Ring keeps the newest ends of a table's grants. A replica has one beside its table, so
// that it can complete the history when it takes over. Above a rate, plain releases are only
// counted; a Limiter decides which.
package history
