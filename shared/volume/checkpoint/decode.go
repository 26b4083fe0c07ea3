// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
)

// Decoder is the only decoder of the format in codec.go. It takes the two files of an export as one
// stream, the receipts first, in pieces of any size. It keeps no more than one line and what becomes of
// the lines, so that a large state is never in memory twice. It verifies both sums, that the files are
// of one export, and, where it builds the table, its hash and invariants. Whatever it builds, it refuses the state of a cluster with a
// feature level that this binary does not know, by an error of which locktable.Newer reports true. It belongs to one goroutine
// at a time.
type Decoder struct {
	build bool // the table
	view  bool // the stream is one file only, of either kind

	err   error
	size  int64
	line  []byte                  // the beginning of a line whose end has not come yet
	sum   uint32                  // of the lines of this file
	last  bool                    // the present line holds the sum
	files int                     // how many have ended
	part  func(line []byte) error // decodes the next line; nil after the last one

	head        Head
	receipts    int
	receiptsCRC uint32
	pending     []locktable.Record
	restorer    *locktable.Restorer // nil if no table is built

	// odd is the first error of an entity or a pending append, or one which shows that a newer binary wrote it. It counts at the end
	// of the stream: only the sums tell what a newer binary wrote from damage.
	odd error
}

// maxLine is more bytes than any line has: an append has at most cluster.MaxAppend bytes, and the
// waiters of a lock come in several lines.
const maxLine = 64 << 20

var (
	errFormat = errors.New("not a snapshot")
	errCut    = fmt.Errorf("%w: it is cut off", errFormat)
	errSum    = errors.New("the checksum does not match")
)

// NewDecoder returns a Decoder that builds the table.
func NewDecoder() *Decoder { return newDecoder(true) }

// newDecoder returns a Decoder of both files, which decodes their entities only if build is true.
func newDecoder(build bool) *Decoder {
	d := &Decoder{build: build}
	d.part = d.requestsHead
	return d
}

// newViewDecoder returns a Decoder of one view, with its file name. It verifies and decodes no entities.
func newViewDecoder(name string) *Decoder {
	d := &Decoder{view: true}
	if d.part = d.requestsHead; name == layout.StateName {
		d.part = d.stateHead
	}
	return d
}

// Write decodes the next piece. It repeats the error of an earlier piece, after which nothing more is
// decoded.
func (d *Decoder) Write(b []byte) (int, error) {
	n := len(b)
	d.size += int64(n)
	for d.err == nil && len(b) > 0 {
		end := bytes.IndexByte(b, '\n') + 1
		if end == 0 {
			if d.line = append(d.line, b...); len(d.line) > maxLine {
				d.err = fmt.Errorf("%w: a line of more than %d bytes", errFormat, maxLine)
			}
			break
		}
		line := b[:end]
		if len(d.line) > 0 {
			line = append(d.line, line...)
			d.line = line[:0]
		}
		b = b[end:]
		d.err = d.decodeLine(line)
	}
	return n, d.err
}

func (d *Decoder) decodeLine(line []byte) error {
	d.last = bytes.HasPrefix(bytes.TrimPrefix(line, []byte("{")), []byte(`"crc32c":`))
	switch {
	case d.part == nil:
		return fmt.Errorf("%w: there is more after its end", errFormat)
	case !d.last:
		d.sum = crc32.Update(d.sum, crc32.MakeTable(crc32.Castagnoli), line)
	case string(bytes.TrimPrefix(line, []byte("{"))) != fmt.Sprintf("\"crc32c\":\"%08x\"}\n", d.sum):
		return errSum
	default:
		d.files++
	}
	return d.part(line)
}

// endOfFile returns an error unless what was written ends with the sum of file n of the stream.
func (d *Decoder) endOfFile(n int) error {
	switch {
	case d.err != nil:
		return d.err
	case d.files != n || len(d.line) > 0:
		return errCut
	case d.part == nil:
		return d.odd
	}
	return nil
}

// Close returns the snapshot. It returns an error if the pieces do not end where a snapshot does, or if
// the table does not have the hash that was written.
func (d *Decoder) Close() (Snapshot, error) {
	if err := d.endOfFile(2); err != nil {
		return Snapshot{}, err
	}
	s := Snapshot{Cluster: d.head.Cluster, Epoch: d.head.Epoch, At: d.head.Position(), Pending: d.pending}
	if !d.build {
		return s, nil
	}
	t, err := d.restorer.Table()
	if err == nil && t.Hash() != uint64(d.head.Hash) {
		err = fmt.Errorf("snapshot at LSN %d: the restored table has another hash than the one written", d.head.LSN)
	}
	if err != nil {
		return Snapshot{}, err
	}
	s.Table = t
	return s, nil
}

