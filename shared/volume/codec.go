// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"iter"
	"slices"
	"strconv"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/wal"
)

// The two files of a checkpoint, and the two views, look like this: valid JSON
// (a JSON object; one JSON object a line), one thing a line, and a last line
// that closes with the CRC-32C of every byte before it.
//
//	{"format":1,"cluster_id":…,"epoch":7,"lsn":90,"chain":"…","hash":"…","receipts":3,"receipts_crc32c":"…",
//	"pending":[
//	{…an append that its file may lack, with its data in base64…}
//	],
//	"entities":[
//	{"client":{…}},
//	{"file":{…}},
//	{"lock":{…}}
//	],
//	"crc32c":"0badf00d"}

// head is the first line of both files.
type head struct {
	Format    int           `json:"format"`
	Cluster   ClusterID     `json:"cluster_id"`
	Epoch     cluster.Epoch `json:"epoch"`
	LSN       cluster.LSN   `json:"lsn"`
	Chain     hex64         `json:"chain"`
	Hash      hex64         `json:"hash"`
	Receipts  int           `json:"receipts"`
	ReceiptsC hex32         `json:"receipts_crc32c"`
	// Taken says of a view when it was, and Complete that it has everything up to its LSN.
	Taken    string `json:"taken,omitempty"`
	Complete bool   `json:"complete,omitempty"`
}

// position is where the log stood.
func (h head) position() wal.Position {
	return wal.Position{LSN: h.LSN, Chain: wal.Chain(h.Chain)}
}

// hex64 and hex32 are numbers that JSON readers must not round.
type hex64 uint64

// MarshalText implements encoding.TextMarshaler.
func (h hex64) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", uint64(h)), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *hex64) UnmarshalText(b []byte) error {
	n, err := strconv.ParseUint(string(b), 16, 64)
	*h = hex64(n)
	return err
}

type hex32 uint32

// MarshalText implements encoding.TextMarshaler.
func (h hex32) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%08x", uint32(h)), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *hex32) UnmarshalText(b []byte) error {
	n, err := strconv.ParseUint(string(b), 16, 32)
	*h = hex32(n)
	return err
}

// pendingAppend is an append on its way through a checkpoint.
type pendingAppend struct {
	Header []byte `json:"record"`
	Data   []byte `json:"data"`
}

// write hands out the two files of the export, in order, each with what writes it.
// Receipts come first: the state names their number and sum, so that files of two
// exports can never be taken for one.
func (x Export) write(file func(name string, write func(io.Writer) error) error) error {
	next, stop := iter.Pull2(x.Entities)
	defer stop()
	c := &codec{export: x, next: next}
	if err := file(requestsName, c.writeRequests); err != nil {
		return err
	}
	return file(stateName, c.writeState)
}

// codec writes one export: first writeRequests, then writeState.
type codec struct {
	export      Export
	next        func() (locktable.Entity, error, bool)
	first       locktable.Entity // of the state
	more        bool             // there is a first one
	receipts    int
	receiptsCRC uint32
}

func (c *codec) head() head {
	x := c.export
	return head{
		Format: Format, Cluster: x.Cluster, Epoch: x.Epoch, LSN: x.At.LSN, Chain: hex64(x.At.Chain),
		Hash: hex64(x.Hash), Receipts: c.receipts, ReceiptsC: hex32(c.receiptsCRC),
		Taken: x.taken, Complete: x.taken != "",
	}
}

// summed is a writer that sums what passes through it and keeps the first error.
type summed struct {
	w   io.Writer
	sum hash.Hash32
	err error
}

func newSummed(w io.Writer) *summed {
	return &summed{w: w, sum: crc32.New(crc32.MakeTable(crc32.Castagnoli))}
}

func (s *summed) write(b []byte) {
	if s.err != nil {
		return
	}
	s.sum.Write(b) //nolint:errcheck // a hash never fails
	_, s.err = s.w.Write(b)
}

func (s *summed) text(t string) { s.write([]byte(t)) }

func (s *summed) json(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		s.err = errors.Join(s.err, err)
		return
	}
	s.write(b)
}

// writeRequests writes processed_requests.log: a head, one receipt a line, a sum.
func (c *codec) writeRequests(w io.Writer) error {
	s := newSummed(w)
	s.json(c.head())
	s.text("\n")
	for s.err == nil {
		e, err, ok := c.next()
		if err != nil {
			return err
		}
		if !ok || e.Receipt == nil {
			c.first, c.more = e, ok
			break
		}
		s.json(e)
		s.text("\n")
		c.receipts++
	}
	c.receiptsCRC = s.sum.Sum32()
	s.text(fmt.Sprintf("{\"crc32c\":\"%08x\"}\n", c.receiptsCRC))
	return s.err
}

// errLateReceipt says that an export has its receipts behind the state.
var errLateReceipt = errors.New("a receipt behind the state")

