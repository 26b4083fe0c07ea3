// SPDX-License-Identifier: Apache-2.0

package wal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"math"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

func testEntries() []Entry {
	return []Entry{
		{Header: []byte("grant")},
		{Header: []byte("append"), Data: []byte("some data"), DataLen: 9},
		{Header: bytes.Repeat([]byte("long "), 100)},
	}
}

func testHeader(entries []Entry) FrameHeader {
	return FrameHeader{
		Kind: FrameRecords, Ordinal: 3, Epoch: 7, First: 101, DurableUpto: 100,
		Chain: VerifyChain(42, entries), Binding: 0x1122334455667788,
	}
}

// The bytes of these frames are the format: a change here is a new version.
func TestGoldenFrame(t *testing.T) {
	entries := testEntries()[:2]
	for _, c := range []struct {
		name   string
		elided bool
		want   string
	}{
		{"full", false, goldenFull},
		{"elided", true, goldenElided},
	} {
		f := testHeader(entries)
		f.Elided = c.elided
		if got := hex.EncodeToString(AppendFrame(nil, f, entries)); got != c.want {
			t.Errorf("%s frame:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
	h := SegmentHeader{FeatureLevel: 2, Cluster: testCluster(), Epoch: 7, First: 101, Base: 90, Chain: 42, Size: 65536}
	b := AppendSegmentHeader(nil, h)
	if got := hex.EncodeToString(b[:72]) + hex.EncodeToString(b[508:]); got != goldenSegment {
		t.Errorf("segment header:\ngot  %s\nwant %s", got, goldenSegment)
	}
}

// The chain is defined by the package doc, whatever shortcut Next takes.
func TestChainDefinition(t *testing.T) {
	for _, n := range []int{0, 1, 100, 247, 248, 249, 256, 5000} {
		header := bytes.Repeat([]byte{byte(n)}, n)
		want := Chain(xxhash.Sum64(append(binary.LittleEndian.AppendUint64(nil, 99), header...)))
		if got := Chain(99).Next(header); got != want {
			t.Errorf("chain over %d bytes: got %#x, want %#x", n, got, want)
		}
	}
}

func TestFrameRoundTrip(t *testing.T) {
	for _, elided := range []bool{false, true} {
		entries := testEntries()
		f := testHeader(entries)
		f.Elided = elided
		b := AppendFrame([]byte("before"), f, entries)[6:]
		got, ge, size, err := DecodeFrame(append(b, "behind"...))
		if err != nil {
			t.Fatal(err)
		}
		f.Length, f.Count = len(b)-FrameHeaderSize, len(entries)
		if got != f || size != len(b) {
			t.Errorf("header: got %+v of %d bytes, want %+v of %d", got, size, f, len(b))
		}
		if c := VerifyChain(42, ge); c != f.Chain {
			t.Errorf("chain: got %#x, want %#x", c, f.Chain)
		}
		if ge[1].DataLen != 9 || elided != (ge[1].Data == nil) || ge[0].Data != nil {
			t.Errorf("data: got %q of %d bytes, elided %v", ge[1].Data, ge[1].DataLen, elided)
		}
	}
}

func TestDecodeFrameRefuses(t *testing.T) {
	entries := testEntries()
	good := AppendFrame(nil, testHeader(entries), entries)
	// edit changes a frame and makes its CRC right again.
	edit := func(change func(b []byte)) []byte {
		b := bytes.Clone(good)
		change(b)
		binary.LittleEndian.PutUint32(b[crcOffset:], frameCRC(b))
		return b
	}
	frame := func(kind FrameKind, payload string) []byte {
		b := append(make([]byte, FrameHeaderSize), payload...)
		putFrameHeader(b, FrameHeader{Kind: kind, Count: 1})
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		want error
	}{
		{"nothing", nil, ErrCorrupt},
		{"short header", good[:63], ErrCorrupt},
		{"zeros", make([]byte, 4096), ErrZero},
		{"short payload", good[:len(good)-1], ErrCorrupt},
		{"magic", edit(func(b []byte) { b[0]++ }), ErrCorrupt},
		{"newer version", edit(func(b []byte) { b[6]++ }), ErrFeatureLevel},
		{"unknown kind", edit(func(b []byte) { b[4] = 4 }), ErrFeatureLevel},
		{"no kind", edit(func(b []byte) { b[4] = 0 }), ErrFeatureLevel},
		{"unknown flag", edit(func(b []byte) { b[5] = 2 }), ErrFeatureLevel},
		{"newer version, damaged", append(bytes.Clone(good[:6]), append([]byte{9}, good[7:]...)...), ErrCorrupt},
		{"count too high", edit(func(b []byte) { b[12]++ }), ErrCorrupt},
		{"count too low", edit(func(b []byte) { b[12]-- }), ErrCorrupt},
		{"count absurd", edit(func(b []byte) { b[15] = 0xff }), ErrCorrupt},
		{"records without records", edit(func(b []byte) { b[12] = 0 }), ErrCorrupt},
		{"elided flag on a full frame", edit(func(b []byte) { b[5] = flagElided }), ErrCorrupt},
		{"mark with records", edit(func(b []byte) { b[4] = byte(FrameMark) }), ErrCorrupt},
		{"header passes the end", frame(FrameRecords, "\x05\x00abcd"), ErrCorrupt},
		{"data passes the end", frame(FrameRecords, "\x01\x05abcd"), ErrCorrupt},
		{"long form of a length", frame(FrameRecords, "\x84\x00\x00abcd"), ErrCorrupt},
		{"endless length", frame(FrameRecords, "\xff\xff\xff"), ErrCorrupt},
		{"huge lengths", frame(FrameRecords, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01"), ErrCorrupt},
		{"huge data", frame(FrameRecords, "\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), ErrCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, e, _, err := DecodeFrame(c.b); !errors.Is(err, c.want) || len(e) != 0 {
				t.Fatalf("got %d entries and %v, want %v", len(e), err, c.want)
			}
		})
	}
}

func TestBatchEqualsAppendFrame(t *testing.T) {
	var b Batch
	for round := range 3 { // reused, with less in it each time
		entries := testEntries()[:3-round]
		f := testHeader(entries)
		b.Reset(Position{LSN: 100, Chain: 42})
		if b.Bytes() != nil || b.Elided() != nil {
			t.Fatal("a batch that was not sealed has bytes")
		}
		for _, e := range entries {
			b.Add(e.Header, e.Data)
		}
		b.seal(f)
		want := AppendFrame(nil, f, entries)
		if want := append(want, make([]byte, padded(len(want))-len(want))...); !bytes.Equal(b.Bytes(), want) || len(want) != b.Size() {
			t.Fatalf("round %d: sealed batch differs from AppendFrame", round)
		}
		f.Elided = len(entries) > 1
		want = AppendFrame(nil, f, entries)
		for range 2 { // encoded once, given twice
			if !bytes.Equal(b.Elided(), want) {
				t.Fatalf("round %d: elided batch differs from AppendFrame", round)
			}
		}
		if !aligned(b.Bytes()) {
			t.Fatal("buffer is not aligned")
		}
		if want := (Position{LSN: 100 + cluster.LSN(len(entries)), Chain: f.Chain}); b.End() != want {
			t.Fatalf("end: got %v, want %v", b.End(), want)
		}
	}
}

func TestSegmentHeader(t *testing.T) {
	h := SegmentHeader{FeatureLevel: 2, Cluster: testCluster(), Epoch: 7, First: 101, Base: 90, Chain: 42, Size: 65536}
	b := AppendSegmentHeader(nil, h)
	if got, err := DecodeSegmentHeader(b); err != nil || got != h {
		t.Fatalf("got %+v, %v; want %+v", got, err, h)
	}
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 1 << (i % 8)
		if _, err := DecodeSegmentHeader(bad); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("flipped byte %d: got %v, want ErrCorrupt", i, err)
		}
	}
	newer := bytes.Clone(b)
	newer[4]++
	binary.LittleEndian.PutUint32(newer[segmentCRCOffset:], crc32.Checksum(newer[:segmentCRCOffset], castagnoli))
	if _, err := DecodeSegmentHeader(newer); !errors.Is(err, ErrFeatureLevel) {
		t.Fatalf("newer version: got %v, want ErrFeatureLevel", err)
	}
	if _, err := DecodeSegmentHeader(make([]byte, 512)); !errors.Is(err, ErrZero) {
		t.Fatalf("zeros: got %v, want ErrZero", err)
	}
	if _, err := DecodeSegmentHeader(b[:511]); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("short: got %v, want ErrCorrupt", err)
	}
}

func TestSegmentNames(t *testing.T) {
	for _, first := range []cluster.LSN{1, 101, math.MaxUint64} {
		if got, ok := ParseSegmentName(SegmentName(first)); !ok || got != first {
			t.Errorf("%s: got %d, %v", SegmentName(first), got, ok)
		}
	}
	names := []string{SegmentName(9), SegmentName(10), SegmentName(math.MaxUint64)}
	if !slices.IsSorted(names) {
		t.Errorf("names do not sort as their LSNs do: %q", names)
	}
	for _, name := range []string{
		"", NextName, "wal-1.log", SegmentName(0), SegmentName(1) + ".tmp", ".nfs00000001",
		"wal-99999999999999999999.log", "wal-+0000000000000000001.log", "x" + SegmentName(1),
	} {
		if n, ok := ParseSegmentName(name); ok {
			t.Errorf("%q is taken for the segment of LSN %d", name, n)
		}
	}
}

func FuzzDecodeFrame(f *testing.F) {
	entries := testEntries()
	h := testHeader(entries)
	f.Add(AppendFrame(nil, h, entries))
	h.Elided = true
	f.Add(AppendFrame(nil, h, entries))
	f.Add(AppendFrame(nil, FrameHeader{Kind: FrameMark}, nil))
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		// With its CRC made right, more of the input gets past the first check.
		for range 2 {
			if h, entries, size, err := DecodeFrame(b); err == nil {
				if again := AppendFrame(nil, h, entries); !bytes.Equal(again, b[:size]) {
					t.Fatalf("decoded frame encodes differently:\n%x\n%x", again, b[:size])
				}
			}
			if len(b) < FrameHeaderSize {
				return
			}
			b = bytes.Clone(b)
			binary.LittleEndian.PutUint32(b, frameMagic)
			if n := int(binary.LittleEndian.Uint32(b[8:])); n > len(b)-FrameHeaderSize || n < 0 {
				binary.LittleEndian.PutUint32(b[8:], uint32(len(b)-FrameHeaderSize))
			}
			size := FrameHeaderSize + int(binary.LittleEndian.Uint32(b[8:]))
			binary.LittleEndian.PutUint32(b[crcOffset:], frameCRC(b[:size]))
		}
	})
}

func FuzzDecodeSegmentHeader(f *testing.F) {
	f.Add(AppendSegmentHeader(nil, SegmentHeader{First: 1, Size: 65536}))
	f.Add(make([]byte, 512))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := DecodeSegmentHeader(b)
		if err != nil {
			return
		}
		if got, err := DecodeSegmentHeader(AppendSegmentHeader(nil, h)); err != nil || got != h {
			t.Fatalf("got %+v, %v; want %+v", got, err, h)
		}
	})
}