// decodeHead decodes the first line of b, which is the beginning of either file.
func decodeHead(b []byte) (h Head, err error) {
	line, _, ok := bytes.Cut(b, []byte("\n"))
	if !ok {
		return Head{}, fmt.Errorf("first line: %w", errCut)
	}
	line = bytes.TrimSuffix(line, []byte(","))
	if !bytes.HasSuffix(line, []byte("}")) { // in the state the object goes on
		line = append(slices.Clip(line), '}')
	}
	if err := json.Unmarshal(line, &h); err != nil {
		return Head{}, fmt.Errorf("first line: %w", err)
	}
	if h.Format != layout.Format {
		return Head{}, fmt.Errorf("format %d, this binary knows %d", h.Format, layout.Format)
	}
	return h, nil
}

// The parts, in their order. Each decodes a line and sets the part that comes next.

func (d *Decoder) requestsHead(line []byte) (err error) {
	if d.head, err = decodeHead(line); err != nil {
		return err
	}
	if d.build {
		d.restorer = locktable.NewRestorer(d.head.LSN)
	}
	d.part = d.receipt
	return nil
}

func (d *Decoder) receipt(line []byte) error {
	if !d.last {
		d.receipts++
		d.entity(line)
		return nil
	}
	d.receiptsCRC, d.sum, d.part = d.sum, 0, d.stateHead
	if d.view {
		d.part = nil
	}
	return nil
}

func (d *Decoder) stateHead(line []byte) error {
	h, err := decodeHead(line)
	if err != nil {
		return err
	}
	if !d.view && (h.Receipts != d.receipts || h.ReceiptsC != hex32(d.receiptsCRC) || h.Position() != d.head.Position() || h.Cluster != d.head.Cluster) {
		return fmt.Errorf("%w: %s is not the one that %s names", errFormat, layout.RequestsName, layout.StateName)
	}
	d.head, d.part = h, d.pendingAppend
	return nil
}

func (d *Decoder) pendingAppend(line []byte) error {
	switch {
	case d.last:
		return fmt.Errorf("%w: no entities", errFormat)
	case string(line) == entitiesLine:
		d.part = d.stateEntity
	case line[0] == '{':
		var p pendingAppend
		if err := json.Unmarshal(element(line), &p); err != nil {
			return fmt.Errorf("%w: pending append: %w", errFormat, err)
		}
		rec, err := locktable.DecodeHeader(p.Header)
		if err != nil {
			d.note(fmt.Errorf("pending append: %w", err))
			return nil
		}
		rec.Data = p.Data
		d.pending = append(d.pending, rec)
	}
	return nil
}

func (d *Decoder) stateEntity(line []byte) error {
	switch {
	case d.last:
		d.part = nil
	case line[0] == '{':
		d.entity(element(line))
	}
	return nil
}

// element returns an element of an array without what follows it on its line.
func element(line []byte) []byte { return bytes.TrimSuffix(line[:len(line)-1], []byte(",")) }

// entity decodes an entity. That of the feature level is decoded in any case, and behind those that make no sense: it says whether
// they are of a newer binary.
func (d *Decoder) entity(line []byte) {
	to := d.restorer
	if !d.build || d.odd != nil {
		if !bytes.HasPrefix(line, []byte(levelEntity)) {
			return
		}
		to = locktable.NewRestorer(d.head.LSN)
	}
	var e locktable.Entity
	err := json.Unmarshal(line, &e)
	switch {
	case locktable.Newer(err):
	case err != nil:
		err = fmt.Errorf("%w: %w", errFormat, err)
	default:
		err = to.Add(e)
	}
	d.note(err)
}

// note keeps an error for the end of the stream.
func (d *Decoder) note(err error) {
	if err != nil && (d.odd == nil || locktable.Newer(err) && !locktable.Newer(d.odd)) {
		d.odd = err
	}
}

// ReadSnapshot decodes a snapshot from all that r has.
func ReadSnapshot(r io.Reader) (Snapshot, error) {
	d := NewDecoder()
	if _, err := io.Copy(d, r); err != nil {
		return Snapshot{}, err
	}
	return d.Close()
}
