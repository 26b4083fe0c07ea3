// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"bytes"
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
