// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"testing"
)

func TestShapes(t *testing.T) {
	for _, tt := range []struct {
		list string
		want Shapes // nil = refused
		text string
	}{
		{"one", Shapes{One}, "one"},
		{"each,one", Shapes{Each, One}, "each,one"},
		{"one, each", Shapes{One, Each}, "one,each"},
		{"1", Shapes{One}, "one"},
		{"64", Shapes{64}, "64"},
		{"", nil, ""},
		{"0", nil, ""},
		{"-1", nil, ""},
		{"1000001", nil, ""},
		{"many", nil, ""},
		{"each,", nil, ""},
	} {
		var got Shapes
		err := got.Set(tt.list)
		if (err == nil) != (tt.want != nil) || !slices.Equal(got, tt.want) || got.String() != tt.text {
			t.Errorf("%q: %v %q, %v", tt.list, got, got.String(), err)
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, tt := range []struct {
		of      Shapes
		workers int
		want    []int
	}{
		{Shapes{Each, One}, 256, []int{256, 1}},
		{Shapes{One, Each}, 16, []int{1, 16}},
		{Shapes{Each, One}, 1, []int{1}},
		{Shapes{Each, 16}, 16, []int{16}},
		{Shapes{64}, 4, []int{64}},
		{nil, 4, nil},
	} {
		if got := tt.of.Numbers(tt.workers); !slices.Equal(got, tt.want) {
			t.Errorf("%v of %d workers: %v, want %v", tt.of, tt.workers, got, tt.want)
		}
	}
}

func TestFleet(t *testing.T) {
	f, err := New(3, func(i int) []string { return []string{[]string{"127.0.0.2:1", "127.0.0.2:2", "127.0.0.2:3"}[i]} })
	if err != nil {
		t.Fatal(err)
	}
	if f.Len() != 3 || f.Client(0) == f.Client(1) || f.Client(1) != f.Client(4) {
		t.Errorf("%d clients, or not shared evenly", f.Len())
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := New(2, func(int) []string { return nil }); err == nil {
		t.Error("a client without an address")
	}
	if err := (&Fleet{}).Close(); err != nil {
		t.Error(err)
	}
}
