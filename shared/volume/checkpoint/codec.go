// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"iter"
	"strconv"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/wal"
)

// The two files of a checkpoint, and the two views, are JSON with one element on each line. The last line
// holds the CRC-32C of every byte before it. processed_requests.log is a sequence of objects, one on each line;
// lock_state.json is one object:
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

// Lines of the state that a reader compares.
const (
	pendingLine  = "\"pending\":[\n"
	entitiesLine = "\"entities\":[\n"
	// levelEntity begins the line of the feature level.
	levelEntity = "{\"level\":"
	closeLine   = "],\n"
)

// Head is the first line of both files.
type Head struct {
	Format  int           `json:"format"`
	Cluster cluster.ID    `json:"cluster_id"`
	Epoch   cluster.Epoch `json:"epoch"` // of the term that wrote it
	LSN     cluster.LSN   `json:"lsn"`
	Chain   hex64         `json:"chain"`
	Hash    hex64         `json:"hash"` // of the table
	// Receipts counts the lines of processed_requests.log between its first and its last one, ReceiptsC is the
	// CRC-32C in that last line. Both are 0 in the head of processed_requests.log itself.
	Receipts  int   `json:"receipts"`
	ReceiptsC hex32 `json:"receipts_crc32c"`
	// Taken is when a view was taken, in RFC 3339, and Complete is true. In a checkpoint they are "" and false.
	Taken    string `json:"taken,omitempty"`
	Complete bool   `json:"complete,omitempty"`
}

// Position returns the position of the log at which the state was taken.
func (h Head) Position() wal.Position {
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

// pendingAppend is an append in "pending".
type pendingAppend struct {
	Header []byte `json:"record"`
	Data   []byte `json:"data"`
}

// Files calls file for each of the two files of the export, in order, with its name and a function that
// writes it. The receipts come first: the state holds their number and sum, so that files of two exports are
// never taken for one. An error of file or of Entities ends it and is returned.
func (x Export) Files(file func(name string, write func(io.Writer) error) error) error {
	next, stop := iter.Pull2(x.Entities)
	defer stop()
	c := &codec{export: x, next: next}
	if err := file(layout.RequestsName, c.writeRequests); err != nil {
		return err
	}
	return file(layout.StateName, c.writeState)
}

// codec writes one export: first writeRequests, then writeState.
type codec struct {
	export      Export
	next        func() (locktable.Entity, error, bool)
	first       locktable.Entity // the first one of the state, if more
	more        bool
	receipts    int
	receiptsCRC uint32
}

func (c *codec) head() Head {
	x := c.export
	return Head{
		Format: layout.Format, Cluster: x.Cluster, Epoch: x.Epoch, LSN: x.At.LSN, Chain: hex64(x.At.Chain),
		Hash: hex64(x.Hash), Receipts: c.receipts, ReceiptsC: hex32(c.receiptsCRC),
		Taken: x.Taken, Complete: x.Taken != "",
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

// errLateReceipt means that Export.Entities yields a receipt after another entity.
var errLateReceipt = errors.New("a receipt comes after other entities")

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

// Stream writes the two files of the export one after the other, the receipts first, as a Decoder takes them.
func (x Export) Stream(w io.Writer) error {
	return x.Files(func(_ string, write func(io.Writer) error) error { return write(w) })
}
