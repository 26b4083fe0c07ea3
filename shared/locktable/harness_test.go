// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
	"encoding/json"
	"errors"
	"hash/crc32"
	"iter"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// harness drives one table and checks it after every record.
type harness struct {
	tb    testing.TB
	table *locktable.Table
	epoch cluster.Epoch
	log   []locktable.Record

	applied func() // after each record, if set
}

func newHarness(tb testing.TB) *harness {
	return &harness{tb: tb, table: locktable.New(), epoch: 1}
}

// do validates and decides q, applies the records and returns them too.
func (h *harness) do(q locktable.Request, facts locktable.FileFacts) (locktable.Decision, []locktable.Record) {
	h.tb.Helper()
	if status, message := q.Validate(cluster.DefaultTiming()); status != cluster.StatusOK {
		return locktable.Decision{Outcome: locktable.Outcome{Status: status, Message: message}}, nil
	}
	before := h.table.Hash()
	recs, dec := h.table.Decide(&q, h.epoch, facts, nil)
	if h.table.Hash() != before {
		h.tb.Fatalf("Decide(%v) changed the table", q.Op)
	}
	h.apply(recs)
	return dec, recs
}

func (h *harness) apply(recs []locktable.Record) {
	h.tb.Helper()
	for i := range recs {
		if err := h.table.Apply(&recs[i]); err != nil {
			h.tb.Fatal(err)
		}
		if err := h.table.Check(); err != nil {
			h.tb.Fatalf("after record %d (%v): %v", recs[i].LSN, recs[i].Kind, err)
		}
		h.log = append(h.log, recs[i])
		if h.applied != nil {
			h.applied()
		}
	}
}

// want does q and compares the status of its answer; StatusNone stands for Pending.
func (h *harness) want(status cluster.Status, q locktable.Request) locktable.Outcome {
	h.tb.Helper()
	return h.wantFacts(status, q, locktable.FileFacts{})
}

func (h *harness) wantFacts(status cluster.Status, q locktable.Request, facts locktable.FileFacts) locktable.Outcome {
	h.tb.Helper()
	dec, _ := h.do(q, facts)
	if dec.Outcome.Status != status || dec.Pending != (status == cluster.StatusNone) {
		h.tb.Fatalf("%v of %s/%d: got %v %q (pending %t), want %v", q.Op, q.Client, q.ID, dec.Outcome.Status, dec.Outcome.Message, dec.Pending, status)
	}
	return dec.Outcome
}

// waiting returns how many requests of a client wait.
func (h *harness) waiting(c cluster.ClientID) (n int) {
	for range h.table.WaitsOf(c) {
		n++
	}
	return n
}

// acquire builds an Acquire with a TTL of 10 s.
func acquire(c cluster.ClientID, id cluster.RequestID, lock cluster.LockName, wait time.Duration) locktable.Request {
	return locktable.Request{Op: locktable.OpAcquire, Client: c, ID: id, Lock: lock, TTL: 10 * time.Second, Wait: wait}
}

// share is acquire in shared mode.
func share(c cluster.ClientID, id cluster.RequestID, lock cluster.LockName, wait time.Duration) locktable.Request {
	q := acquire(c, id, lock, wait)
	q.Mode = locktable.ModeShared
	return q
}

func downgrade(c cluster.ClientID, id cluster.RequestID, lock cluster.LockName, token cluster.Token) locktable.Request {
	return locktable.Request{Op: locktable.OpDowngrade, Client: c, ID: id, Lock: lock, Token: token}
}

func release(c cluster.ClientID, id cluster.RequestID, lock cluster.LockName, token cluster.Token) locktable.Request {
	return locktable.Request{Op: locktable.OpRelease, Client: c, ID: id, Lock: lock, Token: token}
}

func appendTo(c cluster.ClientID, id cluster.RequestID, lock cluster.LockName, token cluster.Token, file cluster.FileName, data string) locktable.Request {
	return locktable.Request{
		Op: locktable.OpAppend, Client: c, ID: id, Lock: lock, Token: token, File: file,
		Data: []byte(data), CRC: crc32.Checksum([]byte(data), crc32.MakeTable(crc32.Castagnoli)),
	}
}

