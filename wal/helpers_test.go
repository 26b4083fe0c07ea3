// SPDX-License-Identifier: Apache-2.0

package wal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

const (
	testEpoch = cluster.Epoch(7)
	tiny      = int64(8 * BlockSize)
)

func testCluster() [16]byte { return [16]byte{0: 0xc1, 15: 0x1d} }

func aligned(p []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(p)))%BlockSize == 0
}

func testOptions(d Dir) Options {
	return Options{Dir: d, Cluster: testCluster(), Epoch: testEpoch, FeatureLevel: 1, SegmentSize: tiny}
}

func scanOptions() ScanOptions {
	return ScanOptions{Cluster: testCluster(), FeatureLevel: 1, MaxEpoch: testEpoch}
}

// rec is a record as the tests write and read it.
type rec struct{ header, data []byte }

// story writes a log and remembers what it was told is durable.
type story struct {
	t     testing.TB
	d     *memDir
	log   *Log
	rng   *rand.Rand
	batch Batch
	made  []rec      // made[i] has LSN i+1; those beyond acked are in flight
	after []Position // after[i] is the state after LSN i
	acked int
}

func newStory(t testing.TB, d *memDir, seed uint64) *story {
	return &story{t: t, d: d, rng: rand.New(rand.NewPCG(seed, 0)), after: []Position{{}}}
}

// started is a story on a log that has begun.
func started(t testing.TB, first int64) *story {
	t.Helper()
	s := newStory(t, prepared(t, first), 1)
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *story) start() (err error) {
	s.log, err = Start(testOptions(s.d), Position{}, 0)
	return err
}

// append writes a batch of n records with size bytes of header and data bytes of data each.
func (s *story) append(n, size, data int) error {
	s.batch.Reset(s.after[s.acked])
	s.made, s.after = s.made[:s.acked], s.after[:s.acked+1]
	for range n {
		r := rec{header: make([]byte, size), data: make([]byte, data)}
		copy(r.header, fmt.Sprintf("record %d of %d", len(s.made)+1, s.rng.Uint32()))
		for i := range r.data {
			r.data[i] = byte(s.rng.Uint32())
		}
		s.batch.Add(r.header, r.data)
		s.made = append(s.made, r)
		s.after = append(s.after, s.batch.End())
	}
	err := s.log.Append(&s.batch)
	if err == nil {
		s.acked += n
	}
	return err
}

// must fails the test where append does.
func (s *story) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// seen collects what a scan visits.
type seen struct {
	from cluster.LSN
	recs []rec
	also []rec // Relog
}

func (c *seen) visit(lsn cluster.LSN, e Entry, _ FrameHeader) error {
	if want := c.from + cluster.LSN(len(c.recs)) + 1; lsn != want {
		return fmt.Errorf("visited LSN %d, want %d", lsn, want)
	}
	c.recs = append(c.recs, rec{bytes.Clone(e.Header), bytes.Clone(e.Data)})
	return nil
}

func (c *seen) relog(_ cluster.LSN, e Entry, _ FrameHeader) error {
	c.also = append(c.also, rec{bytes.Clone(e.Header), bytes.Clone(e.Data)})
	return nil
}

// scan reads d from a base.
func scan(d Dir, o ScanOptions) (Result, *seen, error) {
	c := &seen{from: max(o.From.LSN, o.Resume.LSN)}
	o.Relog = c.relog
	r, err := Scan(d, o, c.visit)
	return r, c, err
}

// sameRecs compares visited records with those that were made.
func sameRecs(got, want []rec) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d records, want %d", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i].header, want[i].header) || !bytes.Equal(got[i].data, want[i].data) {
			return fmt.Errorf("record %d is %q, want %q", i, got[i].header, want[i].header)
		}
	}
	return nil
}

// recovered checks that d holds exactly what was acknowledged behind base, or
// that and the whole batch in flight.
func (s *story) recovered(d *memDir, base int) (Result, *seen, error) {
	o := scanOptions()
	o.From, o.AtLeast = s.after[base], s.after[s.acked]
	r, c, err := scan(d, o)
	if err != nil {
		return r, c, err
	}
	end := int(r.End.LSN)
	if end != s.acked && end != len(s.made) {
		return r, c, fmt.Errorf("log ends at LSN %d, want %d or %d", end, s.acked, len(s.made))
	}
	if r.End != s.after[end] {
		return r, c, fmt.Errorf("log ends at %v, want %v", r.End, s.after[end])
	}
	return r, c, sameRecs(c.recs, s.made[base:end])
}

// wantScanError checks that a scan refuses d for the given reason.
func wantScanError(t *testing.T, d Dir, o ScanOptions, want error) {
	t.Helper()
	r, _, err := scan(d, o)
	var se *ScanError
	if !errors.As(err, &se) || !errors.Is(err, want) {
		t.Fatalf("scan: got %v, %v; want a ScanError wrapping %v", r, err, want)
	}
}
