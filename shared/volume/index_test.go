// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

func indexEntries() []volume.IndexEntry {
	all := []volume.IndexEntry{
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

func TestIndexBlocks(t *testing.T) {
	all := indexEntries()
	block := volume.AppendIndexBlock([]byte("before"), all)[len("before"):]
	got, rest, err := volume.DecodeIndex(append(bytes.Clone(block), "rest"...))
	if err != nil || !reflect.DeepEqual(got, all) || string(rest) != "rest" {
		t.Fatalf("%d entries, rest %q, %v", len(got), rest, err)
	}
	if n := len(block) / len(all); n > 24 {
		t.Errorf("an append takes %d bytes", n)
	}
	for i := range block {
		if _, _, err := volume.DecodeIndex(block[:i]); err == nil {
			t.Fatalf("%d bytes of %d are a block", i, len(block))
		}
		torn := bytes.Clone(block)
		torn[i] ^= 1
		if got, _, err := volume.DecodeIndex(torn); err == nil {
			t.Fatalf("with byte %d changed it has %d entries", i, len(got))
		}
	}
}

func FuzzIndexBlock(f *testing.F) {
	f.Add(volume.AppendIndexBlock(nil, indexEntries()[:4]))
	f.Add(volume.AppendIndexBlock(nil, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = volume.FixIndexSum(b)
		got, rest, err := volume.DecodeIndex(b)
		if err != nil {
			return
		}
		again, _, err := volume.DecodeIndex(volume.AppendIndexBlock(nil, got))
		if err != nil || !reflect.DeepEqual(again, got) {
			t.Fatalf("%v written anew is %v, %v", got, again, err)
		}
		if len(rest) >= len(b) {
			t.Fatal("nothing was taken")
		}
	})
}

func TestBlameKeepsWhatCounts(t *testing.T) {
	e := func(offset, length int64, lsn cluster.LSN) volume.IndexEntry {
		return volume.IndexEntry{File: "f", Generation: 1, Offset: offset, Length: length, LSN: lsn}
	}
	for _, test := range []struct{ in, want []volume.IndexEntry }{
		{[]volume.IndexEntry{e(5, 5, 2), e(0, 5, 1), e(5, 5, 2)}, []volume.IndexEntry{e(0, 5, 1), e(5, 5, 2)}},
		{[]volume.IndexEntry{e(0, 5, 1), e(5, 9, 2), e(5, 3, 9), e(8, 3, 10)}, []volume.IndexEntry{e(0, 5, 1), e(5, 3, 9), e(8, 3, 10)}},
		{[]volume.IndexEntry{e(0, 9, 1), e(4, 2, 7)}, []volume.IndexEntry{e(4, 2, 7)}},
		{[]volume.IndexEntry{e(0, 9, 7), e(4, 2, 1)}, []volume.IndexEntry{e(0, 9, 7)}},
	} {
		if got := volume.InOrder(test.in); !reflect.DeepEqual(got, test.want) {
			t.Errorf("got %v, want %v", got, test.want)
		}
	}
}

// TestBlameReadsNoMoreThanItNeeds: from the newest file on, until what was asked for is covered, or
// until its time is over; then it says how much it did not read.
func TestBlameReadsNoMoreThanItNeeds(t *testing.T) {
	h := newDisk(t).Host(1, volumetest.ProfileLocal())
	if err := h.Mkdir("index"); err != nil {
		t.Fatal(err)
	}
	for epoch := range int64(4) { // each reign appends ten bytes, and indexes the last append of before once more
		var all []volume.IndexEntry
		for at := max(0, 10*epoch-5); at < 10*epoch+10; at += 5 {
			all = append(all, volume.IndexEntry{File: "f", Generation: 1, Offset: at, Length: 5, LSN: cluster.LSN(100 + at)})
		}
		f, err := h.Open(fmt.Sprintf("index/%010d-000001.idx", epoch+1), volume.FlagCreate)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(volume.AppendIndexBlock(nil, all), 0); err != nil {
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
		b, err := volume.ReadBlame(ctx, h, volume.BlameQuery{File: "f", Generation: 1, From: test.from, To: test.to, Limit: test.limit})
		cancel()
		if n := len(b.Entries); err != nil || n == 0 || opened != test.opened || b.Unread != test.unread || b.Files != 4 ||
			b.Entries[0].Offset != test.first || b.Entries[n-1].End() != test.last {
			t.Errorf("%s: opened %d files, want %d: %+v, %v", test.what, opened, test.opened, b, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if b, err := volume.ReadBlame(ctx, h, volume.BlameQuery{File: "f", Generation: 1, To: 40, Limit: 9}); err == nil {
		t.Errorf("without any time: %+v", b)
	}
}

// TestIndexOfAReignThatEnds: a reign that ends while its index is made writes nothing to it.
func TestIndexOfAReignThatEnds(t *testing.T) {
	d := newDisk(t)
	x := begin(t, d, 1)
	x.host.SetHook(func(c volumetest.Call) volumetest.Action {
		if strings.HasPrefix(c.Name, "index/") {
			x.r.Depose(errors.New("ended meanwhile")) //nolint:errcheck // it is what Write returns
		}
		return volumetest.Proceed()
	})
	if err := x.r.IndexWriter().Write(indexEntries()); !errors.Is(err, volume.ErrDeposed) {
		t.Errorf("write: %v", err)
	}
	for name, b := range d.Files("index/") {
		if len(b) > 0 {
			t.Errorf("%s has %d bytes", name, len(b))
		}
	}
	x.kill()
}
