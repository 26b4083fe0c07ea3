// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// Decoder reads what Export.Stream wrote, in pieces as they come. It has no more of
// it in memory than a line and the table that comes of it, so that a large one is not
// had twice. It verifies sums, hash and invariants. It belongs to one goroutine at a time.
type Decoder struct {
	err  error
	line []byte                  // the beginning of one
	sum  uint32                  // of the lines of this file
	last bool                    // the line is its sum
	part func(line []byte) error // takes a line; nil behind the last

	head     Head
	receipts int
	sums     uint32 // of the file of receipts
	restorer *locktable.Restorer
}

// maxSnapshotLine is more than any line has: the waiters of a lock come in several.
const maxSnapshotLine = 64 << 20

var errSnapshot = errors.New("not a snapshot")

// NewDecoder returns a Decoder that waits for the first piece.
func NewDecoder() *Decoder {
	d := &Decoder{}
	d.part = d.requestsHead
	return d
}

// Write decodes the next piece. It repeats the error of an earlier piece, after which nothing more is read.
func (d *Decoder) Write(b []byte) (int, error) {
	n := len(b)
	for d.err == nil && len(b) > 0 {
		end := bytes.IndexByte(b, '\n') + 1
		if end == 0 {
			if d.line = append(d.line, b...); len(d.line) > maxSnapshotLine {
				d.err = fmt.Errorf("%w: a line of more than %d bytes", errSnapshot, maxSnapshotLine)
			}
			break
		}
		line := b[:end]
		if len(d.line) > 0 {
			line = append(d.line, line...)
			d.line = line[:0]
		}
		b = b[end:]
		d.take(line)
	}
	return n, d.err
}

func (d *Decoder) take(line []byte) {
	d.last = bytes.HasPrefix(bytes.TrimPrefix(line, []byte("{")), []byte(`"crc32c":`))
	switch {
	case d.part == nil:
		d.err = fmt.Errorf("%w: it goes on behind its end", errSnapshot)
		return
	case !d.last:
		d.sum = crc32.Update(d.sum, crc32.MakeTable(crc32.Castagnoli), line)
	case !isSum(line, d.sum):
		d.err = errSum
		return
	}
	d.err = d.part(line)
}

// Close returns the snapshot. Returns an error if the pieces do not end where a snapshot does, or if the
// table does not have the hash that was written.
func (d *Decoder) Close() (Snapshot, error) {
	switch {
	case d.err != nil:
		return Snapshot{}, d.err
	case d.part != nil || len(d.line) > 0:
		return Snapshot{}, fmt.Errorf("%w: it is cut off", errSnapshot)
	}
	t, err := d.restorer.Table()
	if err == nil && t.Hash() != uint64(d.head.Hash) {
		err = fmt.Errorf("snapshot at LSN %d: the restored table has another hash than the one written", d.head.LSN)
	}
	if err != nil {
		return Snapshot{}, err
	}
	return Snapshot{Cluster: d.head.Cluster, Epoch: d.head.Epoch, At: d.head.Position(), Table: t}, nil
}

// The parts, in their order. Each takes a line and says what is next.

func (d *Decoder) requestsHead(line []byte) (err error) {
	if d.head, err = decodeHead(line); err != nil {
		return err
	}
	d.restorer = locktable.NewRestorer(d.head.LSN)
	d.part = d.receipt
	return nil
}

func (d *Decoder) receipt(line []byte) error {
	if d.last {
		d.sums, d.sum, d.part = d.sum, 0, d.stateHead
		return nil
	}
	d.receipts++
	return d.entity(line)
}

func (d *Decoder) stateHead(line []byte) error {
	h, err := decodeHead(line)
	if err != nil {
		return err
	}
	if h.Receipts != d.receipts || h.ReceiptsC != hex32(d.sums) || h.Position() != d.head.Position() || h.Cluster != d.head.Cluster {
		return fmt.Errorf("%w: its two parts are of different ones", errSnapshot)
	}
	d.head, d.part = h, d.pending
	return nil
}

// pending passes over appends on their way to a file, which a replica does not need.
func (d *Decoder) pending(line []byte) error {
	if d.last {
		return fmt.Errorf("%w: no entities", errSnapshot)
	}
	if string(line) == "\"entities\":[\n" {
		d.part = d.state
	}
	return nil
}

func (d *Decoder) state(line []byte) error {
	switch {
	case d.last:
		d.part = nil
		return nil
	case line[0] == '{':
		return d.entity(bytes.TrimSuffix(line[:len(line)-1], []byte(",")))
	}
	return nil // the brackets
}

func (d *Decoder) entity(line []byte) error {
	var e locktable.Entity
	if err := json.Unmarshal(line, &e); err != nil {
		return fmt.Errorf("%w: %w", errSnapshot, err)
	}
	return d.restorer.Add(e)
}

// ReadSnapshot decodes a snapshot from all that r has.
func ReadSnapshot(r io.Reader) (Snapshot, error) {
	d := NewDecoder()
	if _, err := io.Copy(d, r); err != nil {
		return Snapshot{}, err
	}
	return d.Close()
}
