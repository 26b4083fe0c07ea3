// SPDX-License-Identifier: Apache-2.0

package wal

import (
	"bytes"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

const (
	benchRecords = 64
	benchHeader  = 100
)

// nullDir is a disk that does nothing, at no cost, with one endless segment.
type nullDir struct{ Dir }

func (nullDir) Rename(_, _ string) error         { return nil }
func (nullDir) Sync() error                      { return nil }
func (nullDir) OpenWrite(_ string) (File, error) { return nullFile{}, nil }

type nullFile struct{}

func (nullFile) ReadAt(p []byte, _ int64) (int, error)  { clear(p); return len(p), nil }
func (nullFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (nullFile) Datasync() error                        { return nil }
func (nullFile) Sync() error                            { return nil }
func (nullFile) Size() (int64, error)                   { return 1 << 50, nil }
func (nullFile) Close() error                           { return nil }

func fill(b *Batch, at Position, header []byte) {
	b.Reset(at)
	for range benchRecords {
		b.Add(header, nil)
	}
}

func BenchmarkEncode(b *testing.B) {
	header := bytes.Repeat([]byte("r"), benchHeader)
	var batch Batch
	f := FrameHeader{Kind: FrameRecords}
	b.SetBytes(benchRecords * benchHeader)
	b.ReportAllocs()
	for b.Loop() {
		fill(&batch, Position{}, header)
		batch.seal(f)
	}
}

func BenchmarkAppend(b *testing.B) {
	header := bytes.Repeat([]byte("r"), benchHeader)
	o := testOptions(nullDir{})
	o.SegmentSize = 0
	l, err := Start(o, Position{}, 0)
	if err != nil {
		b.Fatal(err)
	}
	var batch Batch
	b.SetBytes(benchRecords * benchHeader)
	b.ReportAllocs()
	for b.Loop() {
		fill(&batch, l.Position(), header)
		if err := l.Append(&batch); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkElided(b *testing.B) {
	header, data := bytes.Repeat([]byte("r"), benchHeader), make([]byte, 1000)
	var batch Batch
	fill(&batch, Position{}, header)
	batch.Add(header, data)
	b.ReportAllocs()
	for b.Loop() {
		batch.seal(FrameHeader{Kind: FrameRecords})
		if len(batch.Elided()) == 0 {
			b.Fatal("nothing")
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	var batch Batch
	fill(&batch, Position{}, bytes.Repeat([]byte("r"), benchHeader))
	batch.seal(FrameHeader{Kind: FrameRecords})
	frame := batch.Bytes()
	var entries []Entry
	b.SetBytes(benchRecords * benchHeader)
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if _, entries, _, err = decodeFrame(frame, entries); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkScan16MiB(b *testing.B) {
	const size = 16 << 20
	s := started(b, size)
	for s.log.Room() >= padded(benchRecords*(benchHeader+2)) {
		s.must(s.append(benchRecords, benchHeader, 0))
	}
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		records := 0
		r, err := Scan(s.d, scanOptions(), func(cluster.LSN, Entry, FrameHeader) error { records++; return nil })
		if err != nil || records != s.acked || r.End != s.after[s.acked] {
			b.Fatal(records, err)
		}
	}
}
