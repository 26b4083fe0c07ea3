// SPDX-License-Identifier: Apache-2.0

package wal

import (
	"errors"
	"io/fs"
	"slices"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// staleDir lists as it was before a segment was named.
type staleDir struct {
	*memDir
	hidden string
}

func (d staleDir) Names() ([]string, error) {
	names, err := d.memDir.Names()
	return slices.DeleteFunc(names, func(n string) bool { return n == d.hidden }), err
}

// A listing that does not show the last segment is no proof that there is none.
func TestScanOpensWhatTheListingHides(t *testing.T) {
	s := rotated(t)
	d := staleDir{s.d.alive(), s.log.seg.name}
	_, _, err := scan(d, scanOptions())
	damage, ok := errors.AsType[*ScanError](err)
	if !ok || SegmentName(damage.Unlisted) != d.hidden {
		t.Fatalf("the hidden segment is taken for the end, or not named: %v", err)
	}
	o := scanOptions()
	o.Known = []cluster.LSN{damage.Unlisted}
	want, _, err := scan(s.d.alive(), scanOptions())
	if err != nil {
		t.Fatal(err)
	}
	if r, _, err := scan(d, o); err != nil || r.End != want.End || len(r.Segments) != len(want.Segments) {
		t.Errorf("got %+v, %v; want %+v", r, err, want)
	}
	delete(d.visible, d.hidden)
	if _, _, err := scan(d, o); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a known segment that is not there: %v", err)
	}
}
