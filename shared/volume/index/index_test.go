// SPDX-License-Identifier: Apache-2.0

package index_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/index"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

func entries() []index.Entry {
	all := []index.Entry{
		{File: "a/b", Generation: 1, Offset: 0, Length: 5, CRC: 0xffffffff, LSN: 7, Token: 3, Epoch: 2, Client: "@3", Request: 1, Time: 1_700_000_000_000},
		{File: "a/b", Generation: 1, Offset: 5, Length: cluster.MaxAppend, LSN: 8, Token: 3, Epoch: 2, Client: "@3", Request: 2, Time: 1_700_000_000_001},
		{File: "c", Generation: 9, Offset: math.MaxInt64 - 9, Length: 9, CRC: 1, LSN: 1 << 62, Token: 1 << 61, Epoch: 1 << 40, Client: "~x", Request: 1<<63 - 1},
		{File: "a/b", Generation: 2, Offset: 0, Length: 1, CRC: 5, LSN: 9, Token: 8, Epoch: 3, Client: "curl", Request: 4, Time: 1},
	}
	for i := range 500 {
		e := all[1]
		e.Offset, e.Length, e.LSN, e.Request = int64(100*i), 100, cluster.LSN(20+i), cluster.RequestID(i)
		e.File = cluster.FileName(fmt.Sprint("f", i%7))
		all = append(all, e)
	}
	return all
}

// owned returns the entries of clients that belong to identities; one of them got its identity on the way.
func owned() []index.Entry {
	all := entries()
	for i := range all {
		if all[i].Client != "curl" && i != 1 {
			all[i].Identity = "user:alice"
		}
	}
	return all
}

func TestIndexBlocks(t *testing.T) {
	t.Run("without identities", func(t *testing.T) { testBlocks(t, "hfx1", entries()) })
	t.Run("with identities", func(t *testing.T) { testBlocks(t, "hfx2", owned()) })
}

func testBlocks(t *testing.T, magic string, all []index.Entry) {
	block := index.AppendBlock([]byte("before"), all)[len("before"):]
	if string(block[:4]) != magic {
		t.Errorf("a block begins with %q", block[:4])
	}
	got, rest, err := index.Decode(append(bytes.Clone(block), "rest"...))
	if err != nil || !reflect.DeepEqual(got, all) || string(rest) != "rest" {
		t.Fatalf("%d entries, rest %q, %v", len(got), rest, err)
	}
	if n := len(block) / len(all); n > 24 {
		t.Errorf("an append takes %d bytes", n)
	}
	for i := range block {
		if _, _, err := index.Decode(block[:i]); err == nil {
			t.Fatalf("%d bytes of %d are a block", i, len(block))
		}
		torn := bytes.Clone(block)
		torn[i] ^= 1
		if got, _, err := index.Decode(torn); err == nil {
			t.Fatalf("with byte %d changed it has %d entries", i, len(got))
		}
	}
}

// TestManyEntriesAreRead: a writer is given all that waited, which has more bytes than a reader takes of one block.
func TestManyEntriesAreRead(t *testing.T) {
	h := volumetest.New(1).Host(1, volumetest.ProfileLocal())
	all := make([]index.Entry, 1<<15)
	for i := range all {
		name := fmt.Sprintf("%0200d/%0200d/%0110d", 1, 2, i)
		all[i] = index.Entry{File: cluster.FileName(name), Generation: 1, Length: 1, LSN: cluster.LSN(i + 1), Client: "c"}
		if err := all[i].File.Validate(); err != nil || len(name) != cluster.MaxFileName {
			t.Fatalf("a name of %d bytes: %v", len(name), err)
		}
	}
	w := index.NewWriter(h, 1, func() error { return nil })
	if err := errors.Join(w.Write(all), w.Close()); err != nil {
		t.Fatal(err)
	}
	var got []index.Entry
	err := index.Read(t.Context(), h, func(e *index.Entry) error { got = append(got, *e); return nil })
	if err != nil || !slices.Equal(got, all) {
		t.Errorf("%d of %d entries are read: %v", len(got), len(all), err)
	}
}