func cancel(c cluster.ClientID, target cluster.RequestID) locktable.Request {
	return locktable.Request{Op: locktable.OpCancel, Client: c, Target: target}
}

// open opens a client.
func (h *harness) open(nonce uint64) cluster.ClientID {
	h.tb.Helper()
	return h.want(cluster.StatusOK, locktable.Request{Op: locktable.OpOpenClient, Nonce: nonce}).Client
}

// overJSON restores a table from an export that went through JSON.
func overJSON(t *locktable.Table) (*locktable.Table, error) {
	return locktable.Restore(t.LSN(), func(yield func(locktable.Entity, error) bool) {
		for e := range t.Export() {
			line, err := json.Marshal(e)
			var back locktable.Entity
			if err == nil {
				err = json.Unmarshal(line, &back)
			}
			if !yield(back, err) {
				return
			}
		}
	})
}

// entities turns an export into the argument of Restore.
func entities(all []locktable.Entity) iter.Seq2[locktable.Entity, error] {
	return func(yield func(locktable.Entity, error) bool) {
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// reload requires that the table survives an export and that a replay of the
// whole log, through the codec, gives the same table.
func (h *harness) reload() {
	h.tb.Helper()
	restored, err := overJSON(h.table)
	if err != nil {
		h.tb.Fatal(err)
	}
	replayed := locktable.New()
	for i := range h.log {
		rec := recode(h.tb, &h.log[i])
		if err := replayed.Apply(&rec); err != nil {
			h.tb.Fatal(err)
		}
	}
	for name, other := range map[string]*locktable.Table{"restored": restored, "replayed": replayed, "cloned": h.table.Clone()} {
		if err := other.Check(); err != nil {
			h.tb.Fatalf("%s table: %v", name, err)
		}
		if other.Hash() != h.table.Hash() || other.LSN() != h.table.LSN() {
			h.tb.Fatalf("%s table: hash %#x at LSN %d, want %#x at %d", name, other.Hash(), other.LSN(), h.table.Hash(), h.table.LSN())
		}
		if got, want := owners(other), owners(h.table); !maps.Equal(got, want) {
			h.tb.Fatalf("%s table: its clients are of %v, want %v", name, got, want)
		}
	}
}

// owners returns the identities of a table's clients, which the hash does not cover.
func owners(t *locktable.Table) map[cluster.ClientID]string {
	all := map[cluster.ClientID]string{}
	for p := range t.Presences("") {
		c, _ := t.Client(p.ID())
		all[p.ID()] = c.Identity
	}
	return all
}

// recode sends the header through the codec and compares.
func recode(tb testing.TB, r *locktable.Record) locktable.Record {
	tb.Helper()
	header := r.AppendHeader(nil)
	rec, err := locktable.DecodeHeader(header)
	if err != nil {
		tb.Fatalf("decode record %d (%v): %v", r.LSN, r.Kind, err)
	}
	var d locktable.Decoder
	for range 2 {
		if again, err := d.DecodeHeader(header); err != nil || !reflect.DeepEqual(again, rec) {
			tb.Fatalf("record %d: a Decoder has %+v, %v", r.LSN, again, err)
		}
	}
	want := *r
	want.Data = nil
	if !reflect.DeepEqual(rec, want) {
		tb.Fatalf("record %d: decoded %+v, want %+v", r.LSN, rec, want)
	}
	return rec
}

// illegal requires that r is refused and changes nothing.
func (h *harness) illegal(why string, r locktable.Record) {
	h.tb.Helper()
	if r.LSN == 0 {
		r.LSN = h.table.LSN() + 1
	}
	if r.Epoch == 0 {
		r.Epoch = h.epoch
	}
	before := h.table.Hash()
	if err := h.table.Apply(&r); !errors.Is(err, locktable.ErrIllegal) {
		h.tb.Errorf("%s: got %v, want ErrIllegal", why, err)
	}
	if err := h.table.Check(); err != nil || h.table.Hash() != before {
		h.tb.Errorf("%s: the table has changed: %v", why, err)
	}
}