// writeState writes lock_state.json.
func (c *codec) writeState(w io.Writer) error {
	s := newSummed(w)
	h, err := json.Marshal(c.head())
	if err != nil {
		return err
	}
	s.write(h[:len(h)-1]) // the object goes on
	s.text(",\n\"pending\":[")
	sep := "\n"
	for i := range c.export.Pending {
		p := &c.export.Pending[i]
		s.text(sep)
		s.json(pendingAppend{Header: p.AppendHeader(nil), Data: p.Data})
		sep = ",\n"
	}
	s.text("\n],\n\"entities\":[")
	sep = "\n"
	for e, more := c.first, c.more; more && s.err == nil; e, err, more = c.next() {
		if err != nil {
			return err
		}
		if e.Receipt != nil {
			return errLateReceipt
		}
		s.text(sep)
		s.json(e)
		sep = ",\n"
	}
	s.text("\n],\n")
	s.text(fmt.Sprintf("\"crc32c\":\"%08x\"}\n", s.sum.Sum32()))
	return s.err
}

// readHead reads the first line of either file.
func readHead(r *bufio.Reader) (head, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return head{}, fmt.Errorf("first line: %w", err)
	}
	return decodeHead(line)
}

func decodeHead(line []byte) (head, error) {
	line = bytes.TrimSuffix(bytes.TrimSpace(line), []byte(","))
	if !bytes.HasSuffix(line, []byte("}")) {
		line = append(slices.Clip(line), '}')
	}
	var h head
	if err := json.Unmarshal(line, &h); err != nil {
		return head{}, fmt.Errorf("first line: %w", err)
	}
	if h.Format != Format {
		return head{}, fmt.Errorf("format %d, this binary knows %d", h.Format, Format)
	}
	return h, nil
}

// base is a checkpoint that verified.
type base struct {
	head    head
	pending []locktable.Record
	table   *locktable.Table // nil until restored
	state   []byte
	request []byte
}

var errSum = errors.New("the checksum does not match")

// verifySum cuts the last line off, which must be the sum of the rest as it is written, to the byte.
func verifySum(b []byte) ([]byte, error) {
	at := bytes.LastIndexByte(bytes.TrimSuffix(b, []byte("\n")), '\n') + 1
	sum := crc32.Checksum(b[:at], crc32.MakeTable(crc32.Castagnoli))
	if !isSum(b[at:], sum) {
		return nil, errSum
	}
	return b[:at], nil
}

// isSum says that a line is the last one of a file whose other bytes have this sum.
func isSum(line []byte, sum uint32) bool {
	return string(bytes.TrimPrefix(line, []byte("{"))) == fmt.Sprintf("\"crc32c\":\"%08x\"}\n", sum)
}

// decodeBase verifies a checkpoint's two files and reads what stands above the
// entities; restore does the rest.
func decodeBase(state, requests []byte) (*base, error) {
	s, err := verifySum(state)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", stateName, err)
	}
	q, err := verifySum(requests)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", requestsName, err)
	}
	h, err := readHead(bufio.NewReader(bytes.NewReader(s)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", stateName, err)
	}
	if crc := crc32.Checksum(q, crc32.MakeTable(crc32.Castagnoli)); crc != uint32(h.ReceiptsC) {
		return nil, fmt.Errorf("%s is not the one that %s names", requestsName, stateName)
	}
	b := &base{head: h, request: q}
	_, s, ok := bytes.Cut(s, []byte("\n\"pending\":[\n"))
	if !ok {
		return nil, fmt.Errorf("%s: no pending appends", stateName)
	}
	pending, s, ok := bytes.Cut(s, []byte("],\n\"entities\":[\n"))
	if !ok {
		return nil, fmt.Errorf("%s: no entities", stateName)
	}
	b.state = s
	for line := range jsonLines(pending) {
		var p pendingAppend
		if err := json.Unmarshal(line, &p); err != nil {
			return nil, fmt.Errorf("%s: pending append: %w", stateName, err)
		}
		rec, err := locktable.DecodeHeader(p.Header)
		if err != nil {
			return nil, fmt.Errorf("%s: pending append: %w", stateName, err)
		}
		rec.Data = p.Data
		b.pending = append(b.pending, rec)
	}
	return b, nil
}

// jsonLines yields the elements of an array written one a line.
func jsonLines(b []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for line := range bytes.SplitSeq(b, []byte("\n")) {
			line = bytes.TrimSuffix(line, []byte(","))
			if len(line) == 0 || line[0] != '{' {
				continue
			}
			if !yield(line) {
				return
			}
		}
	}
}

// restore builds the table and proves that it is the one that was written.
func (b *base) restore() (*locktable.Table, error) {
	entities := func(yield func(locktable.Entity, error) bool) {
		_, receipts, _ := bytes.Cut(b.request, []byte("\n"))
		for _, part := range [][]byte{b.state, receipts} {
			for line := range jsonLines(part) {
				var e locktable.Entity
				err := json.Unmarshal(line, &e)
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
	t, err := locktable.Restore(b.head.LSN, entities)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %d: %w", b.head.LSN, err)
	}
	if t.Hash() != uint64(b.head.Hash) {
		return nil, fmt.Errorf("checkpoint %d: the restored table has another hash than the one written", b.head.LSN)
	}
	return t, nil
}

// Stream writes the export for replicas: the two files of a checkpoint, the
// receipts first.
func (x Export) Stream(w io.Writer) error {
	return x.write(func(_ string, write func(io.Writer) error) error { return write(w) })
}