func FuzzIndexBlock(f *testing.F) {
	f.Add(index.AppendBlock(nil, entries()[:4]))
	f.Add(index.AppendBlock(nil, owned()[:4]))
	f.Add(index.AppendBlock(nil, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = index.FixSum(b)
		got, rest, err := index.Decode(b)
		if err != nil {
			return
		}
		again, _, err := index.Decode(index.AppendBlock(nil, got))
		if err != nil || !reflect.DeepEqual(again, got) {
			t.Fatalf("%v written anew is %v, %v", got, again, err)
		}
		if len(rest) >= len(b) {
			t.Fatal("nothing was taken")
		}
	})
}

func TestBlameKeepsWhatCounts(t *testing.T) {
	e := func(offset, length int64, lsn cluster.LSN) index.Entry {
		return index.Entry{File: "f", Generation: 1, Offset: offset, Length: length, LSN: lsn}
	}
	for _, test := range []struct{ in, want []index.Entry }{
		{[]index.Entry{e(5, 5, 2), e(0, 5, 1), e(5, 5, 2)}, []index.Entry{e(0, 5, 1), e(5, 5, 2)}},
		{[]index.Entry{e(0, 5, 1), e(5, 9, 2), e(5, 3, 9), e(8, 3, 10)}, []index.Entry{e(0, 5, 1), e(5, 3, 9), e(8, 3, 10)}},
		{[]index.Entry{e(0, 9, 1), e(4, 2, 7)}, []index.Entry{e(4, 2, 7)}},
		{[]index.Entry{e(0, 9, 7), e(4, 2, 1)}, []index.Entry{e(0, 9, 7)}},
	} {
		if got := index.InOrder(test.in); !reflect.DeepEqual(got, test.want) {
			t.Errorf("got %v, want %v", got, test.want)
		}
	}
}

// TestBlameReadsNoMoreThanItNeeds: from the newest file on, until what was asked for is covered, or
// until its time is over; then it says how much it did not read.
func TestBlameReadsNoMoreThanItNeeds(t *testing.T) {
	h := volumetest.New(1).Host(1, volumetest.ProfileLocal())
	if err := h.Mkdir("index"); err != nil {
		t.Fatal(err)
	}
	for epoch := range int64(4) { // each term appends ten bytes, and indexes the last append of before once more
		var all []index.Entry
		for at := max(0, 10*epoch-5); at < 10*epoch+10; at += 5 {
			all = append(all, index.Entry{File: "f", Generation: 1, Offset: at, Length: 5, LSN: cluster.LSN(100 + at)})
		}
		f, err := h.Open(fmt.Sprintf("index/%010d-000001.idx", epoch+1), vfs.FlagCreate)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(index.AppendBlock(nil, all), 0); err != nil {
			t.Fatal(err)
		}
		f.Close() //nolint:errcheck // it was written
	}
	for _, test := range []struct {
		what             string
		from, to         int64
		limit, stopAfter int // files
		opened, unread   int
		first, last      int64
	}{
		{"its end", 35, 40, 100, 9, 1, 0, 35, 40},
		{"an append that is indexed twice", 25, 40, 100, 9, 1, 0, 25, 40},
		{"its middle", 10, 20, 100, 9, 3, 0, 10, 20},
		{"all", 0, 40, 100, 9, 4, 0, 0, 40},
		{"more than there is", 30, 99, 100, 9, 4, 0, 30, 40},
		{"a page of it", 30, 40, 1, 9, 1, 0, 30, 35},
		{"all, in no time", 0, 40, 100, 2, 2, 2, 15, 40},
		{"its end, in no time", 35, 40, 100, 1, 1, 0, 35, 40},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		opened := 0
		h.SetHook(func(c volumetest.Call) volumetest.Action {
			if c.Op == volumetest.OpOpen && strings.HasPrefix(c.Name, "index/") {
				if opened++; opened == test.stopAfter {
					cancel()
				}
			}
			return volumetest.Proceed()
		})
		b, err := index.ReadBlame(ctx, h, index.Query{File: "f", Generation: 1, From: test.from, To: test.to, Limit: test.limit})
		cancel()
		if n := len(b.Entries); err != nil || n == 0 || opened != test.opened || b.Unread != test.unread || b.Files != 4 ||
			b.Entries[0].Offset != test.first || b.Entries[n-1].End() != test.last {
			t.Errorf("%s: opened %d files, want %d: %+v, %v", test.what, opened, test.opened, b, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if b, err := index.ReadBlame(ctx, h, index.Query{File: "f", Generation: 1, To: 40, Limit: 9}); err == nil {
		t.Errorf("without any time: %+v", b)
	}
}
