// SPDX-License-Identifier: Apache-2.0

package starve

import (
	"os"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/helper"
)

func TestMain(m *testing.M) {
	helper.Main(map[string]helper.Func{KindLoops: Loops, KindDisk: Disk})
	os.Exit(m.Run())
}

func TestLoadEndsAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	l, err := Start(1, dir)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

func TestArguments(t *testing.T) {
	ended := func() *strings.Reader { return strings.NewReader("") } // each reads it in a goroutine of its own
	for _, args := range [][]string{nil, {"0"}, {"many"}, {"1025"}, {"1", "2"}} {
		if Loops(t.Context(), args, ended(), nil) == nil {
			t.Errorf("loops %v", args)
		}
	}
	for _, args := range [][]string{nil, {"/no/such/directory"}} {
		if Disk(t.Context(), args, ended(), nil) == nil {
			t.Errorf("disk %v", args)
		}
	}
	if err := Loops(t.Context(), []string{"3"}, ended(), nil); err != nil {
		t.Error(err)
	}
}
