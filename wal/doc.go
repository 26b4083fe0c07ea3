// SPDX-License-Identifier: Apache-2.0

// Package wal is the write-ahead log of one term: the codec of its frames and
// segments, the writer, and the scan that reads what a fenced term left.
//
// This comment is the specification of the format. All numbers are little-endian.
//
// # Segment
//
// A log is a row of segment files. Each is named after its first LSN
// (wal-00000000000000000101.log), was filled with zeros before its first use,
// and is written strictly forwards: never truncated, repaired, reused or
// written again after an error.
//
//	0         4096      8192                                       size
//	+---------+---------+-------------------+-----+----~----+------+
//	| header  | frame 0 | frame 1           | ... |  CLOSE  | zero |
//	+---------+---------+-------------------+-----+----~----+------+
//	            every frame begins at a multiple of 4096
//
// The header lies in the first 512 bytes, one sector, so that it is there or not:
//
//	offset size
//	     0    4  magic "HFSG"
//	     4    2  format version, 1
//	     6    2  zero
//	     8    4  feature level of the writer
//	    12    4  zero
//	    16   16  cluster ID
//	    32    8  epoch of the writer
//	    40    8  first LSN, equal to the one in the name
//	    48    8  base LSN from which the writer's term began
//	    56    8  chain value before the first LSN
//	    64    8  size of the file in bytes; a shorter file has lost something
//	    72  436  zero
//	   508    4  CRC-32C of the 508 bytes before
//
// All zero means that the file has no header yet. Then nothing comes after it: a header is
// durable before the first frame is written, so a frame after a missing header is ErrCorrupt.
//
// The CRC has its place for ever, so a binary can tell a newer format (ErrFeatureLevel) from
// damage (ErrCorrupt). The xxHash64 of these 512 bytes is the segment's binding: every frame
// carries it, so that a frame of another file is never taken for one of this.
//
// # Frame
//
// A frame is one batch of records, durable as a whole or not at all.
//
//	 0       4    5     6       8        12      16      20        24
//	+-------+----+-----+-------+--------+-------+-------+---------+
//	| magic |kind|flags|version| length | count |CRC-32C| ordinal |
//	+-------+----+-----+-------+--------+-------+-------+---------+
//	 24      32          40             48      56        64
//	+-------+-----------+--------------+-------+---------+---------~--+-----~---+
//	| epoch | first LSN | durable upto | chain | binding | payload    | zeros   |
//	+-------+-----------+--------------+-------+---------+---------~--+-----~---+
//
//	magic         "HFFR"
//	kind          1 records, 2 mark, 3 CLOSE; the latter two have no payload
//	flags         bit 0: elided, the payload lacks the append data (pushes only)
//	version       1
//	length        bytes of payload
//	count         records; record i has LSN first+i
//	CRC-32C       of the header with this field zero, then the payload
//	ordinal       number of the frame in its segment, from 0
//	durable upto  the LSN up to which the log was durable when this frame was written
//	chain         chain value after the last record of the frame
//
//	payload, for each record:
//	+--------------------+-----------------+--------+------+
//	| uvarint len(header)| uvarint len(data)| header | data |
//	+--------------------+-----------------+--------+------+
//
// A record is opaque here: header is all of it but its append data, whose
// length and CRC stand inside header. On disk a frame is padded with zeros to a
// multiple of 4096; the padding is neither covered by the CRC nor read back. A
// push is the elided frame without padding.
//
// The chain is one rolling value over the records of the volume's life,
//
//	chain(n) = xxHash64(le64(chain(n-1)) || header of record n),  chain(0) = 0
//
// so two logs that show the same value at an LSN hold the same records up to
// there. It leaves data out, hence elided pushes verify too.
//
// A mark is written when the log is idle: it proves that the frames before it
// were durable. CLOSE is the last frame of a segment. Unknown kinds, flags and
// versions under a valid CRC are ErrFeatureLevel.
//
// # One frame in flight
//
// A frame is written only after the one before was synced, and nothing is
// written after an error. So an invalid frame with a valid one of a higher
// ordinal anywhere behind it in the segment, or with a successor that has a
// header, was durable once: that is corruption and is refused. An invalid frame
// with nothing behind it was never acknowledged: that is a torn tail and the
// end. (The ordinal, not the LSN, decides: a damaged mark has no LSN of its
// own. And data that happens to contain an old frame carries an old ordinal.)
//
// Assumed of the storage: a sector of 512 bytes is written wholly or not, and a
// sync that returned nil is kept. Not promised: a bit that flips in the very
// last frame before anything was written behind it looks like a torn tail; a
// mark closes that gap, and so does the AtLeast of a scan.
//
// # Rotation
//
// The successor, prepared as wal-next.log, gets its name, the directory is
// synced, CLOSE is written and synced, the successor's header is written and
// synced; only then does a frame go there. What a crash leaves is told in
// rotate. A segment is closed when its successor has a valid header; CLOSE
// alone proves nothing, because its sync may have failed.
//
// # Limits
//
//	frame payload   Options.MaxFrame; always less than a segment
//	segment         Options.SegmentSize, the same for all of a term; the first one of a
//	                term may be smaller but must hold the largest single record
//	                in one frame
//	data            2^31-1 bytes in the codec; cluster.MaxAppend in practice
//
// # Locks
//
// A Log has one mutex, held for moments and never during I/O. Append, Mark and
// Position belong to one goroutine; PrepareNext, NextReady, Removable, Drop and
// Err may be called from others at the same time.
package wal
